//! A classic client in a group of the newer protocol: epochs are its generations, and the coordinator assigns (serving.md B7).
//!
//! It is told to join again when its epoch is behind, when it has to give partitions up, and when what it waits for is free. With an
//! eager protocol it has given everything up when it joins; with a cooperative one its bytes say what it has.

use std::sync::Arc;

use super::migrate::translate;
use crate::answer::{Joined, Synced};
use crate::coordinator::Coordinator;
use crate::embedded::CONSUMER;
use crate::error::GroupError;
use crate::limits::GROUP_BYTES_MAX;
use crate::request::{Beat, Join, Leave, Leaver, Now, Sync};
use crate::state::{ClassicMember, ConsumerGroup, ConsumerMember, MemberState};

impl Coordinator {
    pub(crate) fn join_consumer_group(
        &mut self,
        now: Now,
        join: &Join,
    ) -> Result<Joined, GroupError> {
        let group = &join.group;
        let consumer = self
            .consumer_group(group)
            .ok_or(GroupError::GroupNotFound)?;
        if &*join.protocol_type != CONSUMER || !consumer.classic_members_agree(join) {
            return Err(GroupError::InconsistentProtocol);
        }
        let said = ClassicMember::of(join);
        if consumer.classic_bytes() + said.size() > GROUP_BYTES_MAX {
            return Err(GroupError::GroupTooLarge);
        }
        let (facts, subscription) = translate(&said, &join.protocols[0])?;
        let owned = self.topics.partitions(&subscription.owned);
        let member = self.locate_classic(now, join)?;
        self.settle(now, group, &member, facts, Some(&owned))?;
        self.restart_session(now, group, &member);
        self.consumer_live(group).rejoins.remove(&member);
        let known = self.member_of(group, &member);
        Ok(Joined {
            generation: known.map_or(0, |known| known.current.epoch),
            member,
            protocol_type: CONSUMER.into(),
            protocol: join.protocols[0].name.clone(),
            leader: "".into(),
            skip_assignment: false,
            members: Vec::new(),
        })
    }

    fn locate_classic(&mut self, now: Now, join: &Join) -> Result<Arc<str>, GroupError> {
        let group = &join.group;
        let consumer = self
            .consumer_group(group)
            .ok_or(GroupError::GroupNotFound)?;
        let by_instance = join.instance.as_ref();
        let holder = by_instance.and_then(|instance| consumer.by_instance(instance));
        let holder = holder.map(|(id, _)| id.clone());
        let known = consumer.members.contains_key(&join.member);
        match (by_instance, holder, join.member.is_empty()) {
            // A new process of a static member: the former is fenced.
            (Some(instance), Some(old), true) => {
                let name = self.new_member_id(instance);
                self.take_static_place(now, group, &old, &name);
                Ok(name)
            }
            (Some(instance), None, true) => {
                let name = self.new_member_id(instance);
                self.new_member(group, &name)
            }
            (Some(_), Some(old), false) if old != join.member => Err(GroupError::FencedInstance),
            (Some(_), None, false) => Err(GroupError::UnknownMember),
            (None, _, true) => {
                let name = self.new_member_id(&join.client.id);
                if !join.id_required {
                    return self.new_member(group, &name);
                }
                self.check_room(group, "")?;
                let until = now.passed_ms + u64::from(join.session_ms);
                let live = self.consumer_live(group);
                live.pending.insert(name.clone(), until);
                Err(GroupError::MemberIdRequired(name))
            }
            _ if known => Ok(join.member.clone()),
            // Nobody that was taken out comes in again by its old id: it would go on with what it had.
            _ if self.pending_ids(group).any(|id| *id == join.member) => {
                let name = self.new_member(group, &join.member)?;
                self.consumer_live(group).pending.remove(&name);
                Ok(name)
            }
            _ => Err(GroupError::UnknownMember),
        }
    }

    /// The classic member that speaks, at its generation.
    fn classic_member(
        &self,
        group: &str,
        member: &str,
        instance: Option<&Arc<str>>,
        generation: i32,
    ) -> Result<&ConsumerMember, GroupError> {
        let consumer = self
            .consumer_group(group)
            .ok_or(GroupError::UnknownMember)?;
        if let Some(instance) = instance {
            match consumer.by_instance(instance) {
                None => return Err(GroupError::UnknownMember),
                Some((id, _)) if **id != *member => return Err(GroupError::FencedInstance),
                Some(_) => {}
            }
        }
        let known = consumer.members.get(member);
        let known = known.filter(|known| known.facts.classic.is_some());
        let known = known.ok_or(GroupError::UnknownMember)?;
        match known.current.epoch == generation {
            true => Ok(known),
            false => Err(GroupError::IllegalGeneration),
        }
    }

