//! What a balance is made of: brokers, what each partition on them costs, and what may be done about it.

use std::collections::BTreeMap;
use std::time::Duration;

use hulse_proto::id::{NodeName, PartitionId};

/// What an open partition costs by itself, in bytes per second: its task, its look-ups, its cursors. Partitions that have nothing to do
/// are spread by their number.
pub(super) const PARTITION_COST: u64 = 10_000;
/// Bytes a second that a partition, and a broker, is believed to have to do at most: what peers tell is added up without overflow.
pub(super) const TOLD_BYTES_MAX: (u64, u64) = (1 << 36, 1 << 50);
/// Partitions that a broker is believed to have at most.
pub(super) const TOLD_OPEN_MAX: u64 = 1 << 30;
/// Brokers whose loads differ by less are even, whatever the share: nobody has anything of a move.
pub(super) const GAP_MIN: u64 = 64 << 10;
/// Looks in a row that must find brokers uneven and a plan that helps before anything is moved; an interval has so many.
pub(super) const LOOKS: u32 = 3;

/// How brokers are evened out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalanceLimits {
    /// One balance period: brokers that were uneven all through it are evened out. `None`: only by an operator's word.
    pub interval: Option<Duration>,
    /// A broker so far above or below the mean is uneven, in percent of the mean.
    pub spread_percent: u32,
    /// A partition that was handed over stays so long.
    pub cooldown: Duration,
}

impl Default for BalanceLimits {
    fn default() -> Self {
        Self {
            interval: Some(Duration::from_secs(30)),
            spread_percent: 10,
            cooldown: Duration::from_secs(600),
        }
    }
}

/// An open partition as its owner tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PartitionLoad {
    /// In and out, per second.
    pub(super) bytes: u64,
    /// An operator said where it belongs.
    pub(super) pinned: bool,
    /// So long ago it was moved last, where that is remembered.
    pub(super) moved: Option<Duration>,
}

impl PartitionLoad {
    /// With what it costs by itself.
    pub(super) fn weight(&self) -> u64 {
        self.bytes.saturating_add(PARTITION_COST)
    }

    pub(super) fn may_move(&self, limits: &BalanceLimits) -> bool {
        !self.pinned && self.moved.is_none_or(|ago| ago >= limits.cooldown)
    }
}

/// A broker that lives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct BrokerLoad {
    /// It serves, and is not to leave: else it neither gets nor gives.
    pub(super) ready: bool,
    /// Those that it told singly.
    pub(super) partitions: BTreeMap<PartitionId, PartitionLoad>,
    /// Weight of all others.
    pub(super) others: u64,
}

impl BrokerLoad {
    pub(super) fn weight(&self) -> u64 {
        let weights = self.partitions.values().map(PartitionLoad::weight);
        weights.fold(self.others, u64::saturating_add)
    }
}

/// The brokers that live, by name.
pub(super) type Scene = BTreeMap<NodeName, BrokerLoad>;

/// A partition that is to go to another broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) partition: PartitionId,
    pub(super) from: NodeName,
    pub(super) to: NodeName,
    /// In and out, per second.
    pub(super) bytes: u64,
}
