//! What the owner of a partition and a consumer's lane tell each other.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, SubscriptionId};

use crate::state::{OffsetRange, OffsetRanges};

/// A consumer of a partition, numbered by the partition's owner; a number is never given twice by one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId(pub(crate) u64);

/// What a lane is to do: the newest view counts, those before it may be missed.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneView {
    /// Grows with each change of `stand`.
    pub turn: u64,
    /// Whether it delivers, and from where.
    pub stand: Stand,
    /// Records that this consumer has acked and that were not acked before, since it attached.
    pub released: u64,
    /// Records that were sent in this turn and need no ack any more, though nobody acked them: they were trimmed.
    pub passed: u64,
    /// The cursor has too many acked ranges: nothing new is delivered (serving.md B2.7).
    pub crowded: bool,
    /// Acks cannot be made durable now: they wait.
    pub acks_wait: Option<Fault>,
    /// The consumer is none any more.
    pub ended: Option<Fault>,
}

/// Where a consumer stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Stand {
    /// Another one is active.
    Standby,
    /// Another one will be active: acks are taken for this long.
    Yielding(Duration),
    /// The cursor is being moved.
    Moving,
    /// It delivers.
    Active(Begin),
}

/// Where deliveries begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Begin {
    /// Here.
    pub base: Offset,
    /// Without these.
    pub acked: Arc<OffsetRanges>,
    /// For acks.
    pub state_epoch: u32,
    /// Records below may be acked before they are sent again.
    pub acks_to: Offset,
    /// [`LaneView::released`] at this moment.
    pub released: u64,
    /// Why.
    pub cause: Cause,
    /// The last seek of this consumer that is done; 0: none.
    pub seek_id: u64,
}

/// Why deliveries begin anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It has become the active one.
    Activated,
    /// The cursor was moved.
    Moved,
    /// It was moved over records that the backlog quota of the topic took from it.
    Evicted,
}

/// What kind of ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckKind {
    /// The ranges.
    Individual,
    /// Everything below the end of each range.
    Cumulative,
}

/// What became of one range of an ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckStatus {
    /// It is processed.
    Ok,
    /// Of an older state epoch.
    Stale,
    /// Not this consumer's.
    NotOwned,
    /// Never sent to this consumer.
    Invalid,
    /// Not now: the cursor has too many ranges.
    Retry,
}

/// How far a lane had sent in this turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SentTo {
    pub(crate) turn: u64,
    pub(crate) to: Offset,
}

/// An ack.
#[derive(Debug, Clone)]
pub(crate) struct AckCommand {
    pub(crate) consumer: ConsumerId,
    /// When the ack came: what is sent while it waits for the owner makes no mistake good.
    pub(crate) sent: SentTo,
    pub(crate) state_epoch: u32,
    pub(crate) kind: AckKind,
    pub(crate) ranges: Vec<OffsetRange>,
}

/// Where a cursor goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CursorMove {
    /// Here.
    pub to: Offset,
    /// A skip: forward only, and what is acked behind it stays so. Else what is acked above `to` is not acked any more.
    pub keep_acked: bool,
}

/// Moves a cursor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MoveCommand {
    pub(crate) subscription: SubscriptionId,
    pub(crate) goal: CursorMove,
    /// The consumer that asks, and its number of the seek.
    pub(crate) by: Option<(ConsumerId, u64)>,
    /// It keeps more than the backlog quota lets it.
    pub(crate) evicts: bool,
}

/// An ack that is durable, as far as it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acked {
    /// One per range.
    pub statuses: Vec<AckStatus>,
}

/// A cursor that was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// From here.
    pub old_base: Offset,
    /// To here.
    pub new_base: Offset,
    /// From now on.
    pub state_epoch: u32,
}

/// The answer to what becomes durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CursorAnswer {
    /// The cursor exists.
    Made,
    Acked(Acked),
    Moved(Moved),
    /// The cursor does not exist.
    Removed,
    /// The policy holds.
    Held,
    /// The groups are written.
    Written,
    /// It was done, to so many records.
    Counted(u64),
}