    pub(crate) fn sync_in_consumer_group(
        &mut self,
        now: Now,
        sync: &Sync,
    ) -> Result<Synced, GroupError> {
        let (group, instance) = (&sync.group, sync.instance.as_ref());
        let known = self.classic_member(group, &sync.member, instance, sync.generation)?;
        let behind = self
            .consumer_group(group)
            .is_some_and(|consumer| consumer.epoch > known.current.epoch);
        let assignment = self.topics.assignment(&known.current.assigned);
        let revokes = known.current.state == MemberState::Unrevoked;
        let classic = known.facts.classic.as_ref();
        let protocol = classic.and_then(|classic| classic.protocols.first());
        let protocol = protocol.map_or_else(|| "".into(), |protocol| protocol.name.clone());
        self.restart_session(now, group, &sync.member);
        // One that gives partitions up gets what it keeps first, and is told to come back by its heartbeat.
        if behind && !revokes {
            self.expect_rejoin(now, group, &sync.member);
            return Err(GroupError::RebalanceInProgress);
        }
        Ok(Synced {
            protocol_type: CONSUMER.into(),
            protocol,
            assignment,
        })
    }

    pub(crate) fn beat_in_consumer_group(
        &mut self,
        now: Now,
        beat: &Beat,
    ) -> Result<(), GroupError> {
        let (group, instance) = (&beat.group, beat.instance.as_ref());
        let known = self.classic_member(group, &beat.member, instance, beat.generation)?;
        let Some(consumer) = self.consumer_group(group) else {
            return Err(GroupError::UnknownMember);
        };
        let rejoin = match known.current.state {
            MemberState::Unrevoked => true,
            MemberState::Unreleased => consumer.can_get_more(&beat.member, known),
            MemberState::Stable => false,
        };
        let rejoin = rejoin || known.current.epoch < consumer.epoch;
        self.restart_session(now, group, &beat.member);
        match rejoin {
            true => {
                self.expect_rejoin(now, group, &beat.member);
                Err(GroupError::RebalanceInProgress)
            }
            false => Ok(()),
        }
    }

    /// It has its rebalance time to come back.
    fn expect_rejoin(&mut self, now: Now, group: &Arc<str>, member: &Arc<str>) {
        let known = self.member_of(group, member);
        let time = known.map_or(0, |known| known.facts.rebalance_ms);
        let until = now.passed_ms + u64::from(time);
        let live = self.consumer_live(group);
        live.rejoins.entry(member.clone()).or_insert(until);
    }

    pub(crate) fn leave_consumer_group(
        &mut self,
        now: Now,
        leave: &Leave,
    ) -> Vec<(Leaver, Result<(), GroupError>)> {
        let mut any = false;
        let mut left = Vec::with_capacity(leave.members.len());
        for leaver in &leave.members {
            let found = self.find_leaver(&leave.group, leaver);
            if let Ok(member) = &found {
                self.take_out(now, &leave.group, member);
                any = true;
            }
            left.push((leaver.clone(), found.map(|_| ())));
        }
        if any {
            self.after_removal(now, &leave.group);
        }
        left
    }

    fn find_leaver(&self, group: &str, leaver: &Leaver) -> Result<Arc<str>, GroupError> {
        let consumer = self
            .consumer_group(group)
            .ok_or(GroupError::UnknownMember)?;
        let found = match &leaver.instance {
            Some(instance) => consumer.by_instance(instance),
            None => consumer.members.get_key_value(&leaver.member),
        };
        let (id, _) = found.ok_or(GroupError::UnknownMember)?;
        match leaver.member.is_empty() || *id == leaver.member {
            true => Ok(id.clone()),
            false => Err(GroupError::FencedInstance),
        }
    }
}

impl ConsumerGroup {
    /// A protocol of the newcomer is one that all classic members have, so that the group can be classic again.
    fn classic_members_agree(&self, join: &Join) -> bool {
        let others = self.members.iter().filter(|(id, _)| **id != join.member);
        let mut others = others.filter_map(|(_, member)| member.facts.classic.as_ref());
        let mut common: Vec<_> = join.protocols.iter().map(|known| &known.name).collect();
        others.all(|other| {
            common.retain(|name| other.protocols.iter().any(|known| known.name == **name));
            !common.is_empty()
        })
    }

    fn classic_bytes(&self) -> usize {
        let members = self.members.values();
        let classic = members.filter_map(|member| member.facts.classic.as_ref());
        let protocols = classic.flat_map(|classic| &classic.protocols);
        protocols
            .map(|known| known.name.len() + known.metadata.len())
            .sum()
    }

    /// Something that a member waits for is held by nobody any more.
    fn can_get_more(&self, id: &str, member: &ConsumerMember) -> bool {
        let target = self.target_of(id);
        let mut lacking = target
            .iter()
            .filter(|partition| !member.current.assigned.contains_key(partition));
        lacking.any(|partition| self.holder(*partition).is_none())
    }
}
