//! Subscriptions and cursors for people.

use std::time::Duration;

use futures::StreamExt;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{PartitionId, SubscriptionId, TopicName};
use hulse_proto::wire::v1;

use crate::backlogs::Kept;
use crate::listener::consuming::told;
use crate::listener::front::Front;
use crate::subscriptions::{Subscription, SubscriptionName, namespace_of, not_of_topic};
use crate::{ConsumerView, CursorView, PartitionHandle, Rates, Topic};

/// Where a short name belongs when no topic says it.
const DEFAULT_NAMESPACE: &str = "public/default";
/// Ranges that are listed of one cursor.
const RANGES_MAX: usize = 1_000;
/// Partitions that are asked at once.
pub(super) const PARTITIONS_AT_ONCE: usize = 16;

/// A partition of a subscription.
pub(super) struct Place {
    pub(super) topic: TopicName,
    pub(super) partition: PartitionId,
    /// What the cursor there is called.
    pub(super) cursor: SubscriptionId,
}

impl Front {
    /// Reads the name of a subscription; `topic`: the name that a short one goes by, if there is one.
    pub(super) fn subscription_name(
        &self,
        name: &str,
        topic: Option<&TopicName>,
    ) -> Result<SubscriptionName, Fault> {
        let namespace = topic.map_or(DEFAULT_NAMESPACE, namespace_of);
        SubscriptionName::parse(name, namespace)
    }

    /// Every partition of the subscription's topics, or of this one. Topics that are gone have none.
    pub(super) async fn places(
        &self,
        subscription: &Subscription,
        topic: Option<&Topic>,
    ) -> Result<Vec<Place>, Fault> {
        let mut places = Vec::new();
        if let Some(topic) = topic
            && subscription.topic(topic.id).is_none()
        {
            return Err(not_of_topic(subscription));
        }
        for subscribed in &subscription.topics {
            if topic.is_some_and(|topic| topic.id != subscribed.topic) {
                continue;
            }
            let found = match self.topics.hint_of(subscribed.topic) {
                Some(topic) => topic,
                None => match self.topics.find(subscribed.topic).await {
                    Err(fault) if is_gone(&fault) => continue,
                    found => found?,
                },
            };
            places.extend(found.partition_ids().map(|partition| Place {
                topic: found.name.clone(),
                partition,
                cursor: subscribed.cursor,
            }));
        }
        Ok(places)
    }

    /// A subscription without its cursors.
    pub(super) async fn describe(
        &self,
        subscription: &Subscription,
    ) -> v1::SubscriptionDescription {
        let mut topics = Vec::new();
        for subscribed in &subscription.topics {
            let found = match self.topics.hint_of(subscribed.topic) {
                Some(topic) => Some(topic),
                None => self.topics.find(subscribed.topic).await.ok(),
            };
            topics.extend(found.map(|topic| topic.name.as_str().to_owned()));
        }
        let state = match subscription.deleting {
            true => "deleting",
            false => "active",
        };
        v1::SubscriptionDescription {
            name: subscription.name.as_str().to_owned(),
            subscription_uuid: subscription.id.to_bytes(),
            r#type: subscription.kind.number(),
            policies: Some(v1::SubscriptionPolicies {
                hold: Some(subscription.hold),
                sharing: Some(subscription.sharing.to_wire()),
                ttl_ms: Some(subscription.ttl_ms),
                paused_until_ms: Some(subscription.paused_until),
            }),
            created_at_ms: subscription.created_at,
            state: state.to_owned(),
            topics,
        }
    }

    /// Its cursors. A partition that does not answer has its fault instead.
    pub(super) async fn describe_cursors(
        &self,
        subscription: &Subscription,
        places: Vec<Place>,
        ranges: bool,
    ) -> Vec<v1::CursorDescription> {
        let described = futures::stream::iter(places).map(|place| async move {
            let found = self.describe_cursor(subscription, &place, ranges).await;
            let mut cursor = found.unwrap_or_else(|fault| v1::CursorDescription {
                fault: Some(fault.to_wire()),
                ..Default::default()
            });
            cursor.topic = place.topic.as_str().to_owned();
            cursor.partition = place.partition.index;
            cursor
        });
        described.buffered(PARTITIONS_AT_ONCE).collect().await
    }

    /// The owner of a place, and the cursor there.
    pub(super) async fn cursor_at(
        &self,
        subscription: &Subscription,
        place: &Place,
        ranges_max: usize,
    ) -> Result<(PartitionHandle, CursorView), Fault> {
        let open = self.open(place.partition).await?;
        if !subscription.deleting {
            // A partition that was added later has none before somebody asks.
            self.make_cursor(&open, subscription).await?;
        }
        let views = open.cursors(Some(place.cursor), ranges_max).await?;
        let view = views.into_iter().next().ok_or_else(|| {
            let words = format!("subscription {} has no cursor here", subscription.name);
            Fault::new(Reason::SubscriptionNotFound, words)
        })?;
        Ok((open, view))
    }

