//! ConsumerGroupHeartbeat of a member that joins or stays.

use std::sync::Arc;

use hulse_proto::mutant::Mutant;

use crate::answer::{Answer, MemberAnswer};
use crate::assignors;
use crate::coordinator::Coordinator;
use crate::error::GroupError;
use crate::limits::{ASSIGNED_PARTITIONS_MAX, ID_BYTES_MAX, SUBSCRIBED_TOPICS_MAX};
use crate::request::{MemberBeat, Now, RequestId};
use crate::state::{Change, ConsumerMember, Current, MemberFacts};
use crate::topics::{Partitions, compile};

/// Epoch of a heartbeat that leaves for good.
pub(super) const LEAVES: i32 = -1;
/// Epoch of a heartbeat that leaves and keeps its place; also of the member then.
pub(super) use crate::state::LEFT_STATIC;

impl Coordinator {
    pub(crate) fn member_beat(&mut self, now: Now, id: RequestId, beat: MemberBeat) {
        let answer = check(&beat).and_then(|()| match beat.epoch {
            LEAVES | LEFT_STATIC => self.member_leaves(now, &beat),
            _ => self.member_stays(now, &beat),
        });
        self.answer(&beat.group, id, Answer::Member(answer));
    }

    fn member_stays(&mut self, now: Now, beat: &MemberBeat) -> Result<MemberAnswer, GroupError> {
        let (group, joins) = (&beat.group, beat.epoch == 0);
        self.open_consumer_group(now, group, joins)?;
        let member = self.locate(now, beat)?;
        let known = self.member_of(group, &member).cloned();
        let facts = merge(known.as_ref().map(|known| &known.facts), beat);
        // One that joins has nothing, whatever it had.
        let nothing = Partitions::new();
        let owned = match joins {
            true => Some(&nothing),
            false => beat.owned.as_ref(),
        };
        self.settle(now, group, &member, facts, owned)?;
        self.restart_session(now, group, &member);
        let current = self.member_of(group, &member);
        let current = current.map(|member| member.current.clone());
        let current = current.unwrap_or_default();
        let keys = |current: &Current| current.assigned.keys().copied().collect::<Partitions>();
        let before = known.map(|known| keys(&known.current));
        let full = beat.rebalance_ms.is_some()
            && (beat.topics.is_some() || beat.pattern.is_some())
            && beat.owned.is_some();
        let assigned = keys(&current);
        // Also where an answer was lost, as its epoch shows.
        let tell =
            joins || full || beat.epoch < current.epoch || before.as_ref() != Some(&assigned);
        Ok(MemberAnswer {
            member,
            epoch: current.epoch,
            heartbeat_ms: self.config.consumer_heartbeat_ms,
            assigned: tell.then_some(assigned),
        })
    }

    pub(super) fn member_of(&self, group: &str, member: &str) -> Option<&ConsumerMember> {
        self.consumer_group(group)?.members.get(member)
    }

    /// The member that speaks; a static one may take its own place again.
    fn locate(&mut self, now: Now, beat: &MemberBeat) -> Result<Arc<str>, GroupError> {
        let joins = beat.epoch == 0;
        let Some(group) = self.consumer_group(&beat.group) else {
            return Err(GroupError::UnknownMember);
        };
        let found = match &beat.instance {
            Some(instance) => group.by_instance(instance),
            None => group.members.get_key_value(&beat.member),
        };
        let Some((id, member)) = found else {
            return match joins {
                true => self.new_member(&beat.group, &beat.member),
                false => Err(GroupError::UnknownMember),
            };
        };
        let (id, same) = (id.clone(), *id == beat.member);
        match (joins, same) {
            (true, true) => self.back_from_leave(&beat.group, &id),
            (true, false) if member.current.epoch == LEFT_STATIC => {
                let name = self.new_member(&beat.group, &beat.member)?;
                self.take_static_place(now, &beat.group, &id, &name);
                return Ok(name);
            }
            (true, false) => return Err(GroupError::UnreleasedInstance),
            (false, false) => return Err(GroupError::FencedInstance),
            (false, true) => check_epoch(member, beat)?,
        }
        Ok(id)
    }

