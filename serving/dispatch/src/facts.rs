//! What the shell tells: consumers, what was read, answers of consumers. No payload passes through here.

use std::sync::Arc;

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use crate::range::OffsetRange;

/// A consumer's stay at a cursor. Never given twice by one dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// 16 bits of murmur3 of the key; the upper 12 are its slot (serving.md B4).
pub type KeyHash = u16;
/// Slots of a cursor.
pub const SLOTS: usize = 4_096;

/// Who comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// Stable over reconnects; slots go by it.
    pub name: Arc<str>,
    /// The highest level that can take records gets them (B3.4).
    pub priority: i32,
    /// KEYED: share of the slots, against 1 of others.
    pub weight: u16,
    /// KEYED with named slots: those it wants, half open.
    pub slots: Vec<(u16, u16)>,
}

/// Why nobody is attached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachFault {
    /// Too many.
    #[error("{SESSIONS} consumers are attached, and no room for more", SESSIONS = crate::policy::SESSIONS_MAX)]
    Full,
    /// Named slots that another one has.
    #[error("slots {first}..{end} are those of consumer {holder:?}")]
    SlotsTaken {
        /// First of the range.
        first: u16,
        /// Exclusive.
        end: u16,
        /// Who has them.
        holder: Arc<str>,
    },
    /// Empty, upside down, or too high.
    #[error("{first}..{end} is no range of slots; there are 4096")]
    NoSlots {
        /// First of the range.
        first: u16,
        /// Exclusive.
        end: u16,
    },
}

/// How a consumer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It said so: nothing counts as failed.
    Closed,
    /// Its connection broke: what it held counts as failed (B3.8).
    Crashed,
}

/// Keys of a batch, as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    /// Not asked for.
    Unknown,
    /// The producer stamped the batch: all hashes lie in this range, both inclusive (B4.9).
    Stamp(KeyHash, KeyHash),
    /// One per offset of the batch, from its first; `None`: without a key.
    Each(Vec<Option<KeyHash>>),
}

/// A batch that was read; the shell keeps its bytes until [`crate::Effect::Forget`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// All of its offsets.
    pub range: OffsetRange,
    /// Stored bytes, which is what a delivery costs.
    pub bytes: u32,
    /// KEYED only.
    pub keys: Keys,
}

/// Why records are passed over (B3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// A marker, or a record of an aborted transaction.
    Control,
    /// A gap of compaction.
    Compacted,
    /// It lived longer than it may.
    Expired,
    /// The subscription's filter.
    Filtered,
    /// Retention took it.
    Trimmed,
    /// The backlog quota took it.
    Evicted,
    /// Storage has it no more.
    Lost,
    /// Somebody said so.
    Admin,
    /// It failed too often, and the policy drops it.
    Dead,
}

/// The answer to [`crate::Effect::Read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadDone {
    /// Of the effect; another one is passed over.
    pub id: u64,
    /// In order, without those that are passed over as a whole. The first may begin before what was asked for.
    pub batches: Vec<Batch>,
    /// In order.
    pub skipped: Vec<(OffsetRange, Skip)>,
    /// Everything from where it was asked for up to here is in one of the two.
    pub end: Offset,
}

/// What a consumer says of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Processed.
    Ack,
    /// Not processed (B3.8, B3.10).
    Nack {
        /// It counts.
        failed: bool,
        /// When again.
        delay: Delay,
    },
    /// Not ever to be processed: a dead letter (B3.11).
    Reject,
    /// Still at it: the lock begins anew.
    Renew,
}

/// When a record comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// At once.
    None,
    /// After so long, ms; at most a day.
    For(TimestampMs),
    /// As the policy says.
    Policy,
}

/// An answer of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Of whom.
    pub session: SessionId,
    /// Chosen by the shell; the receipt carries it.
    pub ticket: u64,
    /// Of the deliveries that it answers.
    pub state_epoch: u32,
    /// Which records.
    pub ranges: Vec<OffsetRange>,
    /// What.
    pub verdict: Verdict,
    /// They were delivered to a consumer of this name before, by an owner or in a session that is gone (B3.14). Acks only.
    pub before: bool,
}

/// What came of a write. There is none that is known to have failed: what was sent to the bookies may become durable later, so a
/// change that was accepted is written until it is, or the owner ends (B3.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is durable.
    Done,
    /// It is not known to be, and is written again with what came since.
    Later,
}