    pub(super) async fn describe_cursor_here(
        &self,
        subscription: &Subscription,
        place: &Place,
        ranges: bool,
    ) -> Result<v1::CursorDescription, Fault> {
        let ranges_max = if ranges { RANGES_MAX } else { 0 };
        let (open, view) = self.cursor_at(subscription, place, ranges_max).await?;
        let offsets = open.told_offsets().await?;
        let age = match view.backlog {
            0 => 0,
            _ => self.age(&open, &view).await?,
        };
        let limits = self.topics.hint_of(place.partition.topic);
        let limits = limits.map(|topic| topic.backlog.limits(self.config.backlog));
        let kept = Kept {
            bytes: open.kept_bytes(&view),
            age: Duration::from_millis(age),
        };
        let used = limits.filter(|_| view.hold);
        let active = view.consumers.iter().filter(|consumer| consumer.active);
        let unacked_records = active.map(|active| active.unacked).sum();
        let (parked, delayed) = self.came_back(subscription, &view);
        let most_tried = view.sharing.as_ref().and_then(|stats| stats.most_tried);
        Ok(v1::CursorDescription {
            leader_epoch: open.leader_epoch().0,
            base: view.base.0,
            state_epoch: view.state_epoch,
            log_start: offsets.log_start.0,
            high_watermark: offsets.high_watermark.0,
            backlog_records: view.backlog,
            backlog_bytes: open.backlog_bytes(&view),
            backlog_age_ms: age,
            unacked_records,
            consumers: view.consumers.iter().map(consumer).collect(),
            acked_range_count: view.range_count as u32,
            acked_records: view.acked_records,
            acked: view
                .ranges
                .iter()
                .map(|range| v1::OffsetRange {
                    first: range.first.0,
                    end: range.end.0,
                })
                .collect(),
            blocked: self.held_up(subscription, &view),
            acked_at_ms: view.acked_at,
            backlog_used_percent: used.and_then(|limits| kept.used_percent(&limits)),
            evicted_records: view.evicted,
            delayed_records: delayed,
            dead_records: parked,
            dead_letters: view.letters,
            expired_records: view.expired,
            rates: view.rates.map(rates),
            most_tried: most_tried.map(|(offset, tries)| v1::TriedRecord {
                offset: offset.0,
                tries: tries.into(),
            }),
            ..Default::default()
        })
    }

    /// What holds consumers up now, as the wire names it.
    fn held_up(&self, subscription: &Subscription, view: &CursorView) -> Vec<String> {
        let max = u64::from(self.config.unacked_records_max);
        // Of those that share each has a bound of its own.
        let mut consumers = view.consumers.iter();
        let full = consumers.any(|consumer| consumer.unacked >= max);
        let blocked = [
            (
                subscription.is_paused(self.topics.now_ms()),
                v1::BlockedReason::Paused,
            ),
            (full, v1::BlockedReason::UnackedOfConsumer),
            (view.crowded, v1::BlockedReason::AckRanges),
            (view.acks_wait, v1::BlockedReason::AcksWait),
        ];
        let blocked = blocked.iter().filter(|(is, _)| *is);
        blocked
            .map(|(_, why)| why.as_str_name().to_owned())
            .collect()
    }

    /// QUEUE and KEYED: records that are parked, and records that wait for their time.
    fn came_back(&self, subscription: &Subscription, view: &CursorView) -> (u64, u64) {
        match (&view.sharing, subscription.policy(&self.config)) {
            (Some(stats), _) => (stats.parked, stats.delayed),
            (None, Some(policy)) => {
                policy.count_marked(&view.marks, view.base, self.topics.now_ms())
            }
            (None, None) => (0, 0),
        }
    }

    /// How long ago the oldest record that is not acked was appended, ms.
    async fn age(&self, open: &PartitionHandle, view: &CursorView) -> Result<u64, Fault> {
        let oldest = open.appended_at(view.first_unacked).await?;
        let age = oldest.map_or(0, |oldest| self.topics.now_ms() - oldest);
        Ok(u64::try_from(age).unwrap_or(0))
    }
}

fn rates(rates: Rates) -> v1::CursorRates {
    v1::CursorRates {
        r#in: rates.incoming,
        out: rates.outgoing,
        in_before: rates.before.map(|(incoming, _)| incoming),
        out_before: rates.before.map(|(_, outgoing)| outgoing),
    }
}

fn consumer(view: &ConsumerView) -> v1::ConsumerDescription {
    v1::ConsumerDescription {
        consumer_name: view.name.to_string(),
        client_id: view.client.to_string(),
        priority: view.priority,
        active: view.active,
        attached_at_ms: view.attached_at,
        unacked_records: view.unacked,
        sent_to: view.sent_to.0,
        silent_ms: u64::try_from(view.silent_ms).unwrap_or(0),
        blocked: view.blocked.map_or_else(String::new, |reason| {
            told(reason).0.as_str_name().to_owned()
        }),
    }
}

/// The topic, or the partition, does not exist any more: nor do its cursors.
pub(super) fn is_gone(fault: &Fault) -> bool {
    matches!(
        fault.reason,
        Reason::TopicNotFound | Reason::TopicDeleting | Reason::PartitionNotFound
    )
}
