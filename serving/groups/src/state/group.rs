//! One group, whatever it speaks, and its offsets.

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::id::{Offset, PartitionId};
use hulse_proto::time::TimestampMs;

use super::classic::ClassicGroup;
use super::consumer::ConsumerGroup;

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next one to be processed.
    pub offset: Offset,
    /// Of the last processed record; −1: not said.
    pub leader_epoch: i32,
    /// The client's own; empty and none are not the same (serving.md D2.13).
    pub metadata: Option<Arc<str>>,
    /// When.
    pub at: TimestampMs,
}

/// How a group speaks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GroupKind {
    /// Offsets only.
    #[default]
    Simple,
    /// Classic protocol.
    Classic(ClassicGroup),
    /// KIP-848.
    Consumer(ConsumerGroup),
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DurableGroup {
    /// How it speaks, and its members.
    pub kind: GroupKind,
    /// When the last member left, or the group was made without.
    pub empty_since: TimestampMs,
    /// By partition.
    pub offsets: BTreeMap<PartitionId, CommittedOffset>,
}

impl DurableGroup {
    /// No member is durable.
    pub fn is_empty(&self) -> bool {
        match &self.kind {
            GroupKind::Simple => true,
            GroupKind::Classic(group) => group.members.is_empty(),
            GroupKind::Consumer(group) => group.members.is_empty(),
        }
    }

    pub(super) fn consumer(&mut self) -> &mut ConsumerGroup {
        if !matches!(self.kind, GroupKind::Consumer(_)) {
            self.kind = GroupKind::Consumer(ConsumerGroup::default());
        }
        match &mut self.kind {
            GroupKind::Consumer(group) => group,
            _ => unreachable!("it was made one"),
        }
    }
}