    /// An id for one more member, if there is room.
    pub(super) fn new_member(
        &mut self,
        group: &str,
        said: &Arc<str>,
    ) -> Result<Arc<str>, GroupError> {
        self.check_room(group, said)?;
        Ok(match said.is_empty() {
            true => self.new_member_id(""),
            false => said.clone(),
        })
    }

    /// One more fits, with all that were told to come back.
    pub(super) fn check_room(&self, group: &str, but: &str) -> Result<(), GroupError> {
        let members = self
            .consumer_group(group)
            .map_or(0, |group| group.members.len());
        let pending = self.pending_ids(group).filter(|id| ***id != *but).count();
        match members + pending >= self.config.members_max() {
            true => Err(GroupError::GroupFull),
            false => Ok(()),
        }
    }

    fn back_from_leave(&mut self, group: &Arc<str>, id: &Arc<str>) {
        let current = self.member_of(group, id).map(|known| known.current.clone());
        if let Some(current) = current.filter(|current| current.epoch == LEFT_STATIC) {
            let current = Current {
                epoch: 0,
                ..current
            };
            let member = id.clone();
            self.apply(group, Change::Current { member, current });
        }
    }

    /// A new process of a static member gets what the former had; the group's epoch stays.
    pub(super) fn take_static_place(
        &mut self,
        now: Now,
        group: &Arc<str>,
        old: &Arc<str>,
        new: &Arc<str>,
    ) {
        let Some(known) = self.member_of(group, old).cloned() else {
            return;
        };
        let Some(consumer) = self.consumer_group(group) else {
            return;
        };
        let (target, epoch) = (consumer.target_of(old), consumer.target_epoch);
        let at = now.wall_ms;
        let member = old.clone();
        self.apply(group, Change::MemberGone { at, member });
        self.consumer_live(group).forget(old);
        let member = new.clone();
        let facts = known.facts;
        self.apply(group, Change::Member { member, facts });
        let members = [(new.clone(), target)].into();
        self.apply(group, Change::Target { epoch, members });
        let current = Current {
            epoch: 0,
            ..known.current
        };
        let member = new.clone();
        self.apply(group, Change::Current { member, current });
    }

    /// What a member said counts; it goes one step towards its target.
    pub(super) fn settle(
        &mut self,
        now: Now,
        group: &Arc<str>,
        member: &Arc<str>,
        facts: MemberFacts,
        owned: Option<&Partitions>,
    ) -> Result<(), GroupError> {
        let known = self.member_of(group, member).map(|known| &known.facts);
        let new = known.is_none();
        let changed = known.is_none_or(|known| {
            known.topics != facts.topics
                || known.pattern != facts.pattern
                || known.assignor != facts.assignor
        });
        if changed {
            self.check_demand(group, member, &facts)?;
        }
        if known != Some(&facts) {
            let member = member.clone();
            self.apply(group, Change::Member { member, facts });
        }
        if changed {
            self.aim(now, group, new || changed);
        }
        self.reconcile(group, member, owned);
        self.watch_revocation(now, group, member);
        Ok(())
    }

    fn reconcile(&mut self, group: &Arc<str>, member: &Arc<str>, owned: Option<&Partitions>) {
        let Some(consumer) = self.consumer_group(group) else {
            return;
        };
        let Some(known) = consumer.members.get(member) else {
            return;
        };
        let free = |partition: &hulse_proto::id::PartitionId| {
            let mut holder = consumer.holder(*partition).into_iter();
            holder.all(|holder| holder == member) || self.mutation.is(Mutant::GivenBeforeReleased)
        };
        let target = consumer.target_of(member);
        let epoch = consumer.target_epoch;
        let next = super::reconcile::next_step(&known.current, &target, epoch, owned, free);
        if next != known.current {
            let held = |current: &Current| current.assigned.len() + current.revoking.len();
            let released = held(&next) < held(&known.current);
            let (member, current) = (member.clone(), next);
            self.apply(group, Change::Current { member, current });
            if released {
                self.changed(group);
            }
        }
    }
}

