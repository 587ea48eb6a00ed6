//! How long records stay, and trims.

use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;
use hulse_proto::wire::v1::admin_client::AdminClient;
use hulse_proto::wire::v1::{self, trim_point};
use tonic::transport::Channel;

use super::backlog::{BacklogAction, BacklogQuota};
use super::copies::Replication;
use super::handle::Admin;
use super::types::Topic;
use crate::error::Error;

/// On the wire: without limit.
const UNLIMITED: i64 = -1;
/// On the wire, of an update: as the cluster says.
const INHERITED: i64 = -2;

/// How much of something stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep<T> {
    /// As the cluster says.
    #[default]
    Default,
    /// All of it, for ever.
    All,
    /// So much.
    UpTo(T),
}

/// How long the records of a topic stay: until one of the two lets them go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// After their append; whole milliseconds.
    pub time: Keep<Duration>,
    /// Bytes of each partition.
    pub bytes: Keep<u64>,
}

/// What a new topic shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewTopic {
    /// How many partitions; 0: the cluster's default.
    pub partitions: u32,
    /// How long its records stay.
    pub retention: Retention,
    /// How much its subscriptions may keep.
    pub backlog_quota: BacklogQuota,
    /// How many copies its records have; `None`: as the cell says.
    pub replication: Option<Replication>,
}

/// What of a topic is changed; `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopicChange {
    /// How long records stay after their append.
    pub retention_time: Option<Keep<Duration>>,
    /// Bytes that stay in each partition.
    pub retention_bytes: Option<Keep<u64>>,
    /// Bytes that a subscription may keep of each partition.
    pub backlog_bytes: Option<Keep<u64>>,
    /// How long it may keep a record.
    pub backlog_time: Option<Keep<Duration>>,
    /// What happens to one that keeps more; `Some(None)`: as the cluster says.
    pub backlog_action: Option<Option<BacklogAction>>,
    /// How many copies records have in ledgers that are made from then on; `Some(None)`: as the cell says.
    pub replication: Option<Option<Replication>>,
}

/// What a topic's rules would let go of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpdateEffect {
    /// Its index.
    pub partition: u32,
    /// Why it cannot be told.
    pub fault: Option<Fault>,
    /// By retention, at once or soon.
    pub removed_records: u64,
    /// Their bytes, about.
    pub removed_bytes: u64,
    /// Full names of subscriptions, and how many records each loses that it has not acknowledged; of very many those that lose most.
    pub losses: Vec<(String, u64)>,
    /// Subscriptions that are not in `losses`, and records that they lose together.
    pub unlisted: (u64, u64),
}

impl UpdateEffect {
    fn from_wire(wire: v1::UpdateEffect) -> Self {
        let losses = wire.loss.into_iter();
        Self {
            partition: wire.partition,
            fault: wire.fault.map(Fault::from_wire),
            removed_records: wire.removed_records,
            removed_bytes: wire.removed_bytes,
            losses: losses
                .map(|loss| (loss.subscription, loss.records))
                .collect(),
            unlisted: (wire.unlisted, wire.unlisted_records),
        }
    }
}

/// Up to where a log is trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimTo {
    /// Everything that is there.
    End,
    /// The first record that stays.
    Offset(Offset),
    /// The first record that is not older than this (ms since 1970) stays.
    Time(TimestampMs),
}

/// What became of a trim of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trimmed {
    /// Its index.
    pub partition: u32,
    /// Where its log begins now, durably; or why it was not trimmed.
    pub log_start: Result<Offset, Fault>,
}

impl Keep<u64> {
    pub(super) fn from_wire(wire: Option<i64>) -> Self {
        wire.map_or(Self::Default, |value| {
            u64::try_from(value).map_or(Self::All, Self::UpTo)
        })
    }

    pub(super) fn to_wire(self) -> i64 {
        match self {
            Self::Default => INHERITED,
            Self::All => UNLIMITED,
            Self::UpTo(value) => i64::try_from(value).unwrap_or(i64::MAX),
        }
    }
}

pub(super) fn time_from_wire(wire: Option<i64>) -> Keep<Duration> {
    match Keep::from_wire(wire) {
        Keep::Default => Keep::Default,
        Keep::All => Keep::All,
        Keep::UpTo(ms) => Keep::UpTo(Duration::from_millis(ms)),
    }
}

