//! A transactional producer: an id with an epoch (serving.md C1), and which protocol it speaks.

use std::fmt;

use hulse_proto::id::ProducerId;

/// "No epoch".
pub const NO_EPOCH: i16 = -1;

/// A producer id at an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Producer {
    /// Which.
    pub id: ProducerId,
    /// Its epoch; an older one of the same id is fenced.
    pub epoch: i16,
}

impl Producer {
    /// No producer.
    pub const NONE: Self = Self {
        id: ProducerId::NONE,
        epoch: NO_EPOCH,
    };

    /// The first epoch of an id.
    pub fn first(id: ProducerId) -> Self {
        Self { id, epoch: 0 }
    }

    /// The id gives no further epoch to a client: the highest one is kept for the marker that fences the id for ever.
    pub fn is_exhausted(self) -> bool {
        self.epoch >= i16::MAX - 1
    }

    /// One epoch later; the highest one has none.
    #[must_use]
    pub fn bumped(self) -> Self {
        Self {
            epoch: self.epoch.saturating_add(1),
            ..self
        }
    }
}

impl fmt::Display for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at epoch {}", self.id, self.epoch)
    }
}

/// How a client ends transactions (KIP-890).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Version {
    /// The epoch stays; partitions are added by the client.
    #[default]
    Tv1,
    /// Each end bumps the epoch; partitions are added by their owners.
    Tv2,
}
