//! Cursors that are moved, and records that are passed over (serving.md B2.4, B4.4, A39, A53).

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use crate::dispatcher::Dispatcher;
use crate::durable::Moved;
use crate::effect::Effect;
use crate::facts::{SessionId, Skip};
use crate::marks::Marks;
use crate::pending::Waiting;
use crate::queues::Queues;
use crate::range::{OffsetRange, OffsetRanges};
use crate::runs::{COUNTED, NO_HOLD, Run, Runs, State};

impl Dispatcher {
    /// The cursor goes to `to`: nothing above is processed, and what consumers hold, said or were granted records for is void. They
    /// begin anew ([`Effect::Restart`]) when that is durable. A later move overtakes an earlier one; both are answered.
    pub fn seek(&mut self, to: Offset, ticket: u64, now: TimestampMs) {
        let old_base = Offset(self.runs.base());
        self.drop_window();
        self.runs = Runs::new(to.0);
        self.ahead = OffsetRanges::default();
        self.marks = Marks::default();
        self.order.clear();
        self.order_doubt = None;
        self.queues = Queues::default();
        self.waiting = 0;
        self.woken.clear();
        self.old_end = 0;
        let buffered = self.buffer.clear();
        self.effects
            .extend(buffered.into_iter().map(Effect::Forget));
        self.reads.clear();
        self.state_epoch += 1;
        self.reset_letters();
        self.gathering.move_to(Moved {
            base: to,
            state_epoch: self.state_epoch,
        });
        self.gathering.note(now);
        self.gathering
            .waiting
            .push(Waiting::Move { ticket, old_base });
    }

    /// Takes every run out. In KEYED what is held stays held for its slot (B4.4).
    fn drop_window(&mut self) {
        let firsts: Vec<u64> = self.runs.iter().map(|(first, _)| first).collect();
        for first in firsts {
            if self.runs.get(first).state == State::Held {
                self.let_go(first);
                self.haunt(first);
            }
            self.uncount(first);
            let run = self.runs.remove(first);
            self.drop_hold(run.hold, u64::from(run.len));
        }
        for session in self.sessions.values_mut() {
            session.queue.clear();
        }
    }

    /// A held run that leaves the window goes on counting for its slot, until its consumer answers or goes.
    fn haunt(&mut self, first: u64) {
        let run = self.runs.get(first);
        if run.has(COUNTED) {
            self.ghosts.insert((first, run.hold), run);
            let left = self.runs.get_mut(first);
            left.hold = NO_HOLD;
            left.flags &= !COUNTED;
        }
    }

    pub(crate) fn restart_all(&mut self) {
        let (state_epoch, base) = (self.state_epoch, Offset(self.runs.base()));
        let here = self.sessions.iter().filter(|(_, session)| !session.gone);
        let restarts = here.map(|(id, _)| Effect::Restart {
            session: *id,
            state_epoch,
            base,
        });
        self.effects.extend(restarts);
    }

    /// Records are passed over, wherever they are: what retention, TTL, the backlog quota or somebody took (B9.3, B9.4). It is no
    /// move: what is delivered besides stays valid, and an answer for them is as good as any.
    pub fn skip(&mut self, range: OffsetRange, why: Skip, now: TimestampMs) {
        let next = Offset(self.runs.next());
        let within = OffsetRange {
            first: range.first,
            end: range.end.min(next),
        };
        for first in self.cut(within) {
            let state = self.runs.get(first).state;
            match state {
                State::Acking => continue,
                State::Held => {
                    self.let_go(first);
                    self.haunt(first);
                    self.set_hold(first, NO_HOLD);
                }
                // Its copy is under way, and finishes.
                State::Dying if !self.queues.dying.contains(&first) => continue,
                State::Grace | State::Returning | State::Parked | State::Loose => {}
                _ => self.take_out(first),
            }
            self.uncount(first);
            self.pass_over(first, why, now);
            self.doubt_order();
        }
        if self.skip_ahead(range, why, now) {
            self.doubt_order();
        }
    }

    /// Answers ([`Effect::Moved`]) when all that changed until now is durable; at once where it is.
    pub fn settle(&mut self, old_base: Offset, ticket: u64) {
        let waiting = Waiting::Move { ticket, old_base };
        let flight = self.in_flight.as_mut().map(|flight| &mut flight.changes);
        match (self.gathering.is_empty(), flight) {
            (false, _) => self.gathering.waiting.push(waiting),
            (true, Some(flight)) => flight.waiting.push(waiting),
            (true, None) => self.tell(waiting),
        }
    }

    /// A consumer answered for records that it held before a move or a skip.
    pub(crate) fn free_ghosts(&mut self, session: SessionId, range: OffsetRange) {
        if self.ghosts.is_empty() {
            return;
        }
        let theirs = |run: &Run| self.holds.get(run.hold).session == session;
        let touched = self.ghosts.range(..(range.end.0, 0));
        let touched: Vec<_> = touched
            .filter(|((first, _), run)| first + u64::from(run.len) > range.first.0 && theirs(run))
            .map(|(key, _)| *key)
            .collect();
        for (first, hold) in touched {
            let run = self.ghosts[&(first, hold)];
            let end = first + u64::from(run.len);
            let gone = OffsetRange::new(first, end).within(range);
            self.ghosts.remove(&(first, hold));
            let mut keep = |from: u64, to: u64| {
                if from < to {
                    let len = (to - from) as u32;
                    self.ghosts.insert((from, hold), Run { len, ..run });
                }
            };
            keep(first, gone.first.0);
            keep(gone.end.0, end);
            self.release_ghost(Run {
                len: gone.len() as u32,
                ..run
            });
        }
    }

    pub(crate) fn free_ghosts_of(&mut self, session: SessionId) {
        let all = self.ghosts.iter();
        let theirs = all.filter(|(_, run)| self.holds.get(run.hold).session == session);
        let keys: Vec<_> = theirs.map(|(key, _)| *key).collect();
        for key in keys {
            self.free_ghost(key);
        }
    }

    pub(crate) fn free_ghost(&mut self, key: (u64, u32)) {
        if let Some(run) = self.ghosts.remove(&key) {
            self.release_ghost(run);
        }
    }

    fn release_ghost(&mut self, run: Run) {
        self.release_slots(&run);
        self.drop_hold(run.hold, u64::from(run.len));
    }
}
