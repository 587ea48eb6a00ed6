//! What administration answers.

use hulse_proto::error::Fault;
use hulse_proto::id::{LedgerId, Offset, TopicId};
use hulse_proto::wire::v1;

use super::backlog::{BacklogQuota, KeptBacklog};
use super::copies::{Replication, TopicCopies};
use super::damage::DamagedRecords;
use super::retention::Retention;
use crate::error::Error;

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topic {
    /// `tenant/namespace/topic`.
    pub name: String,
    /// Its identity: a topic that is made anew has another one.
    pub id: TopicId,
    /// How many partitions.
    pub partitions: u32,
    /// ms since 1970.
    pub created_at_ms: i64,
    /// `active` or `deleting`.
    pub state: String,
    /// By index; empty in lists.
    pub partition: Vec<Partition>,
    /// How long its records stay, as it says itself.
    pub retention: Retention,
    /// The same with what the cluster says where the topic says nothing.
    pub effective_retention: Retention,
    /// How much its subscriptions may keep, as it says itself.
    pub backlog_quota: BacklogQuota,
    /// The same with what the cluster says where the topic says nothing.
    pub effective_backlog_quota: BacklogQuota,
    /// How many copies its records have, as it says itself.
    pub replication: Option<Replication>,
    /// What its new ledgers get: everything is said.
    pub effective_replication: Replication,
    /// How its ledgers are; known where one topic was asked for.
    pub copies: Option<TopicCopies>,
    /// While the answering broker deletes it: partitions whose data are not gone yet.
    pub partitions_left: Option<u32>,
}

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partition {
    /// From 0.
    pub index: u32,
    /// `host:port` of the broker that serves it.
    pub owner: Option<String>,
    /// 0: not opened yet.
    pub leader_epoch: u32,
    /// Oldest offset; known where the answering broker has it open, as are the next two.
    pub log_start: Option<Offset>,
    /// Offset that comes next.
    pub high_watermark: Option<Offset>,
    /// Stored bytes.
    pub stored_bytes: Option<u64>,
    /// Why it does not serve.
    pub fault: Option<Fault>,
    /// Where there is a quota: the subscription that is nearest to it, or most over it.
    pub backlog: Option<KeptBacklog>,
    /// Records that are known to be damaged.
    pub damage: Vec<DamagedRecords>,
}

/// A ledger of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ledger {
    /// Its number, never given twice.
    pub id: LedgerId,
    /// Full name.
    pub topic: String,
    /// Index.
    pub partition: u32,
    /// `log` or `state`.
    pub kind: String,
    /// `open`, `in_recovery`, `closed` or `deleting`.
    pub state: String,
    /// Of its first record.
    pub base_offset: Offset,
    /// Exclusive; known when closed, as are the next two.
    pub end_entry: Option<u64>,
    /// Records.
    pub record_count: Option<u64>,
    /// Stored bytes.
    pub bytes: Option<u64>,
    /// Names of the bookies that store it.
    pub bookies: Vec<String>,
    /// Set when something was lost: `tail_lost`, `accepted`, ….
    pub loss: Option<String>,
    /// Entries that its writer could not store everywhere, as far as they are not repaired, and on whom they are missing.
    pub lacking: Vec<(std::ops::Range<u64>, Vec<String>)>,
}

impl Topic {
    pub(super) fn from_wire(wire: Option<v1::TopicDescription>) -> Result<Self, Error> {
        let wire = wire.ok_or_else(|| Error::wrong_answer("no topic"))?;
        let id = TopicId::from_slice(&wire.topic_uuid);
        Ok(Self {
            id: id.ok_or_else(|| Error::wrong_answer("a topic without identity"))?,
            name: wire.name,
            partitions: wire.partitions,
            created_at_ms: wire.created_at_ms,
            state: wire.state,
            retention: Retention::from_wire(wire.retention),
            effective_retention: Retention::from_wire(wire.effective_retention),
            backlog_quota: BacklogQuota::from_wire(wire.backlog_quota),
            effective_backlog_quota: BacklogQuota::from_wire(wire.effective_backlog_quota),
            replication: wire.replication.map(Replication::from_wire),
            effective_replication: Replication::from_wire(
                wire.effective_replication.unwrap_or_default(),
            ),
            copies: wire.copies.map(TopicCopies::from_wire),
            partitions_left: wire.partitions_left,
            partition: wire
                .partition
                .into_iter()
                .map(Partition::from_wire)
                .collect(),
        })
    }
}

impl Partition {
    fn from_wire(wire: v1::PartitionDescription) -> Self {
        Self {
            index: wire.index,
            leader_epoch: wire.owner.as_ref().map_or(0, |owner| owner.leader_epoch),
            owner: wire.owner.map(|owner| owner.endpoint),
            log_start: wire.log_start.map(Offset),
            high_watermark: wire.high_watermark.map(Offset),
            stored_bytes: wire.stored_bytes,
            fault: wire.fault.map(Fault::from_wire),
            backlog: wire.backlog.map(KeptBacklog::from_wire),
            damage: wire
                .damage
                .into_iter()
                .map(DamagedRecords::from_wire)
                .collect(),
        }
    }
}

impl Ledger {
    pub(super) fn from_wire(wire: v1::LedgerDescription) -> Self {
        Self {
            id: LedgerId(wire.ledger),
            topic: wire.topic,
            partition: wire.partition,
            kind: wire.kind,
            state: wire.state,
            base_offset: Offset(wire.base_offset),
            end_entry: wire.end_entry,
            record_count: wire.record_count,
            bytes: wire.bytes,
            bookies: wire.bookies,
            loss: Some(wire.loss).filter(|loss| !loss.is_empty()),
            lacking: wire
                .lacking
                .into_iter()
                .map(|lacking| (lacking.first_entry..lacking.end_entry, lacking.bookies))
                .collect(),
        }
    }
}
