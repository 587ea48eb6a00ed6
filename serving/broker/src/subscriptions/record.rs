//! A subscription as metadata keep it.

use bookie_metadata::{Revision, Versioned};
use bytes::Bytes;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, SubscriptionId, TopicId};
use hulse_proto::time::TimestampMs;
use hulse_proto::wire::{metadata, v1};
use prost::Message;
use serving_dispatch::Policy;

use super::name::SubscriptionName;
use super::sharing::Sharing;
use crate::{BrokerConfig, SharePlan};

/// Every subscription's key begins with this.
pub(super) const PREFIX: &str = "subscription/";

/// How records are given to consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionKind {
    /// One consumer per partition.
    Exclusive,
    /// One active consumer per partition; others stand by.
    Failover,
    /// Records are shared by all consumers.
    Queue,
    /// Likewise, those of one key by one consumer at a time.
    Keyed,
    /// Members of a group share the partitions; members and offsets are in its coordinator (ARCHITECTURE D8), and the record has no topics.
    Stream,
}

impl SubscriptionKind {
    fn wire(self) -> v1::SubscriptionType {
        match self {
            Self::Exclusive => v1::SubscriptionType::Exclusive,
            Self::Failover => v1::SubscriptionType::Failover,
            Self::Queue => v1::SubscriptionType::Queue,
            Self::Keyed => v1::SubscriptionType::Keyed,
            Self::Stream => v1::SubscriptionType::Stream,
        }
    }

    /// Its number on the wire and in metadata.
    pub fn number(self) -> i32 {
        self.wire() as i32
    }

    /// Reads the number of the wire.
    ///
    /// # Errors
    /// `UNSUPPORTED_TYPE` for one that this build does not serve, `INVALID_REQUEST` for none.
    pub fn from_wire(number: i32) -> Result<Self, Fault> {
        match v1::SubscriptionType::try_from(number) {
            Ok(v1::SubscriptionType::Exclusive) => Ok(Self::Exclusive),
            Ok(v1::SubscriptionType::Failover) => Ok(Self::Failover),
            Ok(v1::SubscriptionType::Queue) => Ok(Self::Queue),
            Ok(v1::SubscriptionType::Keyed) => Ok(Self::Keyed),
            Ok(v1::SubscriptionType::Stream) => Ok(Self::Stream),
            Ok(v1::SubscriptionType::Unspecified) => {
                let words =
                    "no subscription type is given; say exclusive, failover, queue or keyed";
                Err(Fault::new(Reason::InvalidRequest, words))
            }
            _ => {
                let words = format!(
                    "subscriptions of type {number} are not served by this build; use exclusive, failover, queue or keyed"
                );
                Err(Fault::new(Reason::UnsupportedType, words))
            }
        }
    }

    /// A type whose cursors the owners of partitions keep.
    ///
    /// # Errors
    /// `UNSUPPORTED_TYPE`: a group, which has none.
    pub(crate) fn with_cursors(self) -> Result<Self, Fault> {
        match self {
            Self::Stream => {
                let words = "a stream subscription is a group: its members join it (service StreamGroups, or the Kafka wire), and the first one makes it";
                Err(Fault::new(Reason::UnsupportedType, words))
            }
            kind => Ok(kind),
        }
    }

    /// Its consumers share the records of a partition.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Self::Queue | Self::Keyed)
    }

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Failover => "failover",
            Self::Queue => "queue",
            Self::Keyed => "keyed",
            Self::Stream => "stream",
        }
    }
}

/// Where a subscription begins on a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPoint {
    /// Nothing was said: behind the newest record; at the oldest of a topic that was made after the subscription, as all of it came
    /// while there was somebody to consume it. So a topic that is deleted and made again loses nothing.
    Unsaid,
    /// At the oldest record that is kept.
    Earliest,
    /// Behind the newest record.
    Latest,
    /// Here.
    Offset(Offset),
    /// At the first record that is not older.
    Time(TimestampMs),
}

