//! One cursor: what a subscription has acknowledged of a partition.

use std::sync::Arc;

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use serving_dispatch::{Mark, Marks, QueueState};

use serving_dispatch::{OffsetRange, OffsetRanges};

/// A cursor when it is made. Its start is resolved once, to an offset (serving.md B2.12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCursor {
    /// "tenant/namespace/name" of the subscription, for people.
    pub name: Arc<str>,
    /// Keeps the log from its base on (B9.3).
    pub hold: bool,
    /// Where it begins.
    pub base: Offset,
    /// The owner's clock.
    pub at: TimestampMs,
}

/// What is processed: everything below the base, and the ranges above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// "tenant/namespace/name" of the subscription.
    pub name: Arc<str>,
    /// Keeps the log from its base on.
    pub hold: bool,
    /// Everything below is processed.
    pub base: Offset,
    /// Grows with each move; acks of an older one are void.
    pub state_epoch: u32,
    /// The owner's clock when it was made.
    pub made_at: TimestampMs,
    /// The owner's clock at the last ack or move; 0: none yet.
    pub acked_at: TimestampMs,
    /// Records that were given up, since it was made, because it kept too much.
    pub evicted: u64,
    pub(super) acked: OffsetRanges,
    /// QUEUE and KEYED: what is known of records that came back.
    pub(super) marks: Marks,
    /// QUEUE and KEYED: sequence of the next dead letter.
    pub(super) letters: u64,
}

impl Cursor {
    pub(super) fn new(new: &NewCursor) -> Self {
        Self {
            name: new.name.clone(),
            hold: new.hold,
            base: new.base,
            state_epoch: 0,
            made_at: new.at,
            acked_at: 0,
            evicted: 0,
            acked: OffsetRanges::default(),
            marks: Marks::default(),
            letters: 0,
        }
    }

    /// What a dispatcher begins with.
    pub fn queue_state(&self) -> QueueState {
        QueueState {
            base: self.base,
            acked: self.acked.iter().collect(),
            marks: self.marks.clone(),
            state_epoch: self.state_epoch,
            letters: self.letters,
        }
    }

    /// Something is known of records that came back.
    pub(super) fn is_marked(&self) -> bool {
        self.letters > 0 || !self.marks.is_empty()
    }

    /// Sequence of the next dead letter.
    pub fn letters(&self) -> u64 {
        self.letters
    }

    /// What is known of records that came back.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Processed above the base.
    pub fn acked(&self) -> &OffsetRanges {
        &self.acked
    }

    /// Everything below `end` is processed; answers how many offsets are so only now.
    pub fn ack_to(&mut self, end: Offset) -> u64 {
        if end <= self.base {
            return 0;
        }
        let known = self.acked.remove_below(end);
        let new = end.0 - self.base.0 - known;
        self.base = end;
        self.close_up();
        self.marks.clear(OffsetRange::new(0, self.base.0));
        new
    }

    /// These are processed; answers how many of them are so only now.
    pub fn ack(&mut self, range: OffsetRange) -> u64 {
        let above = OffsetRange {
            first: range.first.max(self.base),
            end: range.end,
        };
        let new = self.acked.insert(above);
        self.marks.clear(above);
        self.close_up();
        new
    }

    /// These have this mark from now on, as far as they are not processed.
    pub(super) fn mark(&mut self, range: OffsetRange, mark: Mark) {
        let above = OffsetRange {
            first: range.first.max(self.base),
            end: range.end,
        };
        for piece in self.acked.missing(above) {
            self.marks.set(piece, mark);
        }
    }

    /// Goes to `base`; nothing above it is processed any more.
    pub(super) fn move_to(&mut self, base: Offset, state_epoch: u32) {
        self.base = base;
        self.acked = OffsetRanges::default();
        self.marks = Marks::default();
        self.letters = 0;
        self.state_epoch = state_epoch;
    }

    /// The base passes over what is processed right behind it.
    fn close_up(&mut self) {
        while let Some(end) = self.acked.take_first_at(self.base) {
            self.base = self.base.max(end);
        }
    }

    /// Offsets in `from..to` that are not processed. `from` is the log's start.
    pub fn backlog(&self, from: Offset, to: Offset) -> u64 {
        let within = OffsetRange {
            first: self.base.max(from),
            end: to,
        };
        let acked: u64 = self.acked.within(within).map(|range| range.len()).sum();
        within.len() - acked
    }

    /// The offset behind the next `records` that are not processed, at most `to`.
    pub fn behind(&self, records: u64, from: Offset, to: Offset) -> Offset {
        let within = OffsetRange {
            first: self.base.max(from),
            end: to,
        };
        let mut left = records;
        for range in self.acked.missing(within) {
            if left <= range.len() {
                return Offset(range.first.0 + left);
            }
            left -= range.len();
        }
        to.max(self.base)
    }
}
