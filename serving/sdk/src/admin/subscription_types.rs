//! What administration of subscriptions asks and answers.

use super::sharing::Sharing;
use std::ops::Range;
use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::id::Offset;
use hulse_proto::wire::v1;
use uuid::Uuid;

use crate::consumer::SubscriptionType;
use crate::error::Error;
use crate::reader::Start;

/// A subscription to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSubscription {
    /// `[tenant/namespace/]name`; a short name is of the topic's namespace.
    pub name: String,
    /// Of the same namespace.
    pub topic: String,
    /// How consumers share it.
    pub kind: SubscriptionType,
    /// Where it begins. Nothing is moved on a topic that it has already.
    pub start: Start,
    /// Whether records are kept until they are acknowledged, whatever retention says. `None`: they are, and of one that is there already
    /// it stays as it is. One that is there and does otherwise than is said here is not changed, and that is refused.
    pub hold: Option<bool>,
    /// QUEUE and KEYED, of one that is made: how records are shared out. `None`: as [`Sharing::default`].
    pub sharing: Option<Sharing>,
    /// Of one that is made: records that were appended longer ago count as processed. `None`: none does.
    pub ttl: Option<Duration>,
}

/// What of a subscription is changed; `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionChange {
    /// Whether records are kept until they are acknowledged, whatever retention says.
    pub hold: Option<bool>,
    /// Records that were appended longer ago count as processed; zero: none does.
    pub ttl: Option<Duration>,
    /// QUEUE and KEYED: nothing is delivered before, ms since 1970; [`i64::MAX`]: until somebody says otherwise; a time that is past: it
    /// goes on. What consumers hold comes back, and that counts for nothing.
    pub paused_until_ms: Option<i64>,
}

impl NewSubscription {
    /// An EXCLUSIVE one that begins at the end and holds.
    pub fn new(name: impl Into<String>, topic: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            topic: topic.into(),
            kind: SubscriptionType::Exclusive,
            start: Start::Latest,
            hold: None,
            sharing: None,
            ttl: None,
        }
    }
}

/// Which cursors of a subscription are meant: by default all.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it only names cursors"]
pub struct CursorSelection {
    pub(super) subscription: String,
    pub(super) topic: String,
    pub(super) partition: Option<u32>,
}

impl CursorSelection {
    /// Those of `subscription`: `[tenant/namespace/]name`; a short name is of the topic's namespace, or of public/default.
    pub fn new(subscription: impl Into<String>) -> Self {
        Self {
            subscription: subscription.into(),
            topic: String::new(),
            partition: None,
        }
    }

    /// Only those of this topic.
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = topic.into();
        self
    }

    /// Only that of this partition.
    pub fn partition(mut self, partition: u32) -> Self {
        self.partition = Some(partition);
        self
    }
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subscription {
    /// `tenant/namespace/name`.
    pub name: String,
    /// Its identity: one that is made anew has another one.
    pub id: Uuid,
    /// How consumers share it.
    pub kind: SubscriptionType,
    /// Whether records are kept until they are acknowledged.
    pub hold: bool,
    /// ms since 1970.
    pub created_at_ms: i64,
    /// `active` or `deleting`.
    pub state: String,
    /// Full names.
    pub topics: Vec<String>,
    /// QUEUE and KEYED: how records are shared out.
    pub sharing: Sharing,
    /// Records that were appended longer ago count as processed. `None`: none does.
    pub ttl: Option<Duration>,
    /// Nothing is delivered before, ms since 1970; 0: nobody ever paused it.
    pub paused_until_ms: i64,
}

/// The cursor of a subscription in one partition.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Cursor {
    /// Full name.
    pub topic: String,
    /// Index.
    pub partition: u32,
    /// What its owner says, or why it does not answer.
    pub state: Result<CursorState, Fault>,
}

/// A cursor as the partition's owner sees it.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct CursorState {
    /// Of the owner.
    pub leader_epoch: u32,
    /// Everything below is processed.
    pub base: Offset,
    /// Grows with every seek, skip and clear.
    pub state_epoch: u32,
    /// Oldest offset of the partition.
    pub log_start: Offset,
    /// Offset that comes next.
    pub high_watermark: Offset,
    /// Records that are not acknowledged.
    pub backlog_records: u64,
    /// Their bytes, about.
    pub backlog_bytes: u64,
    /// How long ago the oldest of them was appended, ms; 0: no backlog.
    pub backlog_age_ms: u64,
    /// Delivered to the active consumer, or to all that share, and not acknowledged.
    pub unacked_records: u64,
    /// Who is attached.
    pub consumers: Vec<AttachedConsumer>,
    /// Ranges acknowledged above the base.
    pub acked_range_count: u32,
    /// Records in them.
    pub acked_records: u64,
    /// The ranges, where they were asked for.
    pub acked: Vec<Range<u64>>,
    /// What holds consumers up now: names as brokers have them.
    pub blocked: Vec<String>,
    /// The owner's clock at the last acknowledgement or seek, ms since 1970; 0: none yet.
    pub acked_at_ms: i64,
    /// Of the topic's backlog quota; above 100: over it. `None`: there is none for it.
    pub backlog_used_percent: Option<u32>,
    /// Records that it has lost to the quota since it was made on the partition.
    pub evicted_records: u64,
    /// QUEUE and KEYED: records that wait for their time.
    pub delayed_records: u64,
    /// QUEUE and KEYED: records that failed too often and stay where they are.
    pub dead_records: u64,
    /// QUEUE and KEYED: records that went to the dead-letter topic since the last seek.
    pub dead_letters: u64,
    /// Records that lived longer than they may, since the owner opened the partition.
    pub expired_records: u64,
    /// How fast it goes. `None`: it has not been watched for long enough.
    pub rates: Option<CursorRates>,
    /// QUEUE and KEYED: the record that was tried most often and is not processed, and how often: three times at least.
    pub most_tried: Option<(Offset, u32)>,
}

