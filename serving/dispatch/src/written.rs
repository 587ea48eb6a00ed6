//! When changes are written, and what follows (serving.md B2.3, B3.7, B10).

use hulse_proto::time::TimestampMs;

use crate::dispatcher::Dispatcher;
use crate::durable::QueueState;
use crate::effect::Effect;
use crate::facts::Written;
use crate::marks::{Letter, Marks};
use crate::pending::{Changes, InFlight};
use crate::range::OffsetRanges;
use crate::runs::State;

/// A write that came to nothing is tried again after this, twice as long each time …
const RETRY_MS: TimestampMs = 500;
/// … up to this.
const RETRY_MS_MAX: TimestampMs = 30_000;

impl Dispatcher {
    /// When the next write is due; `None`: nothing waits, or one is on its way.
    pub(crate) fn write_due(&self) -> Option<TimestampMs> {
        let since = self.gathering.since?;
        if self.in_flight.is_some() {
            return None;
        }
        let full = self.gathering.urgent || self.gathering.bytes() >= self.policy.gather_bytes;
        let due = match full {
            true => since,
            false => since + self.policy.gather_ms,
        };
        Some(due.max(self.write_not_before))
    }

    /// Sends what was gathered on its way, if it is due.
    pub(crate) fn write(&mut self, now: TimestampMs) {
        if self.write_due().is_none_or(|due| due > now) {
            return;
        }
        let changes = self.take_gathering();
        let (seq, delta) = (self.next_write, changes.delta());
        self.next_write += 1;
        self.in_flight = Some(InFlight { seq, changes });
        self.effects.push(Effect::Write { seq, delta });
    }

    fn take_gathering(&mut self) -> Changes {
        let empty = Changes {
            state_epoch: self.state_epoch,
            ..Changes::default()
        };
        std::mem::replace(&mut self.gathering, empty)
    }

    /// What came of the write. Another number than that of the last one is passed over.
    pub fn written(&mut self, seq: u64, outcome: Written, now: TimestampMs) {
        let Some(flight) = self.in_flight.take_if(|flight| flight.seq == seq) else {
            return;
        };
        let mut changes = flight.changes;
        match outcome {
            Written::Done => {
                self.write_failures = 0;
                self.write_not_before = TimestampMs::MIN;
                self.order_doubt.take_if(|doubt| *doubt <= seq);
                let waiting = std::mem::take(&mut changes.waiting);
                if changes.moved.is_some() && self.gathering.moved.is_none() {
                    self.restart_all();
                }
                if changes.state_epoch == self.state_epoch {
                    self.confirm(changes, now);
                }
                waiting.into_iter().for_each(|waiting| self.tell(waiting));
            }
            Written::Later => {
                let later = self.take_gathering();
                changes.join(later);
                self.gathering = changes;
                let wait = (RETRY_MS << self.write_failures.min(10)).min(RETRY_MS_MAX);
                self.write_failures += 1;
                self.write_not_before = now + wait;
            }
        }
    }

    /// It is durable.
    fn confirm(&mut self, changes: Changes, now: TimestampMs) {
        let mut numbers = Vec::new();
        for (range, mark) in &changes.marks {
            self.marks.set(*range, *mark);
            if let Letter::Numbered(seq) = mark.letter {
                numbers.push(seq);
            }
        }
        for range in changes.acks.iter().chain(changes.skips.iter()) {
            self.marks.clear(range);
            for first in self.cut(range) {
                if self.runs.get(first).state == State::Acking {
                    self.finish(first);
                }
            }
            self.end_letters(range);
        }
        self.catch_up();
        for (range, _) in &changes.marks {
            for first in self.cut(*range) {
                match self.runs.get(first).state {
                    State::Returning => self.free(first, now),
                    State::Parked => self.unpark(first, now),
                    _ => {}
                }
            }
        }
        numbers.sort_unstable();
        numbers.into_iter().for_each(|seq| self.numbered(seq));
    }

    /// Changes have not been durable for long enough to stop (B10).
    pub(crate) fn is_in_doubt(&self, now: TimestampMs) -> bool {
        self.doubt_begins().is_some_and(|at| at <= now)
    }

    /// When that will be, if it is to come.
    pub(crate) fn doubt_at(&self) -> Option<TimestampMs> {
        self.doubt_begins().filter(|at| *at > self.pumped_at)
    }

    fn doubt_begins(&self) -> Option<TimestampMs> {
        let flight = self.in_flight.as_ref();
        let since = flight.and_then(|flight| flight.changes.since);
        let since = since.or(self.gathering.since)?;
        Some(since + self.policy.doubt_ms)
    }

    /// A move is not durable yet: nothing is delivered.
    pub(crate) fn is_moving(&self) -> bool {
        let flight = self.in_flight.as_ref();
        let moved = flight.and_then(|flight| flight.changes.moved);
        moved.or(self.gathering.moved).is_some()
    }

    /// What a replay of all that was written, and of what is gathered, would give. O(runs). For views and tests: what has to be
    /// kept is the fold of the deltas.
    pub fn accepted(&self) -> QueueState {
        let mut state = QueueState {
            base: hulse_proto::id::Offset(self.runs.base()),
            acked: OffsetRanges::default(),
            marks: Marks::default(),
            state_epoch: self.state_epoch,
            letters: self.letters.next(),
        };
        state.marks = self.marks.clone();
        for range in self.runs.acked() {
            state.acked.insert(range);
        }
        for range in self.ahead.iter() {
            state.acked.insert(range);
        }
        let flight = self.in_flight.as_ref().map(|flight| &flight.changes);
        for changes in flight.into_iter().chain([&self.gathering]) {
            if changes.state_epoch == self.state_epoch {
                let delta = crate::durable::QueueDelta {
                    moved: None,
                    ..changes.delta()
                };
                state.apply(&delta);
            }
        }
        state.apply(&crate::durable::QueueDelta::default());
        state
    }
}
