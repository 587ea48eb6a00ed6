//! Opens a lane: the subscription and its cursors are made if need be, and the consumer is tied to the owner.

use std::sync::Arc;

use hulse_proto::error::Fault;
use hulse_proto::id::Offset;
use hulse_proto::wire::v1;

use crate::authorise::{Action, Resource};
use crate::listener::front::Front;
use crate::listener::wire::{check_client_id, partition};
use crate::partition::{Handed, NewConsumer, Tie};
use crate::subscriptions::{
    NewSubscription, StartPoint, SubscriptionKind, SubscriptionName, namespace_of,
};

/// A consumer that is tied to the owner.
pub(super) struct Attached {
    pub(super) tie: Tie,
    pub(super) name: SubscriptionName,
}

/// Attaches.
///
/// # Errors
/// `CONSUMER_EXISTS`, those of [`crate::Subscriptions::join`], of opening the partition, and of a start that is none.
pub(super) async fn attach(
    front: Arc<Front>,
    client: Arc<str>,
    request: v1::Attach,
) -> Result<Attached, Fault> {
    let id = partition(request.partition.as_ref())?;
    let kind = SubscriptionKind::from_wire(request.r#type)?;
    let start = StartPoint::from_wire(request.start.as_ref())?;
    check_client_id(&request.consumer_name)?;
    front.allow(Action::Consume, Resource::TopicId(id.topic))?;
    let open = front.open(id).await?;
    let topic = match front.topics.hint_of(id.topic) {
        Some(topic) => topic,
        None => front.topics.find(id.topic).await?,
    };
    let name = SubscriptionName::parse(&request.subscription, namespace_of(&topic.name))?;
    front.allow(Action::Consume, Resource::Subscription(&name))?;
    let hold = request.policies.as_ref().and_then(|policies| policies.hold);
    let new = NewSubscription {
        kind,
        hold: hold.unwrap_or(true),
        // Who set it anew meant those that consume already, too.
        insists_on_hold: false,
        start,
    };
    let (subscription, _) = front.subscribe(&name, &topic, new).await?;
    front.make_cursor(&open, &subscription).await?;
    let cursor = subscription.cursor(id.topic);
    let consumer_name = match request.consumer_name.as_str() {
        "" => client.clone(),
        name => name.into(),
    };
    let consumer = NewConsumer {
        subscription: cursor.unwrap_or(subscription.id),
        kind,
        name: consumer_name,
        client,
        priority: request.priority,
        takeover: request.takeover,
        handed: (request.handed_end > 0).then_some(Handed {
            end: Offset(request.handed_end),
            state_epoch: request.handed_epoch,
        }),
    };
    let tie = open.attach(consumer).await?;
    Ok(Attached { tie, name })
}