impl StartPoint {
    /// Reads the wire; nothing: `Unsaid`.
    ///
    /// # Errors
    /// `INVALID_REQUEST`: a place that says nothing.
    pub fn from_wire(wire: Option<&v1::StartAt>) -> Result<Self, Fault> {
        let Some(wire) = wire else {
            return Ok(Self::Unsaid);
        };
        match wire.at {
            Some(v1::start_at::At::Earliest(true)) => Ok(Self::Earliest),
            Some(v1::start_at::At::Latest(true)) => Ok(Self::Latest),
            Some(v1::start_at::At::Offset(offset)) => Ok(Self::Offset(Offset(offset))),
            Some(v1::start_at::At::TimeMs(time)) => Ok(Self::Time(time)),
            _ => {
                let words = "the place names neither earliest, latest, an offset nor a time";
                Err(Fault::new(Reason::InvalidRequest, words))
            }
        }
    }
}

/// A topic of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscribedTopic {
    /// Which.
    pub topic: TopicId,
    /// Partitions when it was added: those begin at `start`, later ones at earliest (serving.md B2.12).
    pub partitions: u32,
    /// Where.
    pub start: StartPoint,
    /// Its cursors are being removed.
    pub deleting: bool,
    /// Names its cursors. A topic that left and came again has others, so that a request which began before does not touch them.
    pub cursor: SubscriptionId,
}

impl SubscribedTopic {
    /// Where the subscription begins on a partition.
    pub fn start_of(&self, partition: u32) -> StartPoint {
        match partition < self.partitions {
            true => self.start,
            false => StartPoint::Earliest,
        }
    }
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Its name.
    pub name: SubscriptionName,
    /// Its identity.
    pub id: SubscriptionId,
    /// How records are given to consumers.
    pub kind: SubscriptionKind,
    /// Records that are not processed are kept.
    pub hold: bool,
    /// QUEUE and KEYED.
    pub sharing: Sharing,
    /// Records that were appended longer ago count as processed, ms; 0: none does.
    pub ttl_ms: u64,
    /// QUEUE and KEYED: nothing is delivered before.
    pub paused_until: TimestampMs,
    /// Its cursors are being removed, and then it.
    pub deleting: bool,
    /// When it was made, ms since 1970.
    pub created_at: TimestampMs,
    /// Its topics.
    pub topics: Vec<SubscribedTopic>,
    pub(super) version: Revision,
}

/// A page of [`super::Subscriptions::list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionPage {
    /// In order of names.
    pub subscriptions: Vec<Subscription>,
    /// Give it to the next call; `None`: that was all.
    pub next: Option<String>,
}

impl Subscription {
    /// Consumers share its records: how; `None`: one consumer gets all of a partition.
    pub(crate) fn policy(&self, config: &BrokerConfig) -> Option<Policy> {
        match self.kind {
            SubscriptionKind::Exclusive | SubscriptionKind::Failover | SubscriptionKind::Stream => {
                None
            }
            SubscriptionKind::Queue => Some(self.sharing.policy(false, config)),
            SubscriptionKind::Keyed => Some(self.sharing.policy(true, config)),
        }
    }

    /// How the records of one of its cursors are shared; `None`: they are not.
    pub(crate) fn plan(&self, cursor: SubscriptionId, config: &BrokerConfig) -> Option<SharePlan> {
        Some(SharePlan {
            subscription: cursor,
            policy: self.policy(config)?,
            dead_letters: self.sharing.dead_letters(),
            paused_until: self.paused_until,
        })
    }

    /// Somebody paused it, and its time has not come.
    pub(crate) fn is_paused(&self, now: TimestampMs) -> bool {
        self.kind.is_shared() && self.paused_until > now
    }

    /// Its part for this topic.
    pub fn topic(&self, topic: TopicId) -> Option<&SubscribedTopic> {
        self.topics.iter().find(|known| known.topic == topic)
    }

    /// What its cursors on this topic are called; `None`: it does not have the topic.
    pub(crate) fn cursor(&self, topic: TopicId) -> Option<SubscriptionId> {
        self.topic(topic).map(|known| known.cursor)
    }

    /// Whether its cursors of this name are to be there.
    pub(crate) fn wants(&self, topic: TopicId, cursor: SubscriptionId) -> bool {
        let known = self.topic(topic);
        !self.deleting && known.is_some_and(|known| !known.deleting && known.cursor == cursor)
    }

