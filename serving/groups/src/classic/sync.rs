//! SyncGroup: the leader's assignment makes the generation durable, and goes to everybody.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hulse_proto::mutant::Mutant;

use super::live::Phase;
use super::step::Step;
use crate::answer::{Answer, Synced};
use crate::coordinator::Coordinator;
use crate::error::GroupError;
use crate::limits::{GROUP_BYTES_MAX, MEMBER_BYTES_MAX};
use crate::request::{Now, RequestId, Sync};

impl Coordinator {
    pub(crate) fn sync(&mut self, now: Now, id: RequestId, sync: Sync) {
        let group = sync.group.clone();
        if self.has_consumer_members(&group) {
            let answer = self.sync_in_consumer_group(now, &sync);
            return self.answer(&group, id, Answer::Synced(answer));
        }
        self.classic_step(now, &group, |step| {
            if let Err(error) = step.sync(id, sync) {
                step.say(id, Answer::Synced(Err(error)));
            }
        });
    }
}

impl Step<'_> {
    fn sync(&mut self, id: RequestId, sync: Sync) -> Result<(), GroupError> {
        let live = &mut self.live;
        live.check_generation(&sync.member, sync.instance.as_ref(), sync.generation)?;
        let differs =
            |said: &Option<Arc<str>>, known| said.as_ref().is_some_and(|said| said != known);
        if differs(&sync.protocol_type, &live.protocol_type)
            || differs(&sync.protocol, &live.protocol)
        {
            return Err(GroupError::InconsistentProtocol);
        }
        live.heard(&sync.member, self.now);
        match live.phase {
            Phase::Empty => Err(GroupError::UnknownMember),
            Phase::Preparing { .. } => Err(GroupError::RebalanceInProgress),
            Phase::Completing { .. } => {
                let leads = live.leader == sync.member;
                if !leads && self.core.mutation.is(Mutant::SyncBeforeLeader) {
                    self.tell_assignment(id, &sync.member);
                    return Ok(());
                }
                self.wait_for_assignment(id, &sync.member);
                if leads {
                    self.assign(sync.assignments);
                }
                Ok(())
            }
            Phase::Stable => {
                self.tell_assignment(id, &sync.member);
                Ok(())
            }
        }
    }

    fn wait_for_assignment(&mut self, id: RequestId, member: &str) {
        let Some(member) = self.live.members.get_mut(member) else {
            return;
        };
        member.synced = true;
        if let Some(former) = member.sync.replace(id) {
            let answer = Answer::Synced(Err(GroupError::RebalanceInProgress));
            self.say(former, answer);
        }
    }

    /// The leader has spoken: a member that it does not name gets nothing.
    fn assign(&mut self, assignments: Vec<(Arc<str>, Bytes)>) {
        let mut assignments: BTreeMap<_, _> = assignments.into_iter().collect();
        let mut largest = 0;
        for (id, member) in &mut self.live.members {
            let given = assignments.remove(id).unwrap_or_default();
            largest = largest.max(given.len());
            member.stored.assignment = given;
        }
        if largest > MEMBER_BYTES_MAX || self.live.size() > GROUP_BYTES_MAX {
            self.refuse_syncs(&GroupError::GroupTooLarge);
            return self.rebalance();
        }
        self.live.phase = Phase::Stable;
        self.persist();
        let members = self.live.members.iter_mut();
        let waiting: Vec<_> = members
            .filter_map(|(id, member)| Some((member.sync.take()?, id.clone())))
            .collect();
        for (id, member) in waiting {
            self.live.heard(&member, self.now);
            self.tell_assignment(id, &member);
        }
    }

    fn tell_assignment(&mut self, id: RequestId, member: &str) {
        let member = self.live.members.get(member);
        let synced = Synced {
            protocol_type: self.live.protocol_type.clone(),
            protocol: self.live.protocol.clone(),
            assignment: member.map_or_else(Bytes::new, |known| known.stored.assignment.clone()),
        };
        self.say(id, Answer::Synced(Ok(synced)));
    }
}
