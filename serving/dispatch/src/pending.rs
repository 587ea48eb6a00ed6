//! What was accepted and is not durable yet: it is gathered, written as one delta, and then its answers go out (serving.md B2.3).

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use crate::durable::{Moved, QueueDelta};
use crate::effect::Status;
use crate::facts::SessionId;
use crate::marks::Mark;
use crate::range::{OffsetRange, OffsetRanges};

/// Who waits for it.
#[derive(Debug)]
pub(crate) enum Waiting {
    Answer {
        ticket: u64,
        session: SessionId,
        statuses: Vec<Status>,
    },
    Move {
        ticket: u64,
        old_base: Offset,
    },
}

/// Changes, merged.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) moved: Option<Moved>,
    /// Said by consumers, or dead letters that are copied.
    pub(crate) acks: OffsetRanges,
    /// Passed over by ourselves.
    pub(crate) skips: OffsetRanges,
    pub(crate) marks: Vec<(OffsetRange, Mark)>,
    pub(crate) letters: Option<u64>,
    pub(crate) waiting: Vec<Waiting>,
    /// The first of it came then.
    pub(crate) since: Option<TimestampMs>,
    /// Not to be gathered longer.
    pub(crate) urgent: bool,
    /// The state epoch that acks and marks are of.
    pub(crate) state_epoch: u32,
}

impl Changes {
    /// Nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    pub(crate) fn note(&mut self, now: TimestampMs) {
        self.since.get_or_insert(now);
    }

    pub(crate) fn mark(&mut self, range: OffsetRange, mark: Mark) {
        match self.marks.last_mut() {
            Some((last, before)) if last.end == range.first && *before == mark => {
                last.end = range.end;
            }
            _ => self.marks.push((range, mark)),
        }
    }

    /// About what it takes.
    pub(crate) fn bytes(&self) -> usize {
        (self.acks.len() + self.skips.len()) * 16 + self.marks.len() * 36
    }

    pub(crate) fn delta(&self) -> QueueDelta {
        let mut acked = self.acks.clone();
        for range in self.skips.iter() {
            acked.insert(range);
        }
        QueueDelta {
            moved: self.moved,
            marks: self.marks.clone(),
            acked: acked.iter().collect(),
            letters: self.letters,
        }
    }

    /// The cursor goes elsewhere: what was said before is void, and who waits for it goes on waiting.
    pub(crate) fn move_to(&mut self, moved: Moved) {
        self.moved = Some(moved);
        self.acks = OffsetRanges::default();
        self.skips = OffsetRanges::default();
        self.marks.clear();
        self.letters = None;
        self.urgent = true;
        self.state_epoch = moved.state_epoch;
    }

    /// Puts what came later behind what was not written.
    pub(crate) fn join(&mut self, later: Self) {
        if let Some(moved) = later.moved {
            self.move_to(moved);
        }
        for range in later.acks.iter() {
            self.acks.insert(range);
        }
        for range in later.skips.iter() {
            self.skips.insert(range);
        }
        self.marks.extend(later.marks);
        self.letters = later.letters.or(self.letters);
        self.waiting.extend(later.waiting);
        self.since = self.since.or(later.since);
        self.urgent |= later.urgent;
    }
}

/// A delta on its way.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) seq: u64,
    pub(crate) changes: Changes,
}
