//! How a run goes from place to place. Every change of a state goes through here, so that queues, holds, slots and counters agree.

use std::collections::BTreeSet;

use hulse_proto::time::TimestampMs;

use crate::dispatcher::Dispatcher;
use crate::facts::{SessionId, Skip};
use crate::marks::Letter;
use crate::policy::{DeadLetters, KeyOrder, Kind};
use crate::range::OffsetRange;
use crate::runs::{COUNTED, KEYED, NO_HOLD, Run, State};
use crate::slots::NOBODY;

impl Dispatcher {
    /// The offsets of a run.
    pub(crate) fn span(&self, first: u64) -> OffsetRange {
        let run = self.runs.get(first);
        OffsetRange::new(first, first + u64::from(run.len))
    }

    /// Makes a run begin at `offset`, if one holds it. Both parts stay where the run was.
    pub(crate) fn split(&mut self, offset: u64) {
        let Some((before, _)) = self.runs.at(offset) else {
            return;
        };
        if self.runs.split(offset).is_some() {
            let until = self.queues.delayed.get(&before).copied();
            self.enter(offset, until.unwrap_or(0));
        }
    }

    /// The runs of a range, cut to it.
    pub(crate) fn cut(&mut self, range: OffsetRange) -> Vec<u64> {
        self.split(range.first.0);
        self.split(range.end.0);
        self.runs.firsts(range)
    }

    /// Puts the run into the queue of its state. `until`: for a delayed one.
    fn enter(&mut self, first: u64, until: TimestampMs) {
        let run = self.runs.get(first);
        match run.state {
            State::Shared => drop(self.queues.shared.insert(first)),
            State::Suspect => drop(self.queues.suspects.insert(first)),
            State::StalledStamp => drop(self.queues.stalled_stamps.insert(first)),
            State::Hashless => drop(self.queues.hashless.insert(first)),
            State::Stalled => self.queues.stall(run.hashes.0 >> 4, first),
            State::Delayed => self.queues.delay(first, until),
            State::Dying => drop(self.queues.dying.insert(first)),
            State::Member => {
                let target = self.target_of(&run);
                if let Some(session) = self.sessions.get_mut(&target) {
                    session.queue.insert(first);
                }
            }
            State::Loose
            | State::Grace
            | State::Held
            | State::Acking
            | State::Returning
            | State::Parked => {}
        }
    }

    pub(crate) fn target_of(&self, run: &Run) -> SessionId {
        match (&self.slots, run.slots()) {
            (Some(slots), Some((slot, _))) => slots.target(slot),
            _ => NOBODY,
        }
    }

    /// Puts a loose run into a state that waits.
    pub(crate) fn put(&mut self, first: u64, state: State, until: TimestampMs) {
        let run = self.runs.get_mut(first);
        run.state = state;
        let len = u64::from(run.len);
        if state.is_waiting() {
            self.waiting += len;
            if !matches!(state, State::Stalled | State::StalledStamp) {
                self.buffer.want(first, len);
            }
        }
        self.enter(first, until);
    }

    /// Takes a run out of its queue.
    pub(crate) fn take_out(&mut self, first: u64) {
        let run = self.runs.get(first);
        let len = u64::from(run.len);
        match run.state {
            State::Shared => drop(self.queues.shared.remove(&first)),
            State::Suspect => drop(self.queues.suspects.remove(&first)),
            State::Stalled => self.queues.unstall(run.hashes.0 >> 4, first),
            State::Delayed => self.queues.undelay(first),
            State::Dying => drop(self.queues.dying.remove(&first)),
            State::StalledStamp => {
                self.queues.stalled_stamps.remove(&first);
                self.stamps_left = true;
            }
            State::Hashless => {
                self.queues.hashless.remove(&first);
                self.stamps_left = true;
            }
            State::Member => {
                let target = self.target_of(&run);
                if let Some(session) = self.sessions.get_mut(&target) {
                    session.queue.remove(&first);
                }
            }
            State::Loose
            | State::Grace
            | State::Held
            | State::Acking
            | State::Returning
            | State::Parked => {}
        }
        if run.state.is_waiting() {
            self.waiting -= len;
            if !matches!(run.state, State::Stalled | State::StalledStamp) {
                self.buffer.unwant(first, len);
            }
        }
        self.runs.get_mut(first).state = State::Loose;
    }

