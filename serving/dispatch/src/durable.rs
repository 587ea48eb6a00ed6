//! What is durable of a cursor, and the one function that changes it (serving.md B2.2; ARCHITECTURE D3).
//!
//! A delta is applied in this order: the move, the marks, the acks. So an ack takes back a mark of the same delta, and what was
//! said before a move is not in the delta of the move.
//!
//! It is a superset of the cursor that EXCLUSIVE and FAILOVER keep: base, acked ranges and state epoch are the same things; marks
//! and the number of letters are new, and empty there.

use hulse_proto::id::Offset;

use crate::marks::{Mark, Marks};
use crate::range::{OffsetRange, OffsetRanges};

/// A cursor as the partition's state holds it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueState {
    /// Everything below is processed.
    pub base: Offset,
    /// Processed above the base.
    pub acked: OffsetRanges,
    /// Of records that are not processed.
    pub marks: Marks,
    /// Grows with each move; answers of an older one are void.
    pub state_epoch: u32,
    /// Sequence of the next dead letter. A letter is known by (cursor, state epoch, sequence).
    pub letters: u64,
}

/// A change of a cursor; what one write makes durable together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueDelta {
    /// The cursor stands elsewhere, nothing above is processed and nothing is marked.
    pub moved: Option<Moved>,
    /// These have these marks from now on; disjoint.
    pub marks: Vec<(OffsetRange, Mark)>,
    /// These are processed; disjoint, in order. What begins at the base, or below, moves the base.
    pub acked: Vec<OffsetRange>,
    /// Sequence of the next letter, if it changed.
    pub letters: Option<u64>,
}

/// Where a cursor went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Here.
    pub base: Offset,
    /// From now on.
    pub state_epoch: u32,
}

impl QueueState {
    /// One that begins at `base`.
    pub fn new(base: Offset) -> Self {
        Self {
            base,
            ..Self::default()
        }
    }

    /// Folds a delta in. Deterministic; the live path and replay both call it (B2.2).
    pub fn apply(&mut self, delta: &QueueDelta) {
        if let Some(moved) = delta.moved {
            *self = Self {
                base: moved.base,
                state_epoch: moved.state_epoch,
                ..Self::default()
            };
        }
        for (range, mark) in &delta.marks {
            let above = OffsetRange {
                first: range.first.max(self.base),
                end: range.end,
            };
            for piece in self.acked.missing(above) {
                self.marks.set(piece, *mark);
            }
        }
        for range in &delta.acked {
            self.ack(*range);
        }
        self.letters = delta.letters.unwrap_or(self.letters);
    }

    fn ack(&mut self, range: OffsetRange) {
        let above = OffsetRange {
            first: range.first.max(self.base),
            end: range.end,
        };
        self.acked.insert(above);
        self.marks.clear(above);
        // The base passes over what is processed right behind it.
        while let Some(end) = self.acked.take_first_at(self.base) {
            self.base = self.base.max(end);
        }
    }
}
