//! What consumers say of records, judged range by range (serving.md B3.6–B3.10).

use hulse_proto::time::TimestampMs;

use crate::dispatcher::Dispatcher;
use crate::effect::{Effect, Status};
use crate::facts::{Answer, Delay, SessionId, Verdict};
use crate::marks::{Letter, Mark, Why};
use crate::pending::Waiting;
use crate::policy::{Backoff, DELAY_MS_MAX, KeyOrder, Kind};
use crate::range::OffsetRange;
use crate::runs::{NO_HOLD, Run, State};

/// How a held run comes back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Return {
    failed: bool,
    why: Why,
    delay: Delay,
    reject: bool,
    /// By itself, and not with everything that its consumer held: strict orders stop its slot (B4.7).
    alone: bool,
}

impl Return {
    /// With everything that its consumer held.
    pub(crate) fn whole(failed: bool, why: Why) -> Self {
        Self {
            failed,
            why,
            delay: Delay::None,
            reject: false,
            alone: false,
        }
    }

    /// Its lock ended (B3.5, B3.8).
    pub(crate) fn expired() -> Self {
        Self {
            alone: true,
            ..Self::whole(true, Why::LockExpired)
        }
    }

    fn of(verdict: Verdict) -> Self {
        let (failed, delay) = match verdict {
            Verdict::Nack { failed, delay } => (failed, delay),
            _ => (true, Delay::None),
        };
        Self {
            failed,
            why: if failed { Why::Rejected } else { Why::None },
            delay,
            reject: verdict == Verdict::Reject,
            alone: true,
        }
    }
}

impl Dispatcher {
    /// Takes an answer. Its receipt comes when what it changed is durable, at once where nothing was (A31).
    pub fn answer(&mut self, answer: &Answer, now: TimestampMs) {
        if answer.verdict != Verdict::Renew
            && let Some(session) = self.sessions.get_mut(&answer.session)
        {
            session.silent_since = now;
        }
        let mut statuses = Vec::with_capacity(answer.ranges.len());
        let mut waits = false;
        for range in &answer.ranges {
            let (status, pending) = self.judge(answer, *range, now);
            statuses.push(status);
            waits |= pending;
        }
        let waiting = Waiting::Answer {
            ticket: answer.ticket,
            session: answer.session,
            statuses,
        };
        let flight = self.in_flight.as_mut().map(|flight| &mut flight.changes);
        match (waits, self.gathering.is_empty(), flight) {
            (true, false, _) => self.gathering.waiting.push(waiting),
            (true, true, Some(flight)) => flight.waiting.push(waiting),
            _ => self.tell(waiting),
        }
    }

    pub(crate) fn tell(&mut self, waiting: Waiting) {
        self.effects.push(match waiting {
            Waiting::Answer {
                ticket,
                session,
                statuses,
            } => Effect::Receipt {
                ticket,
                session,
                statuses,
            },
            Waiting::Move { ticket, old_base } => Effect::Moved { ticket, old_base },
        });
    }

    /// Status of one range, and whether it waits for a write. What can be taken of a range is taken (B3.6).
    fn judge(&mut self, answer: &Answer, range: OffsetRange, now: TimestampMs) -> (Status, bool) {
        if answer.verdict != Verdict::Renew {
            self.free_ghosts(answer.session, range);
        }
        if answer.state_epoch != self.state_epoch {
            return (Status::Stale, false);
        }
        let by_ticket = answer.before && answer.verdict == Verdict::Ack;
        let end = match by_ticket {
            true => self.readable.max(self.runs.next()),
            false => self.runs.next(),
        };
        if range.is_empty() || range.end.0 > end {
            return (Status::Invalid, false);
        }
        let here = self.sessions.get(&answer.session);
        if here.is_none_or(|session| session.gone) {
            return (Status::NotOwned, false);
        }
        let (mut status, mut waits, mut left) = (Status::Ok, false, range.len());
        for first in self.overlapping(range) {
            let piece = self.span(first).within(range);
            left -= piece.len();
            let (taken, pending) = self.judge_run(answer, first, piece, now);
            if !taken {
                status = Status::NotOwned;
            }
            waits |= pending;
        }
        let beyond = OffsetRange {
            first: range.first.max(hulse_proto::id::Offset(self.runs.next())),
            end: range.end,
        };
        if !beyond.is_empty() {
            self.process_ahead(beyond, now);
            waits = true;
        }
        // What is processed may not be durably so yet.
        (status, waits || left > 0 && self.is_unsure(range))
    }

    /// A part of the range is processed, and that is not durable.
    fn is_unsure(&self, range: OffsetRange) -> bool {
        let flight = self.in_flight.as_ref().map(|flight| &flight.changes);
        let mut all = flight.into_iter().chain([&self.gathering]);
        all.any(|changes| changes.acks.touches(range) || changes.skips.touches(range))
    }

    /// Firsts of the runs that have offsets of the range.
    pub(crate) fn overlapping(&self, range: OffsetRange) -> Vec<u64> {
        let before = self.runs.at(range.first.0).map(|(first, _)| first);
        let mut firsts: Vec<u64> = before
            .into_iter()
            .filter(|first| *first < range.first.0)
            .collect();
        firsts.extend(self.runs.firsts(range));
        firsts
    }

