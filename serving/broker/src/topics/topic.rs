//! A topic as metadata keep it.

use bookie_metadata::{Revision, Versioned};
use bytes::Bytes;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{PartitionId, TopicId, TopicName};
use hulse_proto::ledger::Quorums;
use hulse_proto::limits::TOPIC_PARTITIONS_MAX;
use hulse_proto::time::TimestampMs;
use hulse_proto::wire::metadata;
use prost::Message;

use crate::PartitionPolicy;
use crate::backlogs::{BacklogPolicy, QuotaAction};
use crate::groups::INTERNAL_TENANT;
use crate::partition::Replication;
use crate::retention::{RetentionPolicy, Setting};

/// Every topic's key begins with this.
pub(super) const PREFIX: &str = "topic/";

/// What may be done with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopicState {
    /// Everything.
    Active,
    /// Nothing any more: its data are being removed.
    Deleting,
}

/// What a new topic shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewTopic {
    /// How many partitions; 0 means the default.
    pub partitions: u32,
    /// The owner's clock at the append is every record's timestamp.
    pub log_append_time: bool,
    /// How long its records stay.
    pub retention: RetentionPolicy,
    /// How much its subscriptions may keep.
    pub backlog: BacklogPolicy,
    /// Copies of its records; `None`: as the cell says.
    pub quorums: Option<Quorums>,
}

/// What of a topic can be changed at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicRules {
    /// How long its records stay.
    pub retention: RetentionPolicy,
    /// How much its subscriptions may keep.
    pub backlog: BacklogPolicy,
    /// Copies of the records in ledgers that are made from now on; `None`: as the cell says.
    pub quorums: Option<Quorums>,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: TopicName,
    /// Its identity.
    pub id: TopicId,
    /// How many partitions it has, 1 to [`TOPIC_PARTITIONS_MAX`].
    pub partitions: u32,
    /// Whether it serves.
    pub state: TopicState,
    /// When it was made, ms since 1970.
    pub created_at: TimestampMs,
    /// The owner's clock at the append is every record's timestamp.
    pub log_append_time: bool,
    /// How long its records stay.
    pub retention: RetentionPolicy,
    /// How much its subscriptions may keep.
    pub backlog: BacklogPolicy,
    /// Copies of the records in its new ledgers; `None`: as the cell says.
    pub quorums: Option<Quorums>,
    /// Version of its key when it was read.
    pub(super) version: Revision,
}

/// A page of [`super::Topics::list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPage {
    /// In order of names.
    pub topics: Vec<Topic>,
    /// Give it to the next call; `None`: that was all.
    pub next: Option<String>,
}

/// A topic that no metadata have, for tests of what only reads it.
#[cfg(any(test, feature = "testing"))]
pub fn testing_topic(name: TopicName, id: TopicId, partitions: u32) -> Topic {
    Topic {
        name,
        id,
        partitions,
        state: TopicState::Active,
        created_at: 0,
        log_append_time: false,
        retention: RetentionPolicy::default(),
        backlog: BacklogPolicy::default(),
        quorums: None,
        version: Revision::default(),
    }
}

impl Topic {
    /// The metadata key of this name.
    pub(super) fn key(name: &TopicName) -> String {
        format!("{PREFIX}{name}")
    }

    /// The value of its key.
    pub(super) fn encode(&self) -> Bytes {
        let state = match self.state {
            TopicState::Active => metadata::topic::State::Active,
            TopicState::Deleting => metadata::topic::State::Deleting,
        };
        let value = metadata::Topic {
            topic_uuid: self.id.to_bytes(),
            partitions: self.partitions,
            state: state as i32,
            created_at_ms: self.created_at,
            log_append_time: self.log_append_time,
            retention_ms: self.retention.time.to_wire_ms(),
            retention_bytes: self.retention.bytes.to_wire(),
            backlog_bytes: self.backlog.bytes.to_wire(),
            backlog_ms: self.backlog.time.to_wire_ms(),
            backlog_action: self.backlog.action.map_or(0, QuotaAction::number) as u32,
            ensemble: self.quorums.map_or(0, |quorums| quorums.ensemble),
            write_quorum: self.quorums.map_or(0, |quorums| quorums.write),
            ack_quorum: self.quorums.map_or(0, |quorums| quorums.ack),
        };
        value.encode_to_vec().into()
    }

