//! Members that leave, or are taken out.

use std::sync::Arc;

use super::beat::LEFT_STATIC;
use crate::answer::MemberAnswer;
use crate::coordinator::Coordinator;
use crate::error::GroupError;
use crate::request::{MemberBeat, Now};
use crate::state::{Change, Current};

impl Coordinator {
    pub(super) fn member_leaves(
        &mut self,
        now: Now,
        beat: &MemberBeat,
    ) -> Result<MemberAnswer, GroupError> {
        let group = &beat.group;
        let Some(consumer) = self.consumer_group(group) else {
            return Err(GroupError::UnknownMember);
        };
        let found = match &beat.instance {
            Some(instance) => consumer.by_instance(instance),
            None => consumer.members.get_key_value(&beat.member),
        };
        let (id, member) = found.ok_or(GroupError::UnknownMember)?;
        if *id != beat.member {
            return Err(GroupError::FencedInstance);
        }
        let (id, current) = (id.clone(), member.current.clone());
        match beat.epoch {
            // Its place is kept until its session ends.
            LEFT_STATIC => {
                let current = Current {
                    epoch: LEFT_STATIC,
                    ..current
                };
                let member = id.clone();
                self.apply(group, Change::Current { member, current });
                self.consumer_live(group).forget(&id);
                self.restart_session(now, group, &id);
            }
            _ => self.remove_member(now, group, &id),
        }
        Ok(MemberAnswer {
            member: id,
            epoch: beat.epoch,
            heartbeat_ms: self.config.consumer_heartbeat_ms,
            assigned: None,
        })
    }

    /// A member is out: what it held is free, and the others get a new target.
    pub(super) fn remove_member(&mut self, now: Now, group: &Arc<str>, member: &Arc<str>) {
        self.take_out(now, group, member);
        self.after_removal(now, group);
    }

    pub(super) fn take_out(&mut self, now: Now, group: &Arc<str>, member: &Arc<str>) {
        let (at, member) = (now.wall_ms, member.clone());
        self.consumer_live(group).forget(&member);
        self.apply(group, Change::MemberGone { at, member });
    }

    /// With classic members only, the group is a classic one again.
    pub(super) fn after_removal(&mut self, now: Now, group: &Arc<str>) {
        let Some(consumer) = self.consumer_group(group) else {
            return;
        };
        let mut members = consumer.members.values();
        let classic = members.all(|member| member.facts.classic.is_some());
        match classic && !consumer.members.is_empty() {
            true => self.downgrade(now, group),
            false => self.aim(now, group, true),
        }
    }
}