    /// Whether the part of a run was taken, and whether that waits for a write.
    fn judge_run(
        &mut self,
        answer: &Answer,
        first: u64,
        piece: OffsetRange,
        now: TimestampMs,
    ) -> (bool, bool) {
        let run = self.runs.get(first);
        let held = run.state == State::Held && self.holds.get(run.hold).session == answer.session;
        if run.state == State::Acking {
            return (answer.verdict != Verdict::Renew, true);
        }
        if !held && !self.may_answer_late(answer, &run) {
            return (false, false);
        }
        match answer.verdict {
            Verdict::Ack => {
                self.cut(piece);
                self.accept(piece.first.0, now);
                (true, true)
            }
            // It came back already, and does so again no second time.
            _ if !held => (answer.verdict != Verdict::Renew, false),
            Verdict::Renew => {
                self.renew(piece, now);
                (true, false)
            }
            Verdict::Nack { .. } | Verdict::Reject => {
                self.cut(piece);
                (
                    true,
                    self.give_back(piece.first.0, Return::of(answer.verdict), now),
                )
            }
        }
    }

    /// It is back and nobody has it since; this session had it last, or a consumer of its name did and says so (B3.6, B3.14).
    fn may_answer_late(&self, answer: &Answer, run: &Run) -> bool {
        let back = run.state.is_available() || run.state == State::Returning;
        if !back && run.state != State::Grace {
            return false;
        }
        if run.hold == NO_HOLD {
            return answer.before && run.seen == 0;
        }
        let last = self.holds.get(run.hold).session;
        let name = |id: SessionId| self.sessions.get(&id).map(|session| &session.name);
        last == answer.session || answer.before && name(last) == name(answer.session)
    }

    /// A run is acked: provisionally, until that is durable (B3.7).
    fn accept(&mut self, first: u64, now: TimestampMs) {
        let state = self.runs.get(first).state;
        if state == State::Held {
            self.let_go(first);
        } else {
            self.take_out(first);
        }
        self.runs.get_mut(first).state = State::Acking;
        let span = self.span(first);
        self.gathering.acks.insert(span);
        self.gathering.note(now);
        self.counts.acked += span.len();
        self.runs.join_back(first);
    }

    /// A held run comes back; answers whether that waits for a write. One that counts is delivered again only when its count is
    /// durable, so that no count is ever seen to fall (A34).
    pub(crate) fn give_back(&mut self, first: u64, how: Return, now: TimestampMs) -> bool {
        self.let_go(first);
        if how.alone && self.policy.kind == Kind::Keyed(KeyOrder::BlockOnNack) {
            self.remember_order(first);
        }
        let waits_for_time = how.delay != Delay::None;
        if !how.failed && !waits_for_time && !how.reject {
            self.free(first, now);
            return false;
        }
        self.runs.get_mut(first).state = State::Returning;
        let jitter = self.chance.below(1 << 20);
        for (piece, before) in self.marks.pieces(self.span(first)) {
            let failed = before.failed.saturating_add(u16::from(how.failed));
            let mark = Mark {
                failed,
                why: if how.failed { how.why } else { before.why },
                letter: match how.reject {
                    true => Letter::Wanted,
                    false => Letter::None,
                },
                retry_at: match self.delay_ms(how.delay, failed, jitter) {
                    0 => 0,
                    delay => now + delay,
                },
            };
            self.gathering.mark(piece, mark);
            self.counts.failed += if how.failed { piece.len() } else { 0 };
        }
        self.gathering.note(now);
        true
    }

    fn delay_ms(&self, delay: Delay, failed: u16, jitter: u64) -> TimestampMs {
        let failures = usize::from(failed.max(1));
        let ms = match (delay, &self.policy.backoff) {
            (Delay::None, _) | (Delay::Policy, Backoff::None) => 0,
            (Delay::For(ms), _) => ms,
            (Delay::Policy, Backoff::Steps(steps)) => {
                let step = steps.get(failures - 1).or(steps.last());
                TimestampMs::from(step.copied().unwrap_or(0))
            }
            (Delay::Policy, Backoff::Doubling { min_ms }) => {
                let ms = (u64::from(*min_ms) << (failures - 1).min(31)).min(DELAY_MS_MAX as u64);
                (ms + (((ms / 4) * jitter) >> 20)) as TimestampMs
            }
        };
        ms.clamp(0, DELAY_MS_MAX)
    }

    /// The lock of a part of a held run begins anew (B3.5).
    fn renew(&mut self, piece: OffsetRange, now: TimestampMs) {
        let until = match self.policy.lock_ms {
            0 => return,
            lock => now + lock,
        };
        self.cut(piece);
        let first = piece.first.0;
        let run = self.runs.get(first);
        let hold = self.holds.get(run.hold);
        if hold.lock_until == until {
            return;
        }
        // Runs before it that were renewed just now have a hold of their own already.
        let before = piece.first.0.checked_sub(1).and_then(|at| self.runs.at(at));
        let before = before.filter(|(_, run)| run.state == State::Held);
        let joined = before.map(|(_, run)| run.hold).filter(|id| {
            let other = self.holds.get(*id);
            other.session == hold.session && other.lock_until == until && other.span == hold.span
        });
        let new = match joined {
            Some(id) => {
                self.holds.add_records(id, piece.len());
                id
            }
            None => self.holds.make(hold.session, hold.span, until, piece.len()),
        };
        self.set_hold(first, new);
        self.runs.join_back(first);
    }
}
