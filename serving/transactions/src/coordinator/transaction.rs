//! The durable record of a transactional id.

use std::collections::BTreeMap;
use std::fmt;

use hulse_proto::id::{PartitionId, ProducerId};
use hulse_proto::time::TimestampMs;

use crate::marker::Marker;
use crate::producer::{NO_EPOCH, Producer, Version};

/// Where a transactional id stands. "Dead" is an id that is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum TxnState {
    /// The producer has begun, and no transaction since.
    #[default]
    Empty,
    /// A transaction is open.
    Ongoing,
    /// It is decided: commit. Markers are on their way.
    PrepareCommit,
    /// It is decided: abort. Markers are on their way.
    PrepareAbort,
    /// All participants have committed.
    CompleteCommit,
    /// All participants have aborted.
    CompleteAbort,
}

impl TxnState {
    /// The states that this one may follow (serving.md C5); the first one of an id follows none.
    pub fn may_follow(self, before: Option<Self>) -> bool {
        let Some(before) = before else {
            return self == Self::Empty;
        };
        match self {
            Self::Empty => before.is_idle(),
            Self::Ongoing => before.is_idle() || before == Self::Ongoing,
            Self::PrepareCommit => before == Self::Ongoing,
            Self::PrepareAbort => before == Self::Ongoing || before.is_idle(),
            Self::CompleteCommit => before == Self::PrepareCommit,
            Self::CompleteAbort => before == Self::PrepareAbort,
        }
    }

    /// No transaction is open, and none is being ended.
    pub fn is_idle(self) -> bool {
        matches!(
            self,
            Self::Empty | Self::CompleteCommit | Self::CompleteAbort
        )
    }

    /// It is decided, and not everybody knows.
    pub fn is_preparing(self) -> bool {
        matches!(self, Self::PrepareCommit | Self::PrepareAbort)
    }

    /// What it is called, also on Kafka's wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }
}

impl fmt::Display for TxnState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who takes part (ARCHITECTURE D10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Participant {
    /// A partition: records, acks of QUEUE and KEYED, or both.
    Partition(PartitionId),
    /// A shard of groups: offsets of STREAM.
    Groups(PartitionId),
}

impl Participant {
    /// The partition, or the shard's.
    pub fn partition(self) -> PartitionId {
        match self {
            Self::Partition(partition) | Self::Groups(partition) => partition,
        }
    }
}

/// What of a partition takes part; of a shard of groups, its offsets always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Parts {
    /// Records: the marker settles them by CONTROL in the log.
    pub data: bool,
    /// Acks: the marker settles them by META in the state.
    pub acks: bool,
}

impl Parts {
    /// Records only.
    pub const DATA: Self = Self {
        data: true,
        acks: false,
    };
    /// Acks only.
    pub const ACKS: Self = Self {
        data: false,
        acks: true,
    };

    /// Either's.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            data: self.data || other.data,
            acks: self.acks || other.acks,
        }
    }

    /// All of the other's.
    pub fn covers(self, other: Self) -> bool {
        self.with(other) == self
    }
}

/// One transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Who may speak; while a transaction is being ended, who its markers fence.
    pub producer: Producer,
    /// The id before the last change of ids, for answers that were lost; or none.
    pub previous: ProducerId,
    /// The id from its completion on, where this one is exhausted; or none.
    pub next: ProducerId,
    /// The epoch that the caller had who got the present one, for answers that were lost; −1: nobody may ask again.
    pub last_epoch: i16,
    /// How long a transaction may take, ms.
    pub timeout_ms: u32,
    /// Where it stands.
    pub state: TxnState,
    /// How its client ends transactions.
    pub version: Version,
    /// Number of its transaction, from 1; 0: none yet.
    pub serial: u32,
    /// Who takes part in the present one.
    pub participants: BTreeMap<Participant, Parts>,
    /// When the present one began; 0: none did.
    pub started_at: TimestampMs,
    /// The last change.
    pub updated_at: TimestampMs,
}

impl Transaction {
    /// A new one.
    pub fn new(id: ProducerId, timeout_ms: u32, now: TimestampMs) -> Self {
        Self {
            producer: Producer::first(id),
            previous: ProducerId::NONE,
            next: ProducerId::NONE,
            last_epoch: NO_EPOCH,
            timeout_ms,
            state: TxnState::Empty,
            version: Version::Tv1,
            serial: 0,
            participants: BTreeMap::new(),
            started_at: 0,
            updated_at: now,
        }
    }

    /// All of these take part already.
    pub fn covers(&self, participants: &BTreeMap<Participant, Parts>) -> bool {
        participants.iter().all(|(participant, parts)| {
            let known = self.participants.get(participant);
            known.is_some_and(|known| known.covers(*parts))
        })
    }

    /// Who speaks when the transaction that is being ended is complete.
    pub fn after_completion(&self) -> Producer {
        match self.next {
            ProducerId::NONE => self.producer,
            next => Producer::first(next),
        }
    }

    /// What its participants are told; `None`: nothing is decided.
    pub fn marker(&self, coordinator_epoch: i32) -> Option<Marker> {
        self.state.is_preparing().then_some(Marker {
            producer: self.producer,
            commit: self.state == TxnState::PrepareCommit,
            coordinator_epoch,
            version: self.version,
            serial: self.serial,
        })
    }

    /// Since when it may be ended by time; `None`: nothing is open.
    pub fn expires_at(&self) -> Option<TimestampMs> {
        (self.state == TxnState::Ongoing)
            .then(|| self.started_at.saturating_add(self.timeout_ms.into()))
    }
}