    /// The run counts as held for its slots.
    pub(crate) fn count(&mut self, first: u64, by: SessionId) {
        let run = self.runs.get(first);
        if let (Some(slots), Some(range)) = (&mut self.slots, run.slots()) {
            slots.hold(range, run.len, by);
            self.runs.get_mut(first).flags |= COUNTED;
        }
    }

    /// And no more.
    pub(crate) fn uncount(&mut self, first: u64) {
        let run = self.runs.get(first);
        if run.has(COUNTED) {
            self.release_slots(&run);
            self.runs.get_mut(first).flags &= !COUNTED;
        }
    }

    pub(crate) fn release_slots(&mut self, run: &Run) {
        if let (Some(slots), Some(range)) = (&mut self.slots, run.slots()) {
            slots.release(range, run.len, &mut self.woken);
            self.stamps_woken |= !self.woken.is_empty() && !self.queues.stalled_stamps.is_empty();
        }
    }

    /// So many records name the hold no more.
    pub(crate) fn drop_hold(&mut self, hold: u32, records: u64) {
        if hold == NO_HOLD {
            return;
        }
        let session = self.holds.get(hold).session;
        if self.holds.drop_records(hold, records) {
            self.forget_gone(session);
        }
    }

    /// A session that left is forgotten when no hold names it.
    pub(crate) fn forget_gone(&mut self, id: SessionId) {
        let gone = self.sessions.get(&id).is_some_and(|session| session.gone);
        if gone && !self.holds.has_session(id) {
            self.sessions.remove(&id);
        }
    }

    pub(crate) fn set_hold(&mut self, first: u64, hold: u32) {
        let run = self.runs.get_mut(first);
        let (before, len) = (run.hold, u64::from(run.len));
        run.hold = hold;
        self.drop_hold(before, len);
    }

    /// Its consumer holds a run no more.
    pub(crate) fn let_go(&mut self, first: u64) {
        let run = self.runs.get(first);
        let session = self.holds.get(run.hold).session;
        if let Some(session) = self.sessions.get_mut(&session) {
            session.release(u64::from(run.len));
        }
    }

    /// A run that nobody holds becomes AVAILABLE, piece by piece as its marks say.
    pub(crate) fn free(&mut self, first: u64, now: TimestampMs) {
        self.uncount(first);
        self.runs.get_mut(first).state = State::Loose;
        for (piece, mark) in self.marks.pieces(self.span(first)) {
            let first = piece.first.0;
            self.split(piece.end.0);
            let dead = mark.letter != Letter::None || self.policy.is_spent(mark.failed);
            if dead {
                self.bury(first, now);
            } else if mark.retry_at > now {
                self.put(first, State::Delayed, mark.retry_at);
            } else {
                self.place(first);
            }
        }
    }

    /// A loose run is dead (B3.11).
    fn bury(&mut self, first: u64, now: TimestampMs) {
        match self.policy.dead {
            DeadLetters::Park => {
                self.runs.get_mut(first).state = State::Parked;
                self.unorder(first);
            }
            DeadLetters::Drop => self.pass_over(first, Skip::Dead, now),
            DeadLetters::Topic => {
                self.runs.get_mut(first).state = State::Dying;
                self.queue_letter(first);
            }
        }
    }

    /// A loose run is passed over: it counts as processed when that is durable.
    pub(crate) fn pass_over(&mut self, first: u64, why: Skip, now: TimestampMs) {
        let span = self.span(first);
        self.runs.get_mut(first).state = State::Acking;
        *self.counts.skipped.entry(why).or_default() += span.len();
        self.gathering.skips.insert(span);
        self.gathering.note(now);
    }

