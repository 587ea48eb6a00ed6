//! Who gets what: lowest first (serving.md B3.2–B3.5, B3.9, B4.2, B4.6, B9.1).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hulse_proto::time::TimestampMs;

use crate::dispatcher::Dispatcher;
use crate::effect::{Acquired, Effect, Hashes, Unit};
use crate::facts::SessionId;
use crate::range::OffsetRange;
use crate::runs::State;
use crate::session::Session;

/// Suspects wait so long for a consumer that holds nothing, and have it so long for themselves, ms: what breaks a consumer does so
/// fast, and a handler that runs for hours must not keep the others of its consumer waiting.
const ALONE_MS: TimestampMs = 5_000;

/// Where a run was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Member,
    Shared,
    Suspects,
}

/// What waits in one pass: for a read, or for a consumer that is to hold nothing.
#[derive(Debug, Default)]
struct Waits {
    members: BTreeSet<SessionId>,
    shared: bool,
    suspects: bool,
    /// They get nothing more until they hold nothing, so that they can take suspects.
    reserved: BTreeSet<SessionId>,
    /// A consumer has to hold nothing before it gets its next record.
    draining: bool,
    /// Suspects waited long enough.
    impatient: bool,
    now: TimestampMs,
}

impl Dispatcher {
    /// Delivers all that can be. One consumer's record that has to be read again keeps that consumer waiting, and nobody else.
    pub(crate) fn pass(&mut self, now: TimestampMs) {
        let mut waits = Waits {
            impatient: self.suspects_since.is_some_and(|at| at + ALONE_MS <= now),
            now,
            ..Waits::default()
        };
        if !self.queues.suspects.is_empty() && !waits.impatient {
            self.reserve(&mut waits);
        }
        while let Some((first, session, source)) = self.lowest(&waits) {
            self.serve(first, session, source, &mut waits);
        }
        match self.queues.suspects.is_empty() && !waits.draining {
            true => self.suspects_since = None,
            false => drop(self.suspects_since.get_or_insert(now)),
        }
    }

    /// When suspects have waited long enough, or a consumer has had them long enough for itself.
    pub(crate) fn next_alone(&self) -> Option<TimestampMs> {
        let sessions = self.sessions.values();
        let alone = sessions.filter(|session| session.unacked > 0 && session.has_credit());
        let alone = alone.map(|session| session.suspect_until);
        let alone = alone.filter(|until| *until > self.pumped_at);
        let since = self.suspects_since.map(|since| since + ALONE_MS);
        alone.chain(since.filter(|at| *at > self.pumped_at)).min()
    }

    /// Half of the consumers, at least one, those that hold least, drain for suspects (B3.9).
    fn reserve(&self, waits: &mut Waits) {
        let max = self.policy.unacked_max;
        let able = self.sessions.iter();
        let able = able.filter(|(_, session)| session.has_credit() && session.unacked < max);
        let mut able: Vec<_> = able.map(|(id, session)| (session.unacked, *id)).collect();
        able.sort_unstable();
        let count = (able.len() / 2).max(1);
        waits
            .reserved
            .extend(able.into_iter().take(count).map(|(_, id)| id));
    }

    /// The lowest run that somebody can take.
    fn lowest(&self, waits: &Waits) -> Option<(u64, SessionId, Source)> {
        let max = self.policy.unacked_max;
        let mut best: Option<(u64, SessionId, Source)> = None;
        let mut offer = |first: u64, session: SessionId, source: Source| {
            if best.is_none_or(|(other, ..)| first < other) {
                best = Some((first, session, source));
            }
        };
        if self.slots.is_some() {
            for (id, session) in &self.sessions {
                let first = session.queue.first();
                if let Some(first) = first
                    && session.is_able(max, waits.now)
                    && !waits.members.contains(id)
                    && !waits.reserved.contains(id)
                {
                    offer(*first, *id, Source::Member);
                }
            }
        }
        if let Some(first) = self.queues.shared.first()
            && !waits.shared
            && let Some(id) = self.choose(waits.now, |id, _| {
                !waits.reserved.contains(&id) && !waits.members.contains(&id)
            })
        {
            offer(*first, id, Source::Shared);
        }
        if let Some(first) = self.queues.suspects.first()
            && !waits.suspects
            && let Some(id) = self.choose(waits.now, |_, session| {
                waits.impatient || session.unacked == 0
            })
        {
            offer(*first, id, Source::Suspects);
        }
        best
    }

    /// Of the highest priority the one with most credit, in turn where that is equal (B3.4).
    fn choose(
        &self,
        now: TimestampMs,
        fits: impl Fn(SessionId, &Session) -> bool,
    ) -> Option<SessionId> {
        let max = self.policy.unacked_max;
        let able = self
            .sessions
            .iter()
            .filter(|(id, session)| session.is_able(max, now) && fits(**id, session));
        let best = able.max_by_key(|(id, session)| {
            let turn = Reverse((session.served, **id));
            (session.priority, session.records, turn)
        });
        best.map(|(id, _)| *id)
    }

