//! What the core is told, and what it wants done.

use std::ops::Range;

use hulse_proto::id::Offset;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::consume_up::Item;
use tokio::sync::oneshot;

use super::credit::Amount;
use crate::error::Error;
use crate::reader::RecordBatch;

/// Names a session among all that a consumer ever had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::consumer) struct SessionId(pub(in crate::consumer) u64);

/// A stored batch of which records are to be handed out.
#[derive(Debug)]
pub(in crate::consumer) struct Unit {
    pub(in crate::consumer) session: SessionId,
    pub(in crate::consumer) term: u64,
    pub(in crate::consumer) amount: Amount,
    pub(in crate::consumer) batch: RecordBatch,
    /// Disjoint, in order.
    pub(in crate::consumer) acquired: Vec<Range<u64>>,
}

impl Unit {
    pub(in crate::consumer) fn partition(&self) -> u32 {
        self.batch.partition
    }

    pub(in crate::consumer) fn takes(&self, offset: u64) -> bool {
        self.acquired.iter().any(|range| range.contains(&offset))
    }
}

/// What waits for the application, in order.
#[derive(Debug)]
pub(in crate::consumer) enum Ready {
    Unit(Unit),
    Note(ConsumerNote),
    Failed(Error),
}

/// Something that a consumer learns beside its records, in its place among them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConsumerNote {
    /// These offsets will not come: there is no record any more, or none for an application.
    Skipped {
        /// Index of the partition.
        partition: u32,
        /// Which.
        offsets: Range<u64>,
        /// Why.
        why: SkipReason,
    },
    /// Everything that was stored below was delivered. Only with `tell_end`.
    EndOfPartition {
        /// Index of the partition.
        partition: u32,
        /// Its end at that moment.
        offset: Offset,
    },
    /// Whether this consumer is the one that gets the partition's records.
    Active {
        /// Index of the partition.
        partition: u32,
        /// It is from now on, or it is no more: then what was handed out may be acknowledged for a short while only.
        active: bool,
    },
    /// Nothing more comes of a partition for now, or that is over.
    Blocked {
        /// Index of the partition.
        partition: u32,
        /// Why.
        reason: BlockedReason,
        /// It is over.
        over: bool,
        /// The broker's words.
        message: String,
    },
    /// The subscription kept more than the backlog quota of its topic lets it, and lost its oldest records that were not acknowledged.
    /// Told right behind the [`ConsumerNote::Moved`] that it is the reason of.
    Evicted {
        /// Index of the partition.
        partition: u32,
        /// Records below are lost to it.
        base: Offset,
    },
    /// The cursor was moved, by this consumer or by somebody else: what was handed out before is void.
    Moved {
        /// Index of the partition.
        partition: u32,
        /// Delivery goes on here.
        base: Offset,
    },
}

/// What holds deliveries up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockedReason {
    /// This consumer has as many records without an acknowledgement as the broker allows: acknowledge them.
    UnackedOfConsumer,
    /// The cursor has as many of them.
    UnackedOfCursor,
    /// There are too many holes between acknowledged records: acknowledge what is between them.
    AckRanges,
    /// Acknowledgements cannot be made durable now; they wait, and deliveries go on.
    AcksWait,
    /// Somebody paused the subscription.
    Paused,
    /// For a reason that this version does not know.
    Other,
}

impl BlockedReason {
    pub(in crate::consumer) fn of(reason: v1::BlockedReason) -> Self {
        match reason {
            v1::BlockedReason::UnackedOfConsumer => Self::UnackedOfConsumer,
            v1::BlockedReason::UnackedOfCursor => Self::UnackedOfCursor,
            v1::BlockedReason::AckRanges => Self::AckRanges,
            v1::BlockedReason::AcksWait => Self::AcksWait,
            v1::BlockedReason::Paused => Self::Paused,
            v1::BlockedReason::Unspecified => Self::Other,
        }
    }
}

/// Why an offset is not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// A mark of the system, no record.
    Control,
    /// A newer record of the same key took its place.
    Compacted,
    /// It was lost, and an operator gave it up.
    Lost,
    /// Retention or a deletion took it before it was delivered.
    Trimmed,
    /// For a reason that this version does not know.
    Other,
}

impl SkipReason {
    /// `None`: it was processed before, which nobody needs to be told.
    pub(in crate::consumer) fn of(range: &v1::SkippedRange) -> Option<Self> {
        Some(match range.reason() {
            v1::SkipReason::Acked => return None,
            v1::SkipReason::Control => Self::Control,
            v1::SkipReason::Compacted => Self::Compacted,
            v1::SkipReason::Lost => Self::Lost,
            v1::SkipReason::Trimmed => Self::Trimmed,
            v1::SkipReason::Unspecified => Self::Other,
        })
    }
}

pub(in crate::consumer) type SeekAnswer = oneshot::Sender<Result<(), Error>>;

/// What the core wants done. The shell empties it after each call.
#[derive(Debug, Default)]
pub(in crate::consumer) struct Out {
    /// To be sent, in order.
    pub(in crate::consumer) sends: Vec<(SessionId, Item)>,
    /// Seeks that are decided.
    pub(in crate::consumer) sought: Vec<(SeekAnswer, Result<(), Error>)>,
    /// Sessions whose broker breaks the protocol.
    pub(in crate::consumer) broken: Vec<(SessionId, Error)>,
    /// New for the application.
    pub(in crate::consumer) ready: Vec<Ready>,
    /// Units of these partitions that were not handed out yet are void.
    pub(in crate::consumer) void: Vec<u32>,
    /// Something changed that the tick looks at.
    pub(in crate::consumer) wake: bool,
    /// Whoever waits for something to be handed out looks again.
    pub(in crate::consumer) news: bool,
}

impl Out {
    pub(in crate::consumer) fn note(&mut self, note: ConsumerNote) {
        self.ready.push(Ready::Note(note));
    }
}