    /// A loose run that may be delivered goes where it is looked for.
    pub(crate) fn place(&mut self, first: u64) {
        let run = self.runs.get(first);
        let Some((from, to)) = run.slots() else {
            let failed = self.marks.get(first).failed;
            let suspect = self.policy.suspects_max(failed).is_some();
            let state = match suspect {
                true => State::Suspect,
                false => State::Shared,
            };
            return self.put(first, state, 0);
        };
        let slots = self.slots.as_ref().expect("runs with hashes are KEYED");
        let state = match slots.one_target((from, to)) {
            None => State::Hashless,
            Some(target) => {
                let here = self.sessions.get(&target).is_some_and(|it| !it.gone);
                let blocked = (from..=to).any(|slot| slots.is_blocked(slot, target));
                match here && !blocked && !self.is_behind(first, (from, to)) {
                    true => State::Member,
                    false if from == to => State::Stalled,
                    false => State::StalledStamp,
                }
            }
        };
        self.put(first, state, 0);
    }

    /// A record of one of the slots waits before this one (B4.6).
    fn is_behind(&self, first: u64, (from, to): (usize, usize)) -> bool {
        let lower = |firsts: &BTreeSet<u64>| firsts.first().is_some_and(|other| *other < first);
        let mut stalled = self.queues.stalled.range(from as u16..=to as u16);
        if stalled.any(|(_, firsts)| lower(firsts)) {
            return true;
        }
        let covers = |other: &u64| {
            let slots = self.runs.get(*other).slots();
            slots.is_some_and(|(first, last)| first <= to && from <= last)
        };
        let stamps = self.queues.stalled_stamps.range(..first);
        stamps
            .chain(self.queues.hashless.range(..first))
            .any(covers)
    }

    /// Looks again at what waits for slots that something changed for.
    pub(crate) fn wake(&mut self) {
        while !self.woken.is_empty() || self.stamps_woken || self.stamps_left {
            let mut all = BTreeSet::new();
            // What is known by a stamp may go, or went, and then all that waits behind it.
            if self.stamps_woken || self.stamps_left {
                all.extend(self.queues.stalled_stamps.iter().copied());
                all.extend(self.queues.stalled.values().flatten().copied());
            }
            for slot in std::mem::take(&mut self.woken) {
                all.extend(self.queues.stalled.get(&slot).into_iter().flatten());
            }
            self.replace(&all);
            (self.stamps_woken, self.stamps_left) = (false, false);
        }
    }

    /// Takes these out and places them anew, in order.
    pub(crate) fn replace(&mut self, firsts: &BTreeSet<u64>) {
        for first in firsts {
            self.take_out(*first);
        }
        for first in firsts {
            self.place(*first);
        }
    }

    /// What strict orders remember of a record goes by this; `None`: nothing.
    pub(crate) fn order_key(&self, run: &Run) -> Option<u16> {
        match self.policy.kind {
            Kind::Keyed(KeyOrder::OneInFlight) if run.has(KEYED) => Some(run.hashes.0),
            Kind::Keyed(KeyOrder::BlockOnNack) if run.has(KEYED) => Some(run.hashes.0 >> 4),
            _ => None,
        }
    }

    /// Later records of its key wait for this run.
    pub(crate) fn remember_order(&mut self, first: u64) {
        if let Some(key) = self.order_key(&self.runs.get(first)) {
            let span = self.span(first);
            let offsets = span.first.0..span.end.0;
            self.order.extend(offsets.map(|offset| (key, offset)));
        }
    }

    /// And no more.
    pub(crate) fn unorder(&mut self, first: u64) {
        let run = self.runs.get(first);
        let Some(key) = self.order_key(&run) else {
            return;
        };
        let span = self.span(first);
        let mut was = false;
        for offset in span.first.0..span.end.0 {
            was |= self.order.remove(&(key, offset));
        }
        if was {
            self.woken.push(run.hashes.0 >> 4);
        }
    }

    /// How many records of a run may go out before the order says wait (B4.7).
    pub(crate) fn in_order(&self, first: u64) -> u64 {
        let run = self.runs.get(first);
        let len = u64::from(run.len);
        let Some(key) = self.order_key(&run) else {
            return len;
        };
        match self.order.range((key, 0)..=(key, u64::MAX)).next() {
            None => len,
            Some((_, offset)) if *offset < first => 0,
            Some((_, offset)) => (offset - first + 1).min(len),
        }
    }

    /// A run is processed, durably: it leaves the window.
    pub(crate) fn finish(&mut self, first: u64) {
        self.uncount(first);
        self.unorder(first);
        let run = self.runs.remove(first);
        self.drop_hold(run.hold, u64::from(run.len));
    }
}