pub(super) fn time_to_wire(time: Keep<Duration>) -> i64 {
    let ms = match time {
        Keep::Default => Keep::Default,
        Keep::All => Keep::All,
        Keep::UpTo(time) => Keep::UpTo(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    };
    ms.to_wire()
}

/// Of a new topic: what the cluster says is left out.
pub(super) fn said(value: i64) -> Option<i64> {
    (value != INHERITED).then_some(value)
}

impl Retention {
    pub(super) fn from_wire(wire: Option<v1::Retention>) -> Self {
        let wire = wire.unwrap_or_default();
        Self {
            time: time_from_wire(wire.time_ms),
            bytes: Keep::from_wire(wire.bytes),
        }
    }

    fn to_wire(self) -> v1::Retention {
        v1::Retention {
            time_ms: said(time_to_wire(self.time)),
            bytes: said(self.bytes.to_wire()),
        }
    }
}

impl Admin {
    /// As [`Admin::create_topic`], with more to say.
    ///
    /// # Errors
    /// As [`Admin::create_topic`].
    pub async fn create_topic_with(&self, name: &str, new: NewTopic) -> Result<Topic, Error> {
        let request = v1::CreateTopicRequest {
            name: name.to_owned(),
            partitions: new.partitions,
            retention: Some(new.retention.to_wire()),
            backlog_quota: Some(new.backlog_quota.to_wire()),
            replication: new.replication.map(Replication::to_wire),
        };
        let answer = self.change(request, |mut admin, request| async move {
            admin.create_topic(request).await
        });
        Topic::from_wire(answer.await?.topic)
    }

    /// Changes how long the records of a topic stay, and how much its subscriptions may keep; brokers go by it within their next
    /// round of retention, or look at backlogs. Of copies a change holds for ledgers that are made from then on: open ones are rolled.
    ///
    /// # Errors
    /// TOPIC_NOT_FOUND, …; or the outcome is unknown.
    pub async fn update_topic(&self, name: &str, change: TopicChange) -> Result<Topic, Error> {
        let answer = self.update(name, change, false);
        Topic::from_wire(answer.await?.topic)
    }

    /// What a change would let go, partition by partition, as they are now; nothing is changed. Empty where no rule lets anything go.
    ///
    /// # Errors
    /// As of [`Admin::update_topic`]. A partition that cannot be looked at says so in its part.
    pub async fn update_effect(
        &self,
        name: &str,
        change: TopicChange,
    ) -> Result<Vec<UpdateEffect>, Error> {
        let answer = self.update(name, change, true).await?;
        Ok(answer
            .effect
            .into_iter()
            .map(UpdateEffect::from_wire)
            .collect())
    }

    async fn update(
        &self,
        name: &str,
        change: TopicChange,
        dry_run: bool,
    ) -> Result<v1::UpdateTopicResponse, Error> {
        let request = v1::UpdateTopicRequest {
            name: name.to_owned(),
            retention_ms: change.retention_time.map(time_to_wire),
            retention_bytes: change.retention_bytes.map(Keep::to_wire),
            backlog_bytes: change.backlog_bytes.map(Keep::to_wire),
            backlog_ms: change.backlog_time.map(time_to_wire),
            backlog_action: change.backlog_action.map(BacklogAction::change_to_wire),
            dry_run,
            replication: change.replication.flatten().map(Replication::to_wire),
            inherit_replication: change.replication == Some(None),
        };
        let call = |mut admin: AdminClient<Channel>, request| async move {
            admin.update_topic(request).await
        };
        match dry_run {
            true => self.ask(request, call).await,
            // Said twice it means the same.
            false => self.change_again(request, call).await,
        }
    }

    /// Moves where the logs of partitions begin. What lies below is not served any more; storage comes back behind it. Each partition
    /// has an answer of its own, in the order in which they were named.
    ///
    /// # Errors
    /// TOPIC_NOT_FOUND, INVALID_REQUEST, or why it could not be asked: some may have been trimmed.
    pub async fn trim(&self, topic: &str, points: &[(u32, TrimTo)]) -> Result<Vec<Trimmed>, Error> {
        let points = points.iter().map(|(index, to)| v1::TrimPoint {
            index: *index,
            to: match to {
                TrimTo::End => None,
                TrimTo::Offset(offset) => Some(trim_point::To::Offset(offset.0)),
                TrimTo::Time(time) => Some(trim_point::To::TimeMs(*time)),
            },
        });
        let request = v1::TrimTopicRequest {
            name: topic.to_owned(),
            partition: points.collect(),
        };
        let answer = self.change(request, |mut admin, request| async move {
            admin.trim_topic(request).await
        });
        let trimmed = answer.await?.partition.into_iter().map(|one| Trimmed {
            partition: one.index,
            log_start: match (one.log_start, one.fault) {
                (Some(offset), None) => Ok(Offset(offset)),
                (_, Some(fault)) => Err(Fault::from_wire(fault)),
                (None, None) => Err(Fault::new(
                    hulse_proto::error::Reason::Internal,
                    "the server tells nothing of this partition",
                )),
            },
        });
        Ok(trimmed.collect())
    }
}
