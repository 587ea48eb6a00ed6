//! Cursors and trims exclude one another, in the order in which the owner hears of them (storage.md P6).
//!
//! What comes first counts. A cursor that was taken, be it durable or not, keeps the log from a trim of retention that is decided after
//! it. A trim that is decided is carried out, however long metadata are silent: a cursor that is made, or moved, behind it begins above it.

use hulse_proto::id::Offset;
use hulse_proto::mutant::Mutant;
use hulse_proto::time::TimestampMs;

use super::core::CursorCore;
use crate::state::OffsetRange;

/// What of the log there is, and will be.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Nothing below is there.
    log_start: Offset,
    /// Everything below goes.
    decided: Offset,
}

impl Kept {
    /// Nothing below is promised to anybody.
    pub(super) fn from(&self) -> Offset {
        self.log_start.max(self.decided)
    }
}

impl<T> CursorCore<T> {
    /// Retention stops here, for what was taken and is not durable yet; for what is, the state of the partition says more.
    pub(crate) fn held_from(&self) -> Option<Offset> {
        match self.mutation.is(Mutant::TrimPastNewCursor) {
            true => None,
            false => self.accepted.held_from(),
        }
    }

    /// Everything below `to` is to go, and that is not taken back.
    pub(crate) fn trim_decided(&mut self, to: Offset) {
        if !self.mutation.is(Mutant::CursorBelowTrim) {
            self.kept.decided = self.kept.decided.max(to);
        }
    }

    /// The log begins at `log_start`: nothing below it will ever be delivered, so bases pass over it. The caller has said before how far
    /// each lane has sent, so that nobody waits for acks of what was sent and is gone.
    pub(crate) fn trimmed(&mut self, log_start: Offset, now: TimestampMs) {
        self.kept.log_start = log_start;
        let below = self.accepted.iter();
        let below: Vec<_> = below
            .filter(|(id, cursor)| cursor.base < log_start && !self.shared.contains(id))
            .map(|(id, _)| id)
            .collect();
        for id in below {
            self.pass_over(
                id,
                OffsetRange {
                    first: Offset(0),
                    end: log_start,
                },
                now,
            );
        }
    }

    /// As [`Kept::from`].
    pub(crate) fn kept_from(&self) -> Offset {
        self.kept.from()
    }

    /// What was last heard of the log's start.
    pub(crate) fn log_start(&self) -> Offset {
        self.kept.log_start
    }
}
