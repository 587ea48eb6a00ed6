//! The admin's methods for subscriptions.
//!
//! Moving a cursor twice to the same place is
//! the same as once, so these calls are repeated when their outcome is unknown; `skip` is not.

use std::future::Future;
use std::time::Duration;

use hulse_proto::error::Reason;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::subscriptions_client::SubscriptionsClient;
use tonic::transport::Channel;
use tonic::{Response, Status};

use super::handle::{Admin, PAGES_MAX};
use super::subscription_types::{
    Cursor, CursorSelection, MovedCursor, NewSubscription, Subscription, SubscriptionChange,
};
use crate::client::Repeat;
use crate::connect::MESSAGE_BYTES_MAX;
use crate::consumer::start_at;
use crate::error::Error;
use crate::reader::Start;

impl Admin {
    /// Makes a subscription, or adds a topic to one, with a durable cursor on each partition: [`Start::Latest`] means this moment. True:
    /// it was made or the topic was added; false: it was there.
    ///
    /// # Errors
    /// SUBSCRIPTION_EXISTS: with another type, or it does otherwise than `hold` says. TOPIC_NOT_FOUND, INVALID_NAME, ….
    pub async fn create_subscription(
        &self,
        new: NewSubscription,
    ) -> Result<(Subscription, bool), Error> {
        let request = v1::CreateSubscriptionRequest {
            subscription: new.name,
            topic: new.topic,
            r#type: new.kind.to_wire() as i32,
            start: Some(start_at(new.start)),
            policies: Some(v1::SubscriptionPolicies {
                hold: new.hold,
                sharing: new.sharing.map(|sharing| sharing.to_wire()),
                ttl_ms: new.ttl.map(whole_ms),
                paused_until_ms: None,
            }),
        };
        let answer =
            self.subscriptions(Repeat::Always, request, |mut client, request| async move {
                client.create(request).await
            });
        let answer = answer.await?;
        Ok((
            Subscription::from_wire(answer.subscription)?,
            answer.created,
        ))
    }

    /// Changes a subscription, on all of its topics; durable on every cursor when it answers. `topic` may be empty where `name` is a full
    /// one.
    ///
    /// # Errors
    /// SUBSCRIPTION_NOT_FOUND, TOPIC_NOT_FOUND, INVALID_REQUEST (nothing is changed), …: some cursors may have been told.
    pub async fn update_subscription(
        &self,
        name: &str,
        topic: &str,
        change: SubscriptionChange,
    ) -> Result<Subscription, Error> {
        let request = v1::UpdateSubscriptionRequest {
            subscription: name.to_owned(),
            topic: topic.to_owned(),
            policies: Some(v1::SubscriptionPolicies {
                hold: change.hold,
                sharing: None,
                ttl_ms: change.ttl.map(whole_ms),
                paused_until_ms: change.paused_until_ms,
            }),
        };
        // Said twice it means the same.
        let answer =
            self.subscriptions(Repeat::Always, request, |mut client, request| async move {
                client.update(request).await
            });
        Subscription::from_wire(answer.await?.subscription)
    }

    /// Every subscription of a topic; of a namespace (`tenant/namespace`) when the topic is empty; of all when both are.
    ///
    /// # Errors
    /// TOPIC_NOT_FOUND, or why it could not be asked.
    pub async fn list_subscriptions(
        &self,
        namespace: &str,
        topic: &str,
    ) -> Result<Vec<Subscription>, Error> {
        let mut subscriptions = Vec::new();
        let mut page_token = String::new();
        for _ in 0..PAGES_MAX {
            let request = v1::ListSubscriptionsRequest {
                namespace: namespace.to_owned(),
                topic: topic.to_owned(),
                page_token,
                page_size: 0,
            };
            let answer = self.asked(request, |mut client, request| async move {
                client.list(request).await
            });
            let page = answer.await?;
            for subscription in page.subscriptions {
                subscriptions.push(Subscription::from_wire(Some(subscription))?);
            }
            if page.next_page_token.is_empty() {
                return Ok(subscriptions);
            }
            page_token = page.next_page_token;
        }
        Err(Error::wrong_answer("pages without an end"))
    }

    /// A subscription and its cursors, with acknowledged ranges when `acked_ranges` (the first 1,000 of each).
    ///
    /// # Errors
    /// SUBSCRIPTION_NOT_FOUND, TOPIC_NOT_FOUND, or why it could not be asked. A partition that does not answer says so in its cursor.
    pub async fn describe_subscription(
        &self,
        name: &str,
        topic: &str,
        acked_ranges: bool,
    ) -> Result<(Subscription, Vec<Cursor>), Error> {
        let request = v1::DescribeSubscriptionRequest {
            subscription: name.to_owned(),
            topic: topic.to_owned(),
            acked_ranges,
            without_cursors: false,
        };
        let answer = self.asked(request, |mut client, request| async move {
            client.describe(request).await
        });
        let answer = answer.await?;
        let cursors = answer.cursors.into_iter().map(Cursor::from_wire);
        Ok((
            Subscription::from_wire(answer.subscription)?,
            cursors.collect(),
        ))
    }