/// Records per second of a cursor, in the last seconds and in the minutes before.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct CursorRates {
    /// Appended to the partition.
    pub incoming: f64,
    /// Left the backlog.
    pub outgoing: f64,
    /// Both in the time before. `None`: it is too short.
    pub before: Option<(f64, f64)>,
}

impl CursorRates {
    fn from_wire(wire: v1::CursorRates) -> Self {
        Self {
            incoming: wire.r#in,
            outgoing: wire.out,
            before: wire.in_before.zip(wire.out_before),
        }
    }
}

/// A consumer that is attached to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachedConsumer {
    /// Its name.
    pub name: String,
    /// Its client's.
    pub client_id: String,
    /// FAILOVER: the highest comes first.
    pub priority: i32,
    /// It gets the records.
    pub active: bool,
    /// ms since 1970.
    pub attached_at_ms: i64,
    /// Delivered to it and not acknowledged.
    pub unacked_records: u64,
    /// It was sent records below this offset.
    pub sent_to: Offset,
    /// QUEUE and KEYED: it has held records for so long without an answer to any, ms; 0: it holds none.
    pub silent_ms: u64,
    /// QUEUE and KEYED: what holds it up now, as brokers name it; empty: nothing.
    pub blocked: String,
}

/// A cursor that was moved, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovedCursor {
    /// Full name.
    pub topic: String,
    /// Index.
    pub partition: u32,
    /// Why it was not moved.
    pub fault: Option<Fault>,
    /// Its base before.
    pub old_base: Offset,
    /// Its base now, or then.
    pub new_base: Offset,
    /// Records that were not acknowledged before.
    pub old_backlog_records: u64,
    /// Records that are not acknowledged now, or then.
    pub new_backlog_records: u64,
    /// Of a redrive: records that are tried anew, or would be.
    pub redriven_records: u64,
}

impl Subscription {
    pub(super) fn from_wire(wire: Option<v1::SubscriptionDescription>) -> Result<Self, Error> {
        let wire = wire.ok_or_else(|| Error::wrong_answer("no subscription"))?;
        let id = Uuid::from_slice(&wire.subscription_uuid);
        let kind = SubscriptionType::from_wire(wire.r#type());
        let policies = wire.policies.unwrap_or_default();
        Ok(Self {
            id: id.map_err(|_| Error::wrong_answer("a subscription without identity"))?,
            kind: kind.ok_or_else(|| Error::wrong_answer("a subscription of an unknown type"))?,
            hold: policies.hold.unwrap_or(true),
            sharing: Sharing::from_wire(&policies.sharing.unwrap_or_default()),
            ttl: policies
                .ttl_ms
                .filter(|ms| *ms > 0)
                .map(Duration::from_millis),
            paused_until_ms: policies.paused_until_ms.unwrap_or(0),
            name: wire.name,
            created_at_ms: wire.created_at_ms,
            state: wire.state,
            topics: wire.topics,
        })
    }
}

impl Cursor {
    pub(super) fn from_wire(wire: v1::CursorDescription) -> Self {
        let state = match wire.fault {
            Some(fault) => Err(Fault::from_wire(fault)),
            None => Ok(CursorState {
                leader_epoch: wire.leader_epoch,
                base: Offset(wire.base),
                state_epoch: wire.state_epoch,
                log_start: Offset(wire.log_start),
                high_watermark: Offset(wire.high_watermark),
                backlog_records: wire.backlog_records,
                backlog_bytes: wire.backlog_bytes,
                backlog_age_ms: wire.backlog_age_ms,
                unacked_records: wire.unacked_records,
                consumers: wire
                    .consumers
                    .into_iter()
                    .map(AttachedConsumer::from_wire)
                    .collect(),
                acked_range_count: wire.acked_range_count,
                acked_records: wire.acked_records,
                acked: wire
                    .acked
                    .into_iter()
                    .map(|range| range.first..range.end)
                    .collect(),
                blocked: wire.blocked,
                acked_at_ms: wire.acked_at_ms,
                backlog_used_percent: wire.backlog_used_percent,
                evicted_records: wire.evicted_records,
                delayed_records: wire.delayed_records,
                dead_records: wire.dead_records,
                dead_letters: wire.dead_letters,
                expired_records: wire.expired_records,
                rates: wire.rates.map(CursorRates::from_wire),
                most_tried: wire
                    .most_tried
                    .map(|tried| (Offset(tried.offset), tried.tries)),
            }),
        };
        Self {
            topic: wire.topic,
            partition: wire.partition,
            state,
        }
    }
}

impl AttachedConsumer {
    fn from_wire(wire: v1::ConsumerDescription) -> Self {
        Self {
            name: wire.consumer_name,
            client_id: wire.client_id,
            priority: wire.priority,
            active: wire.active,
            attached_at_ms: wire.attached_at_ms,
            unacked_records: wire.unacked_records,
            sent_to: Offset(wire.sent_to),
            silent_ms: wire.silent_ms,
            blocked: wire.blocked,
        }
    }
}

impl MovedCursor {
    pub(super) fn from_wire(wire: v1::MovedCursor) -> Self {
        Self {
            topic: wire.topic,
            partition: wire.partition,
            fault: wire.fault.map(Fault::from_wire),
            old_base: Offset(wire.old_base),
            new_base: Offset(wire.new_base),
            old_backlog_records: wire.old_backlog_records,
            new_backlog_records: wire.new_backlog_records,
            redriven_records: wire.redriven_records,
        }
    }
}
