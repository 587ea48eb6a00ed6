//! List, describe and delete groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::core::Coordinator;
use crate::answer::{Answer, Description, GroupState, GroupType, Listing, MemberDescription};
use crate::error::GroupError;
use crate::request::RequestId;
use crate::state::{Change, ClassicMember, ConsumerGroup, ConsumerMember, GroupKind, MemberState};

impl Coordinator {
    pub(super) fn list(&mut self, id: RequestId) {
        let mut all = BTreeMap::new();
        let durable = self.state.groups().map(|(name, _)| name);
        // A group in its first rebalance is not durable yet.
        for name in durable.chain(self.live.keys()) {
            if let Some(listing) = self.listing(name) {
                all.insert(name.clone(), listing);
            }
        }
        self.answer_all(id, Answer::Listed(all.into_values().collect()));
    }

    fn listing(&self, name: &Arc<str>) -> Option<Listing> {
        let listing = |protocol_type: &Arc<str>, state, kind| Listing {
            group: name.clone(),
            protocol_type: protocol_type.clone(),
            state,
            kind,
        };
        if let Some(live) = self.classic_live(name) {
            let kind = GroupType::Classic;
            return Some(listing(&live.protocol_type, live.state(), kind));
        }
        Some(match &self.state.group(name)?.kind {
            GroupKind::Simple => listing(&"".into(), GroupState::Empty, GroupType::Classic),
            GroupKind::Classic(classic) => {
                let kind = GroupType::Classic;
                listing(&classic.protocol_type, GroupState::Empty, kind)
            }
            GroupKind::Consumer(group) => {
                listing(&"consumer".into(), group.doing(), GroupType::Consumer)
            }
        })
    }

    pub(super) fn describe(&mut self, id: RequestId, name: &Arc<str>) {
        let answer = self.description(name).ok_or(GroupError::GroupNotFound);
        self.answer(name, id, Answer::Described(answer));
    }

    fn description(&self, name: &Arc<str>) -> Option<Description> {
        let mut description = Description {
            listing: self.listing(name)?,
            protocol: "".into(),
            epoch: 0,
            target_epoch: 0,
            members: Vec::new(),
        };
        if let Some(live) = self.classic_live(name) {
            description.protocol = live.protocol.clone();
            description.epoch = live.generation;
            let members = live.members();
            let members = members.map(|(id, member)| {
                classic_description(id, member, &live.protocol, live.generation)
            });
            description.members = members.collect();
        } else if let Some(GroupKind::Classic(classic)) =
            self.state.group(name).map(|group| &group.kind)
        {
            // Without anybody in it.
            description.epoch = classic.generation;
        } else if let Some(group) = self.consumer_group(name) {
            description.protocol = group.assignor.clone();
            (description.epoch, description.target_epoch) = (group.epoch, group.target_epoch);
            let members = group.members.iter();
            description.members = members
                .map(|(id, member)| consumer_description(id, member, group))
                .collect();
        }
        Some(description)
    }

    pub(super) fn delete_group(&mut self, id: RequestId, name: &Arc<str>) {
        let answer = self.try_delete(name);
        self.answer(name, id, Answer::Deleted(answer));
    }

    fn try_delete(&mut self, name: &Arc<str>) -> Result<(), GroupError> {
        let joining = self.classic_live(name).is_some_and(|live| !live.is_empty());
        if joining || self.has_consumer_members(name) {
            return Err(GroupError::NonEmptyGroup);
        }
        if self.state.group(name).is_none() {
            return Err(GroupError::GroupNotFound);
        }
        self.live.remove(name);
        self.apply(name, Change::Gone);
        Ok(())
    }
}

fn classic_description(
    id: &Arc<str>,
    member: &ClassicMember,
    protocol: &str,
    generation: i32,
) -> MemberDescription {
    MemberDescription {
        member: id.clone(),
        instance: member.instance.clone(),
        rack: None,
        client: member.client.clone(),
        epoch: generation,
        metadata: member.metadata(protocol).cloned().unwrap_or_default(),
        assignment: member.assignment.clone(),
        topics: Vec::new(),
        pattern: None,
        assigned: Default::default(),
        target: Default::default(),
        classic: true,
    }
}

fn consumer_description(
    id: &Arc<str>,
    member: &ConsumerMember,
    group: &ConsumerGroup,
) -> MemberDescription {
    let facts = &member.facts;
    MemberDescription {
        member: id.clone(),
        instance: facts.instance.clone(),
        rack: facts.rack.clone(),
        client: facts.client.clone(),
        epoch: member.current.epoch,
        metadata: Bytes::new(),
        assignment: Bytes::new(),
        topics: facts.topics.iter().cloned().collect(),
        pattern: facts.pattern.clone(),
        assigned: member.current.assigned.keys().copied().collect(),
        target: group.target_of(id),
        classic: facts.classic.is_some(),
    }
}

impl ConsumerGroup {
    /// What the group does, as Kafka names it.
    fn doing(&self) -> GroupState {
        let settled = |member: &ConsumerMember| {
            member.current.state == MemberState::Stable && member.current.epoch == self.target_epoch
        };
        if self.members.is_empty() {
            GroupState::Empty
        } else if self.epoch > self.target_epoch {
            GroupState::Assigning
        } else if self.members.values().all(settled) {
            GroupState::Stable
        } else {
            GroupState::Reconciling
        }
    }
}