    /// The subscription, if there is one that has this topic; any of this name where `topic` is empty, also one that has lost all of its
    /// topics. Asks no partition.
    ///
    /// # Errors
    /// TOPIC_NOT_FOUND, or why it could not be asked.
    pub async fn find_subscription(
        &self,
        name: &str,
        topic: &str,
    ) -> Result<Option<Subscription>, Error> {
        let request = v1::DescribeSubscriptionRequest {
            subscription: name.to_owned(),
            topic: topic.to_owned(),
            acked_ranges: false,
            without_cursors: true,
        };
        let answer = self.asked(request, |mut client, request| async move {
            client.describe(request).await
        });
        match answer.await {
            Ok(answer) => Subscription::from_wire(answer.subscription).map(Some),
            Err(error) if error.reason() == Some(Reason::SubscriptionNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Moves cursors; consumers that are attached go on from there. With `dry_run` nothing is moved.
    ///
    /// # Errors
    /// SUBSCRIPTION_NOT_FOUND, OFFSET_OUT_OF_RANGE, …. A partition that could not be moved says so in its answer.
    pub async fn seek_subscription(
        &self,
        which: &CursorSelection,
        to: Start,
        dry_run: bool,
    ) -> Result<Vec<MovedCursor>, Error> {
        let request = v1::SeekSubscriptionRequest {
            subscription: which.subscription.clone(),
            topic: which.topic.clone(),
            partition: which.partition,
            to: Some(start_at(to)),
            dry_run,
        };
        let answer =
            self.subscriptions(Repeat::Always, request, |mut client, request| async move {
                client.seek(request).await
            });
        Ok(moved(answer.await?))
    }

    /// Passes over the next `records` of one partition (0 when none is named) that are not acknowledged. With `dry_run` nothing is moved.
    ///
    /// # Errors
    /// SUBSCRIPTION_NOT_FOUND, PARTITION_NOT_FOUND, …; or the outcome is unknown.
    pub async fn skip_subscription(
        &self,
        which: &CursorSelection,
        records: u64,
        dry_run: bool,
    ) -> Result<Vec<MovedCursor>, Error> {
        let request = v1::SkipSubscriptionRequest {
            subscription: which.subscription.clone(),
            topic: which.topic.clone(),
            partition: which.partition.unwrap_or(0),
            records,
            dry_run,
        };
        let answer = self.subscriptions(
            Repeat::WhenNotApplied,
            request,
            |mut client, request| async move { client.skip(request).await },
        );
        Ok(moved(answer.await?))
    }

    /// QUEUE and KEYED with parked dead letters: those are tried anew, as if they had never failed. With `dry_run` they are only counted.
    ///
    /// # Errors
    /// SUBSCRIPTION_NOT_FOUND, …. A partition that does not do it says so in its answer.
    pub async fn redrive_subscription(
        &self,
        which: &CursorSelection,
        dry_run: bool,
    ) -> Result<Vec<MovedCursor>, Error> {
        let request = v1::RedriveSubscriptionRequest {
            subscription: which.subscription.clone(),
            topic: which.topic.clone(),
            partition: which.partition,
            dry_run,
        };
        let answer =
            self.subscriptions(Repeat::Always, request, |mut client, request| async move {
                client.redrive(request).await
            });
        Ok(moved(answer.await?))
    }

    /// Passes over everything that is stored now. With `dry_run` nothing is moved.
    ///
    /// # Errors
    /// SUBSCRIPTION_NOT_FOUND, …. A partition that could not be moved says so in its answer.
    pub async fn clear_subscription(
        &self,
        which: &CursorSelection,
        dry_run: bool,
    ) -> Result<Vec<MovedCursor>, Error> {
        let request = v1::ClearSubscriptionRequest {
            subscription: which.subscription.clone(),
            topic: which.topic.clone(),
            partition: which.partition,
            dry_run,
        };
        let answer =
            self.subscriptions(Repeat::Always, request, |mut client, request| async move {
                client.clear(request).await
            });
        Ok(moved(answer.await?))
    }

    /// Deletes a subscription, or takes a topic from it: its consumers end, its cursors are gone, the name is free.
    ///
    /// # Errors
    /// SUBSCRIPTION_NOT_FOUND; PRECONDITION_FAILED while consumers are attached, unless `force`; or the outcome is unknown: the deletion may
    /// go on by itself.
    pub async fn delete_subscription(
        &self,
        name: &str,
        topic: &str,
        force: bool,
    ) -> Result<(), Error> {
        let request = v1::DeleteSubscriptionRequest {
            subscription: name.to_owned(),
            topic: topic.to_owned(),
            force,
        };
        let answer = self.subscriptions(
            Repeat::WhenNotApplied,
            request,
            |mut client, request| async move { client.delete(request).await },
        );
        answer.await.map(drop)
    }

    /// As [`Admin::subscriptions`]; a question applies nothing, whatever became of it.
    async fn asked<R, T, F, A>(&self, request: R, call: F) -> Result<T, Error>
    where
        R: Clone + Send + Sync,
        F: Fn(SubscriptionsClient<Channel>, R) -> A + Send + Sync,
        A: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let answer = self.subscriptions(Repeat::Always, request, call).await;
        answer.map_err(|error| error.with_possibly_written(false))
    }

    async fn subscriptions<R, T, F, A>(
        &self,
        repeat: Repeat,
        request: R,
        call: F,
    ) -> Result<T, Error>
    where
        R: Clone + Send + Sync,
        F: Fn(SubscriptionsClient<Channel>, R) -> A + Send + Sync,
        A: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let attempt = |channel| {
            let client = SubscriptionsClient::new(channel);
            call(
                client.max_decoding_message_size(MESSAGE_BYTES_MAX),
                request.clone(),
            )
        };
        self.core().call(repeat, attempt).await
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn moved(answer: v1::SeekSubscriptionResponse) -> Vec<MovedCursor> {
    answer
        .cursors
        .into_iter()
        .map(MovedCursor::from_wire)
        .collect()
}