    fn serve(&mut self, first: u64, id: SessionId, source: Source, waits: &mut Waits) {
        if source == Source::Member && self.is_unfit(first, id) {
            // Its slot was blocked since, or its order forbids it: it waits there, and all behind it of the slot do.
            self.stall(first);
            return;
        }
        let is_suspect = self.suspects_max(first).is_some();
        let busy = self.sessions[&id].unacked > 0;
        if source == Source::Member && is_suspect && busy && !waits.impatient {
            waits.members.insert(id);
            waits.draining = true;
            return;
        }
        let Some((batch, bytes)) = self.buffer.at(first) else {
            self.want_again(first, Hashes::No);
            match source {
                Source::Member => drop(waits.members.insert(id)),
                Source::Shared => waits.shared = true,
                Source::Suspects => waits.suspects = true,
            }
            return;
        };
        let taken = self.collect(first, batch, id, source);
        if !taken.is_empty() {
            self.deliver(id, batch, bytes, &taken, waits.now);
        }
    }

    fn suspects_max(&self, first: u64) -> Option<u64> {
        self.policy.suspects_max(self.marks.get(first).failed)
    }

    fn is_unfit(&self, first: u64, id: SessionId) -> bool {
        let slots = self.runs.get(first).slots().zip(self.slots.as_ref());
        let blocked = slots
            .is_some_and(|((from, to), slots)| (from..=to).any(|slot| slots.is_blocked(slot, id)));
        blocked || self.in_order(first) == 0
    }

    fn stall(&mut self, first: u64) {
        self.take_out(first);
        let hashes = self.runs.get(first).hashes;
        let state = match hashes.0 >> 4 == hashes.1 >> 4 {
            true => State::Stalled,
            false => State::StalledStamp,
        };
        self.put(first, state, 0);
    }

    /// The runs of a batch that go out together, from `first` on, out of their queues.
    fn collect(
        &mut self,
        first: u64,
        batch: OffsetRange,
        id: SessionId,
        source: Source,
    ) -> Vec<u64> {
        let queue = match source {
            Source::Member => &self.sessions[&id].queue,
            Source::Shared => &self.queues.shared,
            Source::Suspects => &self.queues.suspects,
        };
        let firsts: Vec<u64> = queue.range(first..batch.end.0).copied().collect();
        let suspects = self.suspects_max(first).is_some();
        let (mut limit, mut records, mut taken) = (self.policy.unit_records_max, 0, Vec::new());
        for first in firsts {
            let most = self.suspects_max(first);
            if most.is_some() != suspects {
                break;
            }
            limit = limit.min(most.unwrap_or(u64::MAX));
            if records >= limit {
                break;
            }
            if source == Source::Member && self.is_unfit(first, id) {
                self.stall(first);
                continue;
            }
            let room = (limit - records).min(self.in_order(first));
            self.split(first + room);
            self.take_out(first);
            records += self.span(first).len();
            taken.push(first);
        }
        taken
    }

    /// The runs are acquired, and the batch goes out (B3.5).
    fn deliver(
        &mut self,
        id: SessionId,
        batch: OffsetRange,
        bytes: u32,
        taken: &[u64],
        now: TimestampMs,
    ) {
        let records: u64 = taken.iter().map(|first| self.span(*first).len()).sum();
        let lock_until = match self.policy.lock_ms {
            0 => 0,
            lock => now + lock,
        };
        let suspects = self.suspects_max(taken[0]).is_some();
        let hold = self.holds.make(id, batch, lock_until, records);
        let mut acquired: Vec<Acquired> = Vec::with_capacity(1);
        for first in taken {
            let item = self.acquire(*first, hold, id);
            match acquired.last_mut() {
                Some(last)
                    if last.range.end == item.range.first
                        && (last.acquired, last.failed) == (item.acquired, item.failed) =>
                {
                    last.range.end = item.range.end;
                }
                _ => acquired.push(item),
            }
        }
        self.turn += 1;
        self.counts.delivered += records;
        self.counts.bytes_sent += u64::from(bytes);
        let turn = self.turn;
        let session = self.sessions.get_mut(&id).expect("it was chosen");
        if session.unacked == 0 {
            session.silent_since = now;
        }
        session.unacked += records;
        session.spend(records, u64::from(bytes));
        session.seq += 1;
        session.served = turn;
        if suspects {
            session.suspect_until = now + ALONE_MS;
            self.suspects_since = None;
        }
        let unit = Unit {
            session: id,
            seq: session.seq,
            batch,
            bytes,
            acquired,
            lock_until: (lock_until != 0).then_some(lock_until),
            state_epoch: self.state_epoch,
        };
        self.effects.push(Effect::Deliver(unit));
    }

    fn acquire(&mut self, first: u64, hold: u32, id: SessionId) -> Acquired {
        self.set_hold(first, hold);
        self.count(first, id);
        let run = self.runs.get_mut(first);
        run.seen = run.seen.saturating_add(1);
        run.state = State::Held;
        let item = Acquired {
            acquired: run.seen,
            range: self.span(first),
            failed: self.marks.get(first).failed,
        };
        self.runs.join_back(first);
        item
    }
}
