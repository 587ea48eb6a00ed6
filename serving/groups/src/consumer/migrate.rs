//! From the classic protocol to the newer one and back, while members work (serving.md B7).
//!
//! The first member of the newer protocol makes the group one of that protocol; classic members stay, with what they have. When the
//! last one of the newer protocol is gone, the group is classic again.

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::id::PartitionId;
use hulse_proto::mutant::Mutant;

use crate::answer::Answer;
use crate::assignors;
use crate::classic::ClassicLive;
use crate::coordinator::Coordinator;
use crate::embedded::{CONSUMER, Subscription, decode_assignment, encode_assignment};
use crate::error::GroupError;
use crate::request::{Now, Protocol};
use crate::state::{
    Change, ClassicFacts, ClassicGroup, ClassicMember, ConsumerGroup, Current, GroupKind,
    MemberFacts, MemberState,
};
use crate::topics::{Partitions, TopicsView};

impl TopicsView {
    /// Partitions by id; those of topics that are not there any more are left out.
    pub(super) fn partitions(&self, named: &[(Arc<str>, u32)]) -> Partitions {
        let found = named.iter().filter_map(|(name, index)| {
            let topic = self.get(name)?.id;
            Some(PartitionId {
                topic,
                index: *index,
            })
        });
        found.collect()
    }

    /// The bytes of an assignment.
    pub(super) fn assignment(&self, partitions: &BTreeMap<PartitionId, i32>) -> bytes::Bytes {
        let mut named: BTreeMap<Arc<str>, Vec<u32>> = BTreeMap::new();
        for partition in partitions.keys() {
            if let Some(name) = self.name(partition.topic) {
                named.entry(name.clone()).or_default().push(partition.index);
            }
        }
        encode_assignment(&named)
    }
}

/// What a classic member said, in words of the newer protocol.
pub(super) fn translate(
    member: &ClassicMember,
    protocol: &Protocol,
) -> Result<(MemberFacts, Subscription), GroupError> {
    let read = Subscription::decode(&protocol.metadata);
    let subscription = read.ok_or(GroupError::InconsistentProtocol)?;
    let facts = MemberFacts {
        instance: member.instance.clone(),
        rack: subscription.rack.clone(),
        client: member.client.clone(),
        rebalance_ms: member.rebalance_ms,
        topics: subscription.topics.clone(),
        pattern: None,
        assignor: None,
        classic: Some(ClassicFacts {
            session_ms: member.session_ms,
            protocols: member.protocols.clone(),
        }),
    };
    Ok((facts, subscription))
}

impl Coordinator {
    /// The group is of the newer protocol from here on, if a member that joins asks for it.
    pub(super) fn open_consumer_group(
        &mut self,
        now: Now,
        group: &Arc<str>,
        joins: bool,
    ) -> Result<(), GroupError> {
        let classic = self.classic_live(group);
        match classic {
            Some(_) if !joins => return Err(GroupError::UnknownMember),
            Some(live) if !live.is_empty() => return self.upgrade(now, group),
            _ => {}
        }
        if self.consumer_group(group).is_some() {
            return Ok(());
        }
        if !joins {
            return Err(GroupError::UnknownMember);
        }
        let epoch = match self.state.group(group).map(|group| &group.kind) {
            Some(GroupKind::Classic(classic)) => classic.generation,
            _ => 0,
        };
        self.begin_consumer_group(now, group, epoch);
        Ok(())
    }

    fn begin_consumer_group(&mut self, now: Now, group: &Arc<str>, epoch: i32) {
        let change = Change::Epoch {
            at: now.wall_ms,
            epoch,
            assignor: assignors::DEFAULT.into(),
            topics: BTreeMap::new(),
        };
        self.apply(group, change);
    }

