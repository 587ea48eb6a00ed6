//! A subscription that somebody paused (serving.md B3.8): nothing is delivered until it is resumed, or its time comes.

use hulse_proto::time::TimestampMs;

use crate::answers::Return;
use crate::dispatcher::Dispatcher;
use crate::marks::Why;

impl Dispatcher {
    /// Nothing is delivered before `until`; a time that is not to come resumes. What consumers hold comes back without counting, and they
    /// begin anew ([`crate::Effect::Restart`]), so that what waits at a client is not worked on. An ack of what an application works
    /// on already is taken all the same: nobody else had it since.
    pub fn pause_until(&mut self, until: TimestampMs, now: TimestampMs) {
        let was_paused = self.is_paused(now);
        self.paused_until = until;
        if was_paused || !self.is_paused(now) {
            return;
        }
        let here = self.sessions.iter().filter(|(_, session)| !session.gone);
        let here: Vec<_> = here.map(|(id, _)| *id).collect();
        for id in here {
            self.give_back_all(id, Return::whole(false, Why::None), now);
        }
        self.restart_all();
    }

    /// Until when nothing is delivered, if that is to come.
    pub fn paused(&self, now: TimestampMs) -> Option<TimestampMs> {
        self.is_paused(now).then_some(self.paused_until)
    }

    pub(crate) fn is_paused(&self, now: TimestampMs) -> bool {
        self.paused_until > now
    }

    /// When it is over by itself.
    pub(crate) fn pause_ends(&self) -> Option<TimestampMs> {
        Some(self.paused_until).filter(|at| *at > self.pumped_at && *at < TimestampMs::MAX)
    }
}