    pub(super) fn key(name: &SubscriptionName) -> String {
        format!("{PREFIX}{name}")
    }

    pub(super) fn encode(&self) -> Bytes {
        use metadata::subscribed_topic::Start;
        use metadata::subscription::State;
        let state = match self.deleting {
            true => State::Deleting,
            false => State::Active,
        };
        let topics = self.topics.iter().map(|topic| metadata::SubscribedTopic {
            topic_uuid: topic.topic.to_bytes(),
            partitions: topic.partitions,
            deleting: topic.deleting,
            cursor_uuid: match topic.cursor == self.id {
                true => Bytes::new(),
                false => topic.cursor.to_bytes(),
            },
            start: Some(match topic.start {
                StartPoint::Earliest => Start::Earliest(true),
                StartPoint::Unsaid | StartPoint::Latest => Start::Latest(true),
                StartPoint::Offset(offset) => Start::Offset(offset.0),
                StartPoint::Time(time) => Start::TimeMs(time),
            }),
        });
        let value = metadata::Subscription {
            subscription_uuid: self.id.to_bytes(),
            r#type: self.kind.number() as u32,
            hold: self.hold,
            state: state as i32,
            created_at_ms: self.created_at,
            topics: topics.collect(),
            sharing: match self.sharing == Sharing::default() {
                true => Bytes::new(),
                false => self.sharing.to_wire().encode_to_vec().into(),
            },
            ttl_ms: self.ttl_ms,
            paused_until_ms: self.paused_until,
        };
        value.encode_to_vec().into()
    }

    pub(super) fn decode(stored: &Versioned) -> Result<Self, Fault> {
        use metadata::subscription::State;
        let damaged = |why: &str| {
            let words = format!("metadata key {:?} is damaged: {why}", stored.key);
            Fault::new(Reason::DataDamaged, words)
        };
        let name = stored.key.strip_prefix(PREFIX).unwrap_or_default();
        let name = SubscriptionName::parse(name, "").map_err(|_| damaged("no name"))?;
        let value = metadata::Subscription::decode(stored.value.clone())
            .map_err(|_| damaged("not a subscription record"))?;
        let id = SubscriptionId::from_slice(&value.subscription_uuid);
        let kind = SubscriptionKind::from_wire(value.r#type as i32);
        let deleting = match value.state() {
            State::Active => false,
            State::Deleting => true,
            State::Unspecified => return Err(damaged("state")),
        };
        let id = id.ok_or_else(|| damaged("identity"))?;
        let sharing = v1::SharingPolicies::decode(value.sharing.clone())
            .map_err(|_| damaged("how records are shared"))?;
        let sharing = Sharing::from_wire(Some(&sharing));
        let topics = value.topics.iter().map(|topic| topic_of(topic, id));
        let topics: Option<Vec<_>> = topics.collect();
        Ok(Self {
            name,
            id,
            kind: kind.map_err(|_| damaged("type"))?,
            hold: value.hold,
            sharing: sharing.map_err(|_| damaged("how records are shared"))?,
            ttl_ms: value.ttl_ms,
            paused_until: value.paused_until_ms,
            deleting,
            created_at: value.created_at_ms,
            topics: topics.ok_or_else(|| damaged("a topic"))?,
            version: stored.version,
        })
    }
}

fn topic_of(
    wire: &metadata::SubscribedTopic,
    subscription: SubscriptionId,
) -> Option<SubscribedTopic> {
    use metadata::subscribed_topic::Start;
    Some(SubscribedTopic {
        topic: TopicId::from_slice(&wire.topic_uuid)?,
        partitions: wire.partitions,
        start: match wire.start? {
            Start::Earliest(_) => StartPoint::Earliest,
            Start::Latest(_) => StartPoint::Latest,
            Start::Offset(offset) => StartPoint::Offset(Offset(offset)),
            Start::TimeMs(time) => StartPoint::Time(time),
        },
        deleting: wire.deleting,
        cursor: match wire.cursor_uuid.is_empty() {
            true => subscription,
            false => SubscriptionId::from_slice(&wire.cursor_uuid)?,
        },
    })
}
