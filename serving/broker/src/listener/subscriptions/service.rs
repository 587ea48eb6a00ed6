//! The calls.

use std::sync::Arc;

use hulse_proto::error::Fault;
use hulse_proto::wire::v1;
use tonic::{Request, Response, Status};

use super::moving::{Goal, Order};
use crate::Topic;
use crate::authorise::{Action, Resource};
use crate::listener::front::Front;
use crate::listener::wire::{invalid, topic_name};
use crate::subscriptions::{
    NewSubscription, Sharing, StartPoint, SubscriptionKind, SubscriptionName, SubscriptionUpdate,
    namespace_of,
};

/// Service Subscriptions.
pub(crate) struct SubscriptionsService(pub(crate) Arc<Front>);

#[tonic::async_trait]
impl v1::subscriptions_server::Subscriptions for SubscriptionsService {
    async fn create(
        &self,
        request: Request<v1::CreateSubscriptionRequest>,
    ) -> Result<Response<v1::CreateSubscriptionResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let topic = topic_name(&request.topic)?;
            let front = &self.0;
            let name = front.subscription_name(&request.subscription, Some(&topic))?;
            front.allow(Action::Create, Resource::Subscription(&name))?;
            front.allow(Action::Consume, Resource::Topic(&topic))?;
            let policies = request.policies.unwrap_or_default();
            let hold = policies.hold;
            let new = NewSubscription {
                kind: SubscriptionKind::from_wire(request.r#type)?.with_cursors()?,
                hold: hold.unwrap_or(true),
                insists_on_hold: hold.is_some(),
                sharing: Sharing::from_wire(policies.sharing.as_ref())?,
                ttl_ms: policies.ttl_ms.unwrap_or(0),
                start: StartPoint::from_wire(request.start.as_ref())?,
            };
            let topic = front.topics.resolve(&topic, false).await?;
            let (subscription, created) = front.subscribe(&name, &topic, new).await?;
            if !created {
                // An earlier request may have been cut short.
                for partition in topic.partition_ids() {
                    front.cursor_on(partition, &subscription).await?;
                }
            }
            Ok(v1::CreateSubscriptionResponse {
                subscription: Some(front.describe(&subscription).await),
                created,
            })
        };
        self.0.answer("Subscriptions.Create", Box::pin(work)).await
    }

    async fn list(
        &self,
        request: Request<v1::ListSubscriptionsRequest>,
    ) -> Result<Response<v1::ListSubscriptionsResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let front = &self.0;
            let topic = self.topic(&request.topic).await?;
            let namespace = match (&topic, request.namespace.as_str()) {
                (Some(topic), "") => namespace_of(&topic.name),
                (_, namespace) => namespace,
            };
            front.allow(Action::Describe, Resource::Namespace(namespace))?;
            let page = front
                .subscriptions
                .list(namespace, &request.page_token, request.page_size)
                .await?;
            let mut subscriptions = Vec::new();
            for found in &page.subscriptions {
                if topic
                    .as_ref()
                    .is_none_or(|topic| found.topic(topic.id).is_some())
                {
                    subscriptions.push(front.describe(found).await);
                }
            }
            Ok(v1::ListSubscriptionsResponse {
                subscriptions,
                next_page_token: page.next.unwrap_or_default(),
            })
        };
        self.0.answer("Subscriptions.List", work).await
    }

    async fn describe(
        &self,
        request: Request<v1::DescribeSubscriptionRequest>,
    ) -> Result<Response<v1::DescribeSubscriptionResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let front = &self.0;
            let (topic, name) = self.target(&request.topic, &request.subscription).await?;
            front.allow(Action::Describe, Resource::Subscription(&name))?;
            let subscription = front.subscriptions.get(&name).await?;
            if subscription.kind == SubscriptionKind::Stream {
                let without = request.without_cursors;
                let described = front.describe_group(&name, topic.as_ref(), without);
                let (topics, cursors) = described.await?;
                return Ok(v1::DescribeSubscriptionResponse {
                    subscription: Some(v1::SubscriptionDescription {
                        topics,
                        ..front.describe(&subscription).await
                    }),
                    cursors,
                });
            }
            let places = front.places(&subscription, topic.as_ref()).await?;
            let places = match request.without_cursors {
                true => Vec::new(),
                false => places,
            };
            let cursors = front
                .describe_cursors(&subscription, places, request.acked_ranges)
                .await;
            Ok(v1::DescribeSubscriptionResponse {
                subscription: Some(front.describe(&subscription).await),
                cursors,
            })
        };
        self.0.answer("Subscriptions.Describe", work).await
    }

    async fn update(
        &self,
        request: Request<v1::UpdateSubscriptionRequest>,
    ) -> Result<Response<v1::UpdateSubscriptionResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let front = &self.0;
            let (_, name) = self.target(&request.topic, &request.subscription).await?;
            front.allow(Action::Alter, Resource::Subscription(&name))?;
            let policies = request.policies.unwrap_or_default();
            let said = SubscriptionUpdate {
                hold: policies.hold,
                ttl_ms: policies.ttl_ms,
                // 0 says that nobody ever paused it.
                paused_until: policies.paused_until_ms.map(|until| until.max(1)),
            };
            if said == SubscriptionUpdate::default() {
                return Err(invalid("the update changes nothing"));
            }
            let subscription = front.update(&name, said).await?;
            Ok(v1::UpdateSubscriptionResponse {
                subscription: Some(front.describe(&subscription).await),
            })
        };
        self.0.answer("Subscriptions.Update", work).await
    }

    async fn seek(
        &self,
        request: Request<v1::SeekSubscriptionRequest>,
    ) -> Result<Response<v1::SeekSubscriptionResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            if request.to.is_none() {
                return Err(invalid("the seek names no place"));
            }
            let to = StartPoint::from_wire(request.to.as_ref())?;
            let order = Order {
                subscription: &request.subscription,
                topic: &request.topic,
                partition: request.partition,
                goal: Goal::Seek(to),
                dry_run: request.dry_run,
            };
            self.shift(order).await
        };
        self.0.answer("Subscriptions.Seek", work).await
    }

    async fn skip(
        &self,
        request: Request<v1::SkipSubscriptionRequest>,
    ) -> Result<Response<v1::SeekSubscriptionResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            if request.topic.is_empty() {
                return Err(invalid("the skip names no topic"));
            }
            let order = Order {
                subscription: &request.subscription,
                topic: &request.topic,
                partition: Some(request.partition),
                goal: Goal::Skip(request.records),
                dry_run: request.dry_run,
            };
            self.shift(order).await
        };
        self.0.answer("Subscriptions.Skip", work).await
    }

    async fn redrive(
        &self,
        request: Request<v1::RedriveSubscriptionRequest>,
    ) -> Result<Response<v1::SeekSubscriptionResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let order = Order {
                subscription: &request.subscription,
                topic: &request.topic,
                partition: request.partition,
                goal: Goal::Redrive,
                dry_run: request.dry_run,
            };
            self.shift(order).await
        };
        self.0.answer("Subscriptions.Redrive", work).await
    }

    async fn clear(
        &self,
        request: Request<v1::ClearSubscriptionRequest>,
    ) -> Result<Response<v1::SeekSubscriptionResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let order = Order {
                subscription: &request.subscription,
                topic: &request.topic,
                partition: request.partition,
                goal: Goal::Clear,
                dry_run: request.dry_run,
            };
            self.shift(order).await
        };
        self.0.answer("Subscriptions.Clear", work).await
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteSubscriptionRequest>,
    ) -> Result<Response<v1::DeleteSubscriptionResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let front = &self.0;
            let (topic, name) = self.target(&request.topic, &request.subscription).await?;
            front.allow(Action::Delete, Resource::Subscription(&name))?;
            front
                .delete_subscription(&name, topic.as_ref(), request.force)
                .await?;
            Ok(v1::DeleteSubscriptionResponse {})
        };
        self.0.answer("Subscriptions.Delete", Box::pin(work)).await
    }
}

impl SubscriptionsService {
    /// The topic of this name; none for no name.
    async fn topic(&self, name: &str) -> Result<Option<Topic>, Fault> {
        match name {
            "" => Ok(None),
            name => self.0.topics.get(&topic_name(name)?).await.map(Some),
        }
    }

    /// The topic and the subscription that a call is about.
    async fn target(
        &self,
        topic: &str,
        subscription: &str,
    ) -> Result<(Option<Topic>, SubscriptionName), Fault> {
        let topic = self.topic(topic).await?;
        let topic_name = topic.as_ref().map(|topic| &topic.name);
        let name = self.0.subscription_name(subscription, topic_name)?;
        Ok((topic, name))
    }

    async fn shift(&self, order: Order<'_>) -> Result<v1::SeekSubscriptionResponse, Fault> {
        let topic = match order.topic {
            "" => None,
            topic => Some(topic_name(topic)?),
        };
        let name = self
            .0
            .subscription_name(order.subscription, topic.as_ref())?;
        self.0.allow(Action::Alter, Resource::Subscription(&name))?;
        self.0.move_cursors(order).await
    }
}
