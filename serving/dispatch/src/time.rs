//! Time passed (serving.md B3.5, B3.7, B3.10, B3.14, B4.10).

use hulse_proto::time::TimestampMs;

use crate::answers::Return;
use crate::dispatcher::Dispatcher;
use crate::range::OffsetRange;
use crate::runs::State;

impl Dispatcher {
    pub(crate) fn tick(&mut self, now: TimestampMs) {
        self.expire_locks(now);
        while let Some(first) = self.queues.first_due(now) {
            self.take_out(first);
            self.free(first, now);
        }
        if self.old_end > 0 && self.grace_until.is_some_and(|until| until <= now) {
            self.end_grace(now);
        }
        self.end_absences(now);
        self.retry_letters(now);
        self.reads.tick(now);
    }

    /// What is held without an answer comes back; what was answered, if only provisionally, does not (B3.7).
    fn expire_locks(&mut self, now: TimestampMs) {
        while let Some(hold) = self.holds.take_expired(now) {
            let held = self.holds.get(hold);
            for first in self.held_firsts(held.span, hold) {
                self.give_back(first, Return::expired(), now);
            }
            let ghosts = self.ghosts.keys().copied();
            let ghosts: Vec<_> = ghosts.filter(|(_, other)| *other == hold).collect();
            for key in ghosts {
                self.free_ghost(key);
            }
        }
    }

    fn end_grace(&mut self, now: TimestampMs) {
        let old = OffsetRange::new(0, self.old_end);
        self.old_end = 0;
        for first in self.runs.firsts(old) {
            if self.runs.get(first).state == State::Grace {
                self.free(first, now);
            }
        }
    }

    fn end_absences(&mut self, now: TimestampMs) {
        let overdue = self.slots.as_ref().map(|slots| slots.overdue(now));
        for session in overdue.into_iter().flatten() {
            self.reassign(|dispatcher| {
                if let Some(slots) = &mut dispatcher.slots {
                    slots.leave(session);
                }
            });
        }
    }
}
