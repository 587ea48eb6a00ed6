//! From one generation to the next (serving.md B6).

use std::sync::Arc;

use super::live::Phase;
use super::step::Step;
use crate::answer::Answer;
use crate::error::GroupError;

impl Step<'_> {
    /// Members changed: the next generation begins to form, or goes on forming.
    pub(super) fn rebalance(&mut self) {
        let now = self.now.passed_ms;
        match self.live.phase {
            Phase::Preparing { .. } => return self.try_complete(),
            Phase::Completing { .. } => self.refuse_syncs(&GroupError::RebalanceInProgress),
            Phase::Empty | Phase::Stable => {}
        }
        let longest = now + self.live.rebalance_ms();
        self.live.phase = match self.live.phase {
            Phase::Empty => {
                self.live.joined_anew = false;
                let wait = u64::from(self.core.config.initial_rebalance_delay_ms);
                Phase::Preparing {
                    until: longest.min(now + wait),
                    first: Some(longest),
                }
            }
            _ => Phase::Preparing {
                until: longest,
                first: None,
            },
        };
        self.try_complete();
    }

    /// Completes as soon as everybody is there; the first generation waits for its time.
    pub(super) fn try_complete(&mut self) {
        let all = self
            .live
            .members
            .values()
            .all(|member| member.join.is_some());
        if matches!(self.live.phase, Phase::Preparing { first: None, .. })
            && all
            && self.live.pending.is_empty()
        {
            self.complete();
        }
    }

    pub(super) fn joins_are_due(&mut self, first: Option<u64>) {
        let now = self.now.passed_ms;
        match first {
            Some(longest) if self.live.joined_anew && now < longest => {
                self.live.joined_anew = false;
                let wait = u64::from(self.core.config.initial_rebalance_delay_ms);
                self.live.phase = Phase::Preparing {
                    until: longest.min(now + wait),
                    first: Some(longest),
                };
            }
            _ => self.complete(),
        }
    }

    /// Who has not joined is out, but for static members: these keep their place until their session ends.
    fn complete(&mut self) {
        let late = |member: &super::live::LiveMember| {
            member.join.is_none() && member.stored.instance.is_none()
        };
        let members = self.live.members.iter();
        let late: Vec<Arc<str>> = members
            .filter(|(_, member)| late(member))
            .map(|(id, _)| id.clone())
            .collect();
        for member in late {
            self.remove(&member, &GroupError::UnknownMember);
        }
        if self.live.members.is_empty() {
            return self.become_empty();
        }
        let joined = |id: &str| self.live.members.get(id).is_some_and(|m| m.join.is_some());
        let leader = match joined(&self.live.leader) {
            true => Some(self.live.leader.clone()),
            false => self.live.members.keys().find(|id| joined(id)).cloned(),
        };
        let longest = self.now.passed_ms + self.live.rebalance_ms();
        let Some(leader) = leader else {
            // Only static members that are away: wait for one of them.
            self.live.phase = Phase::Preparing {
                until: longest,
                first: None,
            };
            return;
        };
        self.live.leader = leader;
        self.live.generation = next(self.live.generation);
        self.live.protocol = self.live.choose();
        self.live.phase = Phase::Completing { until: longest };
        self.tell_joined();
    }

    fn tell_joined(&mut self) {
        let names: Vec<Arc<str>> = self.live.members.keys().cloned().collect();
        for name in names {
            let Some(member) = self.live.members.get_mut(&name) else {
                continue;
            };
            (member.synced, member.fresh) = (false, false);
            let join = member.join.take();
            // A static member that is away has its session from when it was last heard.
            if let Some(join) = join {
                self.answer_joined(join, &name);
            }
        }
    }

    fn become_empty(&mut self) {
        self.live.phase = Phase::Empty;
        self.live.generation = next(self.live.generation);
        self.live.protocol = "".into();
        self.live.leader = "".into();
        // A group that never had a generation leaves nothing behind.
        if self.core.state.group(&self.group).is_some() {
            self.persist();
        }
    }

    /// Who did not ask for its assignment is out; the leader is among them, or the generation would be complete.
    pub(super) fn syncs_are_due(&mut self) {
        let members = self.live.members.iter();
        let late: Vec<Arc<str>> = members
            .filter(|(_, member)| !member.synced)
            .map(|(id, _)| id.clone())
            .collect();
        for member in late {
            self.remove(&member, &GroupError::UnknownMember);
        }
        self.rebalance();
    }

    pub(super) fn refuse_syncs(&mut self, why: &GroupError) {
        let members = self.live.members.values_mut();
        let waiting: Vec<_> = members
            .filter_map(|member| {
                member.session = self.now.passed_ms + u64::from(member.stored.session_ms);
                member.sync.take()
            })
            .collect();
        for sync in waiting {
            self.say(sync, Answer::Synced(Err(why.clone())));
        }
    }
}

/// The generation after this one; never negative, as negative ones mean "none".
fn next(generation: i32) -> i32 {
    generation.checked_add(1).unwrap_or(1)
}