/// The epoch a member says is the one it has; or the one before, where an answer was lost and it has no more than it should.
fn check_epoch(member: &ConsumerMember, beat: &MemberBeat) -> Result<(), GroupError> {
    let current = &member.current;
    if beat.epoch == current.epoch {
        return Ok(());
    }
    let owns_no_more = beat.owned.as_ref().is_some_and(|owned| {
        let mut owned = owned.iter();
        owned.all(|partition| current.assigned.contains_key(partition))
    });
    match beat.epoch < current.epoch && beat.epoch == current.previous_epoch && owns_no_more {
        true => Ok(()),
        false => Err(GroupError::FencedMemberEpoch),
    }
}

/// What can be said of a heartbeat without the group.
fn check(beat: &MemberBeat) -> Result<(), GroupError> {
    let invalid = |why| Err(GroupError::InvalidRequest(why));
    let ids = [&beat.member, &beat.client.id, &beat.client.host];
    let ids = ids.into_iter().chain(&beat.instance).chain(&beat.rack);
    let names = beat.topics.iter().flatten();
    if ids.chain(names).any(|id| id.len() > ID_BYTES_MAX) {
        return invalid("an id is too long");
    }
    if beat
        .topics
        .as_ref()
        .is_some_and(|topics| topics.len() > SUBSCRIBED_TOPICS_MAX)
        || beat
            .owned
            .as_ref()
            .is_some_and(|owned| owned.len() > ASSIGNED_PARTITIONS_MAX)
    {
        return invalid("too many topics or partitions");
    }
    if beat.epoch < LEFT_STATIC {
        return invalid("no such epoch");
    }
    if beat.epoch == LEFT_STATIC && beat.instance.is_none() {
        return invalid("only a static member keeps its place");
    }
    if beat.epoch != 0 && beat.member.is_empty() {
        return invalid("a member without an id");
    }
    if beat.instance.as_deref() == Some("") {
        return invalid("an empty static id");
    }
    if let Some(assignor) = &beat.assignor
        && !assignors::ALL.contains(&&**assignor)
    {
        return Err(GroupError::UnsupportedAssignor);
    }
    if let Some(pattern) = beat.pattern.as_ref().filter(|pattern| !pattern.is_empty()) {
        compile(pattern)?;
    }
    if beat.epoch != 0 {
        return Ok(());
    }
    if beat.rebalance_ms.is_none_or(|time| time == 0) {
        return invalid("a member that joins says how long it takes to give partitions up");
    }
    if beat.topics.is_none() && beat.pattern.is_none() {
        return invalid("a member that joins says which topics it wants");
    }
    match beat.owned.as_ref().is_some_and(|owned| !owned.is_empty()) {
        true => invalid("a member that joins has no partitions"),
        false => Ok(()),
    }
}

/// What is said counts; what is not said stays. One that joins says everything.
fn merge(known: Option<&MemberFacts>, beat: &MemberBeat) -> MemberFacts {
    let base = known.filter(|_| beat.epoch != 0).cloned();
    let mut facts = base.unwrap_or_default();
    // The static id is said when joining only.
    let instance = known.and_then(|known| known.instance.clone());
    facts.instance = beat.instance.clone().or(instance);
    facts.client = beat.client.clone();
    facts.classic = None;
    if let Some(rack) = &beat.rack {
        facts.rack = Some(rack.clone());
    }
    if let Some(time) = beat.rebalance_ms {
        facts.rebalance_ms = time;
    }
    if let Some(topics) = &beat.topics {
        facts.topics.clone_from(topics);
    }
    if let Some(pattern) = &beat.pattern {
        facts.pattern = (!pattern.is_empty()).then(|| pattern.clone());
    }
    if let Some(assignor) = &beat.assignor {
        facts.assignor = Some(assignor.clone());
    }
    facts
}
