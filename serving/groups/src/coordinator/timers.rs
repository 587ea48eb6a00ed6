//! Passing time: sessions, rebalances, offsets that nobody uses any more.

use std::sync::Arc;

use hulse_proto::mutant::Mutant;

use super::core::Coordinator;
use super::live::{Live, LiveKind};
use crate::classic::ClassicLive;
use crate::request::{Now, RequestId};
use crate::state::GroupKind;

/// Between two looks for offsets that have expired.
const SWEEP_MS: u64 = 60_000;

impl Coordinator {
    /// Gives each group that was replayed its timers.
    pub(super) fn begin(&mut self, now: Now) {
        let names: Vec<Arc<str>> = self.state.groups().map(|(name, _)| name.clone()).collect();
        for name in names {
            self.begin_group(now, &name);
            self.touch(&name);
        }
        self.set_timers();
    }

    fn begin_group(&mut self, now: Now, name: &Arc<str>) {
        let Some(group) = self.state.group(name) else {
            return;
        };
        if self.mutation.is(Mutant::SessionsForgotten) {
            return;
        }
        match &group.kind {
            GroupKind::Simple => {}
            GroupKind::Classic(classic) => {
                let live = ClassicLive::replayed(classic, now);
                self.live.insert(name.clone(), Live::classic(live));
            }
            GroupKind::Consumer(consumer) => {
                let members: Vec<_> = consumer.members.keys().cloned().collect();
                for member in members {
                    self.restart_session(now, name, &member);
                    self.watch_revocation(now, name, &member);
                }
            }
        }
    }

    /// Looks again at the timers of all groups that were touched.
    pub(super) fn set_timers(&mut self) {
        for name in std::mem::take(&mut self.touched) {
            let Some(live) = self.live.get_mut(&name) else {
                continue;
            };
            let next = live.next();
            if let Some(old) = live.due.filter(|_| live.due != next) {
                self.timers.remove(&(old, name.clone()));
            }
            live.due = next;
            match next {
                Some(at) => {
                    self.timers.insert((at, name));
                }
                // Nothing of a group is left beside what is durable.
                None => {
                    self.live.remove(&name);
                }
            }
        }
    }

    pub(super) fn on_tick(&mut self, now: Now) {
        while let Some((at, name)) = self.timers.first().cloned() {
            if at > now.passed_ms {
                break;
            }
            self.timers.remove(&(at, name.clone()));
            if let Some(live) = self.live.get_mut(&name) {
                live.due = None;
                match live.kind {
                    LiveKind::Classic(_) => self.tick_classic(now, &name),
                    LiveKind::Consumer(_) => self.tick_consumer(now, &name),
                }
            }
            self.touch(&name);
        }
        if now.passed_ms >= self.next_sweep {
            self.next_sweep = now.passed_ms + SWEEP_MS;
            self.expire_offsets(now);
        }
    }

    /// Whoever asked is not there any more.
    pub(super) fn on_gone(&mut self, now: Now, id: RequestId) {
        let waits = |live: &Live| match &live.kind {
            LiveKind::Classic(live) => live.waits(id),
            LiveKind::Consumer(_) => false,
        };
        let found = self.live.iter().find(|(_, live)| waits(live));
        if let Some(name) = found.map(|(name, _)| name.clone()) {
            self.classic_gone(now, &name, id);
        }
    }
}
