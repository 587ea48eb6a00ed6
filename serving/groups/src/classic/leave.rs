//! LeaveGroup, for one member or several (v3+), by id or by static id.

use super::step::Step;
use crate::answer::Answer;
use crate::coordinator::Coordinator;
use crate::error::GroupError;
use crate::request::{Leave, Leaver, Now, RequestId};

impl Coordinator {
    pub(crate) fn leave(&mut self, now: Now, id: RequestId, leave: &Leave) {
        let group = &leave.group;
        let left: Vec<_> = match self.has_consumer_members(group) {
            true => self.leave_consumer_group(now, leave),
            false => self.classic_step(now, group, |step| step.leave(&leave.members)),
        };
        self.answer(group, id, Answer::Left(Ok(left)));
    }
}

impl Step<'_> {
    fn leave(&mut self, leavers: &[Leaver]) -> Vec<(Leaver, Result<(), GroupError>)> {
        let members = self.live.members.len();
        let results = leavers
            .iter()
            .map(|leaver| (leaver.clone(), self.leaves(leaver)));
        let results = results.collect();
        match self.live.members.len() < members {
            true => self.rebalance(),
            // An id that was given out and is not waited for any more.
            false => self.try_complete(),
        }
        results
    }

    fn leaves(&mut self, leaver: &Leaver) -> Result<(), GroupError> {
        let by_instance = leaver.instance.as_ref();
        let found = by_instance.and_then(|instance| self.live.by_instance(instance));
        let member = match (by_instance, leaver.member.is_empty()) {
            (Some(_), true) => found.cloned().ok_or(GroupError::UnknownMember)?,
            _ => leaver.member.clone(),
        };
        if by_instance.is_none() && self.live.pending.remove(&member).is_some() {
            return Ok(());
        }
        self.live.check_member(&member, by_instance)?;
        self.remove(&member, &GroupError::UnknownMember);
        Ok(())
    }
}