    /// Reads a key and its value.
    ///
    /// # Errors
    /// `DATA_DAMAGED`: written by nothing we know.
    pub(super) fn decode(stored: &Versioned) -> Result<Self, Fault> {
        let damaged = |why: &str| {
            let words = format!("metadata key {:?} is damaged: {why}", stored.key);
            Fault::new(Reason::DataDamaged, words)
        };
        let name = stored.key.strip_prefix(PREFIX).unwrap_or_default();
        let name: TopicName = name.parse().map_err(|_| damaged("no topic name"))?;
        let value = metadata::Topic::decode(stored.value.clone())
            .map_err(|_| damaged("not a topic record"))?;
        let id = TopicId::from_slice(&value.topic_uuid).ok_or_else(|| damaged("identity"))?;
        if !(1..=TOPIC_PARTITIONS_MAX).contains(&value.partitions) {
            return Err(damaged("number of partitions"));
        }
        let state = match value.state() {
            metadata::topic::State::Active => TopicState::Active,
            metadata::topic::State::Deleting => TopicState::Deleting,
            metadata::topic::State::Unspecified => return Err(damaged("state")),
        };
        let retention = RetentionPolicy {
            time: Setting::from_wire_ms(value.retention_ms).ok_or_else(|| damaged("retention"))?,
            bytes: Setting::<u64>::from_wire(value.retention_bytes)
                .ok_or_else(|| damaged("retention"))?,
        };
        let backlog = backlog_of(&value).ok_or_else(|| damaged("backlog quota"))?;
        let quorums = quorums_of(&value).ok_or_else(|| damaged("quorums"))?;
        Ok(Self {
            name,
            id,
            partitions: value.partitions,
            state,
            created_at: value.created_at_ms,
            log_append_time: value.log_append_time,
            retention,
            backlog,
            quorums,
            version: stored.version,
        })
    }

    /// Its partitions, in order.
    pub fn partition_ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let topic = self.id;
        (0..self.partitions).map(move |index| PartitionId { topic, index })
    }

    /// The cell keeps it for itself: clients neither read nor write it, and lists of all topics leave it out.
    pub fn is_internal(&self) -> bool {
        self.name.tenant() == INTERNAL_TENANT
    }

    /// What of it can be changed.
    pub fn rules(&self) -> TopicRules {
        TopicRules {
            retention: self.retention,
            backlog: self.backlog,
            quorums: self.quorums,
        }
    }

    /// What it says of its partitions.
    pub fn policy(&self) -> PartitionPolicy {
        PartitionPolicy {
            topic: Some(self.name.clone()),
            log_append_time: self.log_append_time,
            replication: Replication {
                quorums: self.quorums,
                as_of: self.version,
            },
        }
    }

    /// Refuses a topic that is being deleted.
    pub(crate) fn serving(self) -> Result<Self, Fault> {
        match self.state {
            TopicState::Active => Ok(self),
            TopicState::Deleting => Err(deleting(&self.name)),
        }
    }
}

/// `None`: written by nothing we know.
fn backlog_of(value: &metadata::Topic) -> Option<BacklogPolicy> {
    let action = i32::try_from(value.backlog_action).ok()?;
    Some(BacklogPolicy {
        bytes: Setting::<u64>::from_wire(value.backlog_bytes)?,
        time: Setting::from_wire_ms(value.backlog_ms)?,
        action: QuotaAction::from_wire(action)?,
    })
}

/// Outer `None`: written by nothing we know.
#[expect(
    clippy::option_option,
    reason = "damaged, or nothing is said, or what is said"
)]
fn quorums_of(value: &metadata::Topic) -> Option<Option<Quorums>> {
    let quorums = Quorums {
        ensemble: value.ensemble,
        write: value.write_quorum,
        ack: value.ack_quorum,
    };
    match quorums {
        Quorums {
            ensemble: 0,
            write: 0,
            ack: 0,
        } => Some(None),
        quorums => quorums.valid().then_some(Some(quorums)),
    }
}

/// "It is being deleted."
pub(super) fn deleting(name: &TopicName) -> Fault {
    let words = format!(
        "topic {name} is being deleted; wait until it is gone, then the name may be used again"
    );
    Fault::new(Reason::TopicDeleting, words).with("topic", name)
}

/// "There is no such name."
pub(super) fn not_found(name: &TopicName) -> Fault {
    let words = format!("topic {name} does not exist; create it or check the name");
    Fault::new(Reason::TopicNotFound, words).with("topic", name)
}

/// "There is no such identity."
pub(super) fn id_not_found(id: TopicId) -> Fault {
    let words = format!(
        "no topic has the identity {id}; it was deleted (and perhaps made again): resolve its name"
    );
    Fault::new(Reason::TopicNotFound, words).with("topic_uuid", id)
}
