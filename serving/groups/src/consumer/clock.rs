//! Timers of members: sessions, revocations that take too long, classic members that do not join again, applications that stand.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::answer::Effect;
use crate::coordinator::Coordinator;
use crate::request::{Now, Progress};
use crate::state::MemberState;

impl Coordinator {
    /// A member was heard.
    pub(crate) fn restart_session(&mut self, now: Now, group: &Arc<str>, member: &Arc<str>) {
        let Some(known) = self.member_of(group, member) else {
            return;
        };
        let session = match &known.facts.classic {
            Some(classic) => classic.session_ms,
            None => self.config.consumer_session_ms,
        };
        let until = now.passed_ms + u64::from(session);
        let live = self.consumer_live(group);
        live.sessions.insert(member.clone(), until);
    }

    /// A member that has to give partitions up has its rebalance time for it.
    pub(crate) fn watch_revocation(&mut self, now: Now, group: &Arc<str>, member: &Arc<str>) {
        let Some(known) = self.member_of(group, member) else {
            return;
        };
        let (epoch, state) = (known.current.epoch, known.current.state);
        let until = now.passed_ms + u64::from(known.facts.rebalance_ms);
        let live = self.consumer_live(group);
        match state {
            MemberState::Unrevoked => {
                let watched = live.revoking.get(member).map(|(epoch, _)| *epoch);
                if watched != Some(epoch) {
                    live.revoking.insert(member.clone(), (epoch, until));
                }
            }
            _ => {
                live.revoking.remove(member);
            }
        }
    }

    pub(crate) fn tick_consumer(&mut self, now: Now, group: &Arc<str>) {
        let at = now.passed_ms;
        let live = self.consumer_live(group);
        live.pending.retain(|_, until| *until > at);
        let sessions = live.sessions.iter().filter(|(_, until)| **until <= at);
        let revoking = live.revoking.iter().filter(|(_, (_, until))| *until <= at);
        let rejoins = live.rejoins.iter().filter(|(_, until)| **until <= at);
        let out = sessions.map(|(member, _)| member);
        let out = out.chain(revoking.map(|(member, _)| member));
        let out = out.chain(rejoins.map(|(member, _)| member));
        let mut out: BTreeSet<Arc<str>> = out.cloned().collect();
        out.extend(self.stand_still(now, group));
        for member in &out {
            self.take_out(now, group, member);
        }
        if !out.is_empty() {
            self.after_removal(now, group);
        }
    }

    /// Warns of applications that stand; answers those that did not move since.
    fn stand_still(&mut self, now: Now, group: &Arc<str>) -> Vec<Arc<str>> {
        let grace = self.config.idle_grace_ms;
        let live = self.consumer_live(group);
        let due = live.idle.iter_mut();
        let mut told = Vec::new();
        for (member, idle) in due.filter(|(_, idle)| idle.is_due(now)) {
            told.push((member.clone(), idle.warn(now, grace)));
        }
        let mut fenced = Vec::new();
        for (member, again) in told {
            self.effect(Effect::Idle {
                group: group.clone(),
                member: member.clone(),
                fenced: again,
            });
            if again {
                fenced.push(member);
            }
        }
        fenced
    }

    pub(crate) fn on_progress(&mut self, now: Now, progress: &Progress) {
        if self.member_of(&progress.group, &progress.member).is_none() {
            return;
        }
        let idle_max = self.config.idle_max_ms;
        let live = self.consumer_live(&progress.group);
        let idle = live.idle.entry(progress.member.clone());
        let idle = idle.or_default();
        idle.heard(now, progress, idle_max);
    }
}
