//! Consumers come, go, pause, and give credit (serving.md B3.8, B3.13, B4.3, B9.1).

use std::collections::BTreeSet;

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use crate::answers::Return;
use crate::dispatcher::Dispatcher;
use crate::facts::{AttachFault, Leave, NewSession, SessionId};
use crate::marks::Why;
use crate::policy::SESSIONS_MAX;
use crate::runs::State;
use crate::session::Session;

impl Dispatcher {
    /// A consumer comes. It has no credit: what an earlier session of it had is gone with that (B9.1). `handed`: below it, records
    /// were given to it before, by another owner; they wait for its acks during the grace (B3.14).
    ///
    /// # Errors
    /// See [`AttachFault`]; nothing changed.
    pub fn attach(
        &mut self,
        new: &NewSession,
        handed: Offset,
        now: TimestampMs,
    ) -> Result<SessionId, AttachFault> {
        let here = self.sessions.values().filter(|session| !session.gone);
        if here.count() >= SESSIONS_MAX {
            return Err(AttachFault::Full);
        }
        let id = SessionId(self.next_session);
        self.sessions.insert(id, Session::new(new));
        let joined = self.reassign(|dispatcher| match &mut dispatcher.slots {
            Some(slots) => slots.join(new, id),
            None => Ok(()),
        });
        if let Err(fault) = joined {
            self.sessions.remove(&id);
            return Err(fault);
        }
        self.next_session += 1;
        let in_time = self.grace_until.is_none_or(|until| until > now);
        if in_time {
            self.old_end = self.old_end.max(handed.0);
        }
        if self.grace_until.is_none() {
            self.grace_until = Some(now + self.policy.reattach_grace_ms);
        }
        Ok(id)
    }

    /// A consumer goes. Its slots move first, then what it held comes back at once (B3.13, B4.4).
    pub fn detach(&mut self, id: SessionId, how: Leave, now: TimestampMs) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.gone) else {
            return;
        };
        session.gone = true;
        let grace = self.policy.name_grace_ms;
        match &mut self.slots {
            Some(slots) if grace > 0 => slots.away(id, now + grace),
            _ => {}
        }
        self.reassign(|dispatcher| {
            if let (Some(slots), true) = (&mut dispatcher.slots, grace == 0) {
                slots.leave(id);
            }
        });
        let failed = how == Leave::Crashed;
        self.give_back_all(id, Return::whole(failed, Why::Crashed), now);
        self.free_ghosts_of(id);
        self.forget_gone(id);
    }

    /// Everything it holds comes back without counting, and nothing is sent to it until it resumes.
    pub fn pause(&mut self, id: SessionId, now: TimestampMs) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.paused = true;
            self.give_back_all(id, Return::whole(false, Why::None), now);
        }
    }

    /// It takes records again.
    pub fn resume(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.paused = false;
        }
    }

    /// It lets so much more be sent. What is granted to a session that is gone is void.
    pub fn grant(&mut self, id: SessionId, records: u64, bytes: u64) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.grant(records, bytes);
        }
    }

    /// Takes back what it was granted and has not used; answers it, in records and bytes. What it holds it keeps.
    pub fn revoke(&mut self, id: SessionId) -> (u64, u64) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return (0, 0);
        };
        let left = (session.records.max(0), session.bytes.max(0));
        session.records -= left.0;
        session.bytes -= left.1;
        (left.0 as u64, left.1 as u64)
    }

    /// The consumer knows of the last move: it works on nothing that it was sent before (B4.4).
    pub fn settled(&mut self, id: SessionId, state_epoch: u32) {
        if state_epoch == self.state_epoch {
            self.free_ghosts_of(id);
        }
    }

    pub(crate) fn give_back_all(&mut self, id: SessionId, how: Return, now: TimestampMs) {
        for hold in self.holds.of_session(id) {
            let span = self.holds.get(hold).span;
            for first in self.held_firsts(span, hold) {
                self.give_back(first, how, now);
            }
        }
    }

    /// Runs within a span that a hold holds now.
    pub(crate) fn held_firsts(&self, span: crate::range::OffsetRange, hold: u32) -> Vec<u64> {
        let mut firsts = self.runs.firsts(span);
        firsts.retain(|first| {
            let run = self.runs.get(*first);
            run.hold == hold && run.state == State::Held
        });
        firsts
    }

    /// Slots change hands: everything that waits by slot is placed anew.
    pub(crate) fn reassign<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R {
        let mut all = BTreeSet::new();
        if self.slots.is_some() {
            all.extend(self.queues.stalled.values().flatten().copied());
            all.extend(self.queues.stalled_stamps.iter().copied());
            all.extend(self.queues.hashless.iter().copied());
            let sessions = self.sessions.values();
            all.extend(sessions.flat_map(|session| session.queue.iter().copied()));
        }
        for first in &all {
            self.take_out(*first);
        }
        let result = change(self);
        for first in &all {
            self.place(*first);
        }
        (self.stamps_woken, self.stamps_left) = (false, false);
        result
    }
}