    /// Classic members go on with what they have, as members of the newer protocol at the epoch of their generation.
    fn upgrade(&mut self, now: Now, group: &Arc<str>) -> Result<(), GroupError> {
        let Some(live) = self.classic_live(group) else {
            return Ok(());
        };
        let epoch = live.generation;
        let claims = !self.mutation.is(Mutant::ClaimsForgotten);
        let members = converted(live, &self.topics, claims)?;
        let waiting: Vec<_> = live.waiting_answers().collect();
        self.begin_consumer_group(now, group, epoch);
        let targets = members.iter();
        let targets = targets
            .map(|(id, (_, current))| (id.clone(), current.assigned.keys().copied().collect()));
        let targets = targets.collect();
        for (member, (facts, current)) in members {
            let id = member.clone();
            self.apply(group, Change::Member { member, facts });
            let member = id.clone();
            self.apply(group, Change::Current { member, current });
            self.restart_session(now, group, &id);
            self.watch_revocation(now, group, &id);
        }
        let members = targets;
        self.apply(group, Change::Target { epoch, members });
        for (id, answer) in waiting {
            self.answer(group, id, answer);
        }
        Ok(())
    }

    /// Only classic members are left: they go on from a classic generation, and assign among themselves.
    pub(super) fn downgrade(&mut self, now: Now, group: &Arc<str>) {
        let Some(consumer) = self.consumer_group(group) else {
            return;
        };
        let members = consumer.members.iter();
        let members =
            members.map(|(id, _)| (id.clone(), classic_member(consumer, id, &self.topics)));
        let classic = ClassicGroup {
            generation: consumer.epoch,
            protocol_type: CONSUMER.into(),
            protocol: "".into(),
            leader: "".into(),
            members: members.collect(),
        };
        self.go_on_classic(now, group, &classic);
    }
}

type Converted = BTreeMap<Arc<str>, (MemberFacts, Current)>;

/// What members have, and with `with_claims` what they may still hold although their leader gave it away: they are to show that it is
/// gone.
fn converted(
    live: &ClassicLive,
    topics: &TopicsView,
    with_claims: bool,
) -> Result<Converted, GroupError> {
    if &*live.protocol_type != CONSUMER {
        return Err(GroupError::InconsistentProtocol);
    }
    let mut taken = Partitions::new();
    let mut members = BTreeMap::new();
    let mut claims = Vec::new();
    for (id, member) in live.members() {
        let mut offered = member.protocols.iter();
        let chosen = offered.find(|known| known.name == live.protocol);
        let protocol = chosen.or(member.protocols.first());
        let protocol = protocol.ok_or(GroupError::InconsistentProtocol)?;
        let (facts, subscription) = translate(member, protocol)?;
        claims.push((id, topics.partitions(&subscription.owned)));
        let named =
            decode_assignment(&member.assignment).ok_or(GroupError::InconsistentProtocol)?;
        let assigned = topics.partitions(&named).into_iter();
        // A leader may have given one partition to two members; the newer protocol never does.
        let assigned = assigned.filter(|partition| taken.insert(*partition));
        let current = Current {
            epoch: live.generation,
            previous_epoch: live.generation,
            assigned: assigned
                .map(|partition| (partition, live.generation))
                .collect(),
            ..Current::default()
        };
        members.insert(id.clone(), (facts, current));
    }
    claims.retain(|_| with_claims);
    for (id, owned) in claims {
        let held = owned
            .into_iter()
            .filter(|partition| taken.insert(*partition));
        if let Some((_, current)) = members.get_mut(id) {
            current.revoking = held.collect();
            if !current.revoking.is_empty() {
                current.state = MemberState::Unrevoked;
            }
        }
    }
    Ok(members)
}

fn classic_member(consumer: &ConsumerGroup, id: &str, topics: &TopicsView) -> ClassicMember {
    let Some(member) = consumer.members.get(id) else {
        return ClassicMember::default();
    };
    let classic = member.facts.classic.clone().unwrap_or_default();
    ClassicMember {
        instance: member.facts.instance.clone(),
        client: member.facts.client.clone(),
        session_ms: classic.session_ms,
        rebalance_ms: member.facts.rebalance_ms,
        protocols: classic.protocols,
        assignment: topics.assignment(&member.current.assigned),
    }
}

impl ClassicLive {
    /// What waits is told to join again.
    fn waiting_answers(&self) -> impl Iterator<Item = (crate::request::RequestId, Answer)> {
        let again = || GroupError::RebalanceInProgress;
        let joins = self.waiting_joins();
        let joins = joins.map(move |id| (id, Answer::Joined(Err(again()))));
        let syncs = self.waiting_syncs();
        joins.chain(syncs.map(move |id| (id, Answer::Synced(Err(again())))))
    }
}
