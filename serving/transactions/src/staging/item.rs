//! One half or scheduled message.

use std::fmt;
use std::sync::Arc;

use hulse_proto::id::{Offset, PartitionId};
use hulse_proto::time::TimestampMs;

/// Names an item of a store; of another store it is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId {
    /// Where its payload was appended first.
    pub first: Offset,
    /// Chance: who guesses ids decides nothing.
    pub nonce: u64,
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.first, self.nonce)
    }
}

/// What it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A decision (RocketMQ's transaction).
    Half {
        /// Whose sessions are asked.
        group: Arc<str>,
        /// It is discarded when so many checks had no answer.
        checks_max: u16,
    },
    /// A time.
    Scheduled,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    /// Publish it; of a scheduled one: its time had come.
    Commit,
    /// Nobody ever sees it; of a scheduled one: it was recalled.
    Rollback,
    /// Nobody decided, or there is nowhere to publish it: it went where an operator finds it.
    Discard,
}

impl Decision {
    /// What it is called.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Rollback => "rollback",
            Self::Discard => "discard",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// For a decision, or a time.
    Waiting,
    /// It is to be published, and has no sequence yet.
    Committed,
    /// It is published under this sequence, perhaps.
    Publishing(i32),
    /// It is published.
    Published,
    /// Nobody ever sees it.
    RolledBack,
    /// A copy is to go where an operator finds it; `true`: the target is gone, though it was committed.
    Discarding(bool),
    /// The copy is there; as above.
    Discarded(bool),
}

impl Status {
    /// What was decided; `None`: nothing was.
    pub fn decision(self) -> Option<Decision> {
        match self {
            Self::Waiting => None,
            Self::Committed | Self::Publishing(_) | Self::Published => Some(Decision::Commit),
            Self::RolledBack => Some(Decision::Rollback),
            // C9.3: the decision stays, though there is nowhere to publish.
            Self::Discarding(true) | Self::Discarded(true) => Some(Decision::Commit),
            Self::Discarding(false) | Self::Discarded(false) => Some(Decision::Discard),
        }
    }

    /// Nothing is to be done any more, but to forget it.
    pub fn is_over(self) -> bool {
        matches!(
            self,
            Self::Published | Self::RolledBack | Self::Discarded(_)
        )
    }

    /// Its payload may have to be read again.
    pub fn needs_payload(self) -> bool {
        !matches!(self, Self::Published | Self::RolledBack)
    }
}

/// An item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// What it waits for.
    pub kind: Kind,
    /// Where it is to go.
    pub target: PartitionId,
    /// Where its payload stands now.
    pub place: Offset,
    /// When it came.
    pub made_at: TimestampMs,
    /// Waiting: the next check, or the time. Over: when it is forgotten.
    pub due: TimestampMs,
    /// Checks that were sent.
    pub checks: u16,
    /// Where it stands.
    pub status: Status,
}
