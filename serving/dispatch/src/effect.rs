//! What the shell is to do.

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use crate::durable::QueueDelta;
use crate::facts::SessionId;
use crate::marks::Why;
use crate::range::OffsetRange;

/// One thing to do. In order; those of one call belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send a batch.
    Deliver(Unit),
    /// Read.
    Read(ReadWanted),
    /// The bytes of this batch are not needed; it is read again if they are.
    Forget(OffsetRange),
    /// Write; one at a time.
    Write {
        /// To be said with the outcome.
        seq: u64,
        /// What.
        delta: QueueDelta,
    },
    /// An answer is settled: what it changed is durable.
    Receipt {
        /// Of the answer.
        ticket: u64,
        /// Of the answer.
        session: SessionId,
        /// One per range, in order.
        statuses: Vec<Status>,
    },
    /// A move is durable.
    Moved {
        /// Of the move.
        ticket: u64,
        /// From here.
        old_base: Offset,
    },
    /// A consumer begins anew: what it was sent before the move is void.
    Restart {
        /// Who.
        session: SessionId,
        /// From now on.
        state_epoch: u32,
        /// From here.
        base: Offset,
    },
    /// Nothing flows to a consumer, or it does again (B9.2).
    Blocked {
        /// Who.
        session: SessionId,
        /// Why.
        reason: BlockedReason,
        /// It ends.
        over: bool,
    },
    /// Copy a record to the dead-letter topic, in order of the sequences.
    Letter(LetterWanted),
}

/// One delivery: a stored batch, and which of its records are meant (B3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// To whom.
    pub session: SessionId,
    /// 1, 2, 3, … of this session (B3.5).
    pub seq: u64,
    /// The batch.
    pub batch: OffsetRange,
    /// Its stored bytes.
    pub bytes: u32,
    /// In order, disjoint.
    pub acquired: Vec<Acquired>,
    /// Until then it has to answer, or to renew.
    pub lock_until: Option<TimestampMs>,
    /// For answers.
    pub state_epoch: u32,
}

/// Records of a delivery that have the same counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acquired {
    /// Which.
    pub range: OffsetRange,
    /// Deliveries by this owner, with this one (B3.8).
    pub acquired: u16,
    /// Failed attempts; durable.
    pub failed: u16,
}

impl Acquired {
    /// Which delivery this is, from 1, for people. Innocent returns are forgotten when the owner changes, failures never.
    pub fn delivery_count(&self) -> u16 {
        self.acquired.max(self.failed.saturating_add(1))
    }
}

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadWanted {
    /// To be said with the outcome.
    pub id: u64,
    /// From here.
    pub from: Offset,
    /// At most up to here.
    pub to: Offset,
    /// About so much, at least one batch.
    pub bytes_max: u64,
    /// About so many, at least one batch.
    pub records_max: u64,
    /// Hashes of keys.
    pub hashes: Hashes,
    /// It was read before: its bytes may be in a cache.
    pub again: bool,
}

/// Which hashes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hashes {
    /// None: QUEUE.
    No,
    /// The stamp of the producer, or of each record where there is none.
    Stamp,
    /// Of each record.
    Each,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterWanted {
    /// The record.
    pub offset: Offset,
    /// Producer epoch of the copy: an older one is fenced.
    pub state_epoch: u32,
    /// Sequence of the copy; the same if it is asked for again, also by the next owner.
    pub seq: u64,
    /// Failed attempts.
    pub failed: u16,
    /// The last reason.
    pub why: Why,
    /// A consumer asked for it.
    pub asked: bool,
}

/// What became of one range of an answer (B3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It is so.
    Ok,
    /// Made before a move: void.
    Stale,
    /// A part is not this consumer's; the rest of the range is taken.
    NotOwned,
    /// Never delivered, or no range.
    Invalid,
}

/// Why nothing flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockedReason {
    /// The consumer has too many records without an ack.
    UnackedOfConsumer,
    /// The cursor has.
    UnackedOfCursor,
    /// The cursor has too many acked ranges.
    AckRanges,
    /// Changes cannot be made durable now.
    AcksWait,
    /// Somebody paused the subscription.
    Paused,
}
