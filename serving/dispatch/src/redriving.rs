//! Records that failed too often and stay where they are (serving.md B3.11): counted, and tried anew.

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use crate::dispatcher::Dispatcher;
use crate::marks::{Mark, Marks};
use crate::policy::{DeadLetters, KeyOrder, Kind, Policy};
use crate::range::OffsetRange;
use crate::runs::State;

impl Policy {
    /// A record with this mark is not delivered any more.
    pub fn is_dead(&self, mark: &Mark) -> bool {
        mark.letter != crate::Letter::None || self.is_spent(mark.failed)
    }

    /// Of records that nobody has read since the last take-over: those that are parked, and those that wait for their time.
    pub fn count_marked(&self, marks: &Marks, from: Offset, now: TimestampMs) -> (u64, u64) {
        let (mut parked, mut delayed) = (0, 0);
        for (range, mark) in marks.iter().filter(|(range, _)| range.end > from) {
            let records = range.end.0 - range.first.0.max(from.0);
            match self.is_dead(&mark) {
                true if self.dead == DeadLetters::Park => parked += records,
                false if mark.retry_at > now => delayed += records,
                _ => {}
            }
        }
        (parked, delayed)
    }
}

impl Dispatcher {
    /// How many records of the range are parked, read or not. O(runs + marks).
    pub fn parked(&self, range: OffsetRange) -> u64 {
        let runs = self.runs.iter();
        let read = runs.filter(|(_, run)| run.state == State::Parked);
        let read = read.map(|(first, _)| self.span(first).within(range).len());
        let unread = self.parked_unread(range);
        read.sum::<u64>() + unread.iter().map(OffsetRange::len).sum::<u64>()
    }

    /// Those that are parked and were not read yet: only their marks are known.
    fn parked_unread(&self, range: OffsetRange) -> Vec<OffsetRange> {
        if self.policy.dead != DeadLetters::Park {
            return Vec::new();
        }
        let unread = OffsetRange {
            first: range.first.max(Offset(self.runs.next())),
            end: range.end,
        };
        let dead = self.marks.iter();
        let dead = dead.filter(|(_, mark)| self.policy.is_dead(mark));
        let dead = dead.map(|(range, _)| range.within(unread));
        dead.filter(|range| !range.is_empty()).collect()
    }

    /// Parked records are tried anew, as if they had never failed; also those that were not read yet. [`Dispatcher::settle`] says when
    /// that is durable; they are delivered then.
    pub fn redrive(&mut self, range: OffsetRange, now: TimestampMs) {
        let unread = self.parked_unread(range);
        let within = OffsetRange {
            first: range.first,
            end: range.end.min(Offset(self.runs.next())),
        };
        for first in self.cut(within) {
            if self.runs.get(first).state == State::Parked {
                self.runs.get_mut(first).state = State::Returning;
                self.wait_in_order(first);
                self.gathering.mark(self.span(first), Mark::default());
                self.gathering.note(now);
            }
        }
        for range in unread {
            self.gathering.mark(range, Mark::default());
            self.gathering.note(now);
        }
    }

    /// Its mark is gone, durably. It was read, and parked, while that was written.
    pub(crate) fn unpark(&mut self, first: u64, now: TimestampMs) {
        self.wait_in_order(first);
        self.free(first, now);
    }

    fn wait_in_order(&mut self, first: u64) {
        if self.policy.kind == Kind::Keyed(KeyOrder::OneInFlight) {
            self.remember_order(first);
        }
    }
}
