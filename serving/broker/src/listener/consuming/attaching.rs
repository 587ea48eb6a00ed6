//! Opens a lane: the subscription and its cursors are made if need be, and the consumer is tied to the owner.

use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::Offset;
use hulse_proto::wire::v1;
use serving_dispatch::SLOTS;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::authorise::{Action, Resource};
use crate::listener::front::Front;
use crate::listener::wire::{check_client_id, partition};
use crate::partition::{Handed, NewConsumer, NewSharer, ShareItem, SharePlan, ShareTie, Tie};
use crate::subscriptions::{
    NewSubscription, Sharing, StartPoint, SubscriptionKind, SubscriptionName, namespace_of,
};

/// A consumer that is tied to the owner.
pub(super) struct Attached {
    pub(super) tied: Tied,
    pub(super) name: SubscriptionName,
}

/// How.
pub(super) enum Tied {
    /// It gets all records while it is the active one.
    Single(Tie),
    /// It gets a share of them.
    Sharing(ShareTie, UnboundedReceiver<ShareItem>),
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
    let kind = SubscriptionKind::from_wire(request.r#type)?.with_cursors()?;
    let start = StartPoint::from_wire(request.start.as_ref())?;
    check_client_id(&request.consumer_name)?;
    front.allow(Action::Consume, Resource::TopicId(id.topic))?;
    let open = front.open(id).await?;
    // A topic that was not heard of before is known now.
    front.allow(Action::Consume, Resource::TopicId(id.topic))?;
    let topic = match front.topics.hint_of(id.topic) {
        Some(topic) => topic,
        None => front.topics.find(id.topic).await?,
    };
    let name = SubscriptionName::parse(&request.subscription, namespace_of(&topic.name))?;
    front.allow(Action::Consume, Resource::Subscription(&name))?;
    let policies = request.policies.unwrap_or_default();
    let hold = policies.hold;
    let new = NewSubscription {
        kind,
        hold: hold.unwrap_or(true),
        // Who set it anew meant those that consume already, too.
        insists_on_hold: false,
        sharing: Sharing::from_wire(policies.sharing.as_ref())?,
        ttl_ms: policies.ttl_ms.unwrap_or(0),
        start,
    };
    let (subscription, _) = front.subscribe(&name, &topic, new).await?;
    front.make_cursor(&open, &subscription).await?;
    let cursor = subscription.cursor(id.topic);
    let consumer_name = match request.consumer_name.as_str() {
        "" => client.clone(),
        name => name.into(),
    };
    let cursor = cursor.unwrap_or(subscription.id);
    if let Some(plan) = subscription.plan(cursor, &front.config) {
        let sharer = NewSharer {
            slots: slots(&plan, &request.slots)?,
            plan,
            name: consumer_name,
            client,
            priority: request.priority,
            handed: Offset(request.handed_end),
        };
        let (tie, items) = open.share(sharer).await?;
        let tied = Tied::Sharing(tie, items);
        return Ok(Attached { tied, name });
    }
    let consumer = NewConsumer {
        subscription: cursor,
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
    let tied = Tied::Single(open.attach(consumer).await?);
    Ok(Attached { tied, name })
}

/// The slots that a consumer names: some where its subscription wants that, else none.
fn slots(plan: &SharePlan, named: &[v1::SlotRange]) -> Result<Vec<(u16, u16)>, Fault> {
    let words = match (plan.policy.named_slots, named.len()) {
        (true, 0) => "consumers of this subscription name their slots, and this one names none",
        (false, 1..) => "a consumer names slots where its subscription wants that only",
        // More than there are cannot be apart.
        (_, SLOTS..) => "a consumer names more ranges than there are slots",
        _ => {
            // What is too high is refused by the dispatcher.
            let short = |slot: u32| u16::try_from(slot).unwrap_or(u16::MAX);
            let ranges = named.iter();
            return Ok(ranges.map(|it| (short(it.first), short(it.end))).collect());
        }
    };
    Err(Fault::new(Reason::InvalidRequest, words))
}
