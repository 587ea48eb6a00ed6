//! JoinGroup.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::live::{LiveMember, Phase};
use super::step::Step;
use crate::answer::{Answer, Joined, JoinedMember};
use crate::config::GroupsConfig;
use crate::coordinator::Coordinator;
use crate::error::GroupError;
use crate::limits::{GROUP_BYTES_MAX, ID_BYTES_MAX, MEMBER_BYTES_MAX, PROTOCOLS_MAX};
use crate::request::{Join, Now, RequestId};
use crate::state::ClassicMember;

impl Coordinator {
    pub(crate) fn join(&mut self, now: Now, id: RequestId, join: Join) {
        let group = join.group.clone();
        if let Err(error) = check(&self.config, &join) {
            return self.answer(&group, id, Answer::Joined(Err(error)));
        }
        if self.has_consumer_members(&group) {
            let answer = self.join_consumer_group(now, &join);
            return self.answer(&group, id, Answer::Joined(answer));
        }
        self.classic_step(now, &group, |step| step.join(id, &join));
    }
}

/// What can be said of a join without the group.
fn check(config: &GroupsConfig, join: &Join) -> Result<(), GroupError> {
    if join.session_ms < config.session_min_ms || join.session_ms > config.session_max_ms {
        return Err(GroupError::InvalidSession);
    }
    if join.protocol_type.is_empty() || join.protocols.is_empty() {
        return Err(GroupError::InconsistentProtocol);
    }
    let ids = [
        &join.member,
        &join.protocol_type,
        &join.client.id,
        &join.client.host,
    ];
    let ids = ids.into_iter().chain(&join.instance);
    let names = join.protocols.iter().map(|known| &known.name);
    if ids.chain(names).any(|id| id.len() > ID_BYTES_MAX) {
        return Err(GroupError::InvalidRequest("an id is too long"));
    }
    if join.protocols.len() > PROTOCOLS_MAX {
        return Err(GroupError::InvalidRequest("too many protocols"));
    }
    let names: BTreeSet<_> = join.protocols.iter().map(|known| &known.name).collect();
    if names.len() < join.protocols.len() {
        return Err(GroupError::InvalidRequest("a protocol is named twice"));
    }
    let bytes = join.protocols.iter().map(|known| known.metadata.len());
    match bytes.sum::<usize>() > MEMBER_BYTES_MAX {
        true => Err(GroupError::GroupTooLarge),
        false => Ok(()),
    }
}

impl ClassicMember {
    pub(crate) fn of(join: &Join) -> Self {
        Self {
            instance: join.instance.clone(),
            client: join.client.clone(),
            session_ms: join.session_ms,
            rebalance_ms: join.rebalance_ms,
            protocols: join.protocols.clone(),
            assignment: bytes::Bytes::new(),
        }
    }
}

impl Step<'_> {
    fn join(&mut self, id: RequestId, join: &Join) {
        let answer = match (&join.instance, join.member.is_empty()) {
            (Some(instance), true) => match self.live.by_instance(instance).cloned() {
                Some(old) => self.replace(id, join, &old),
                None => {
                    let name = self.core.new_member_id(instance);
                    self.add(id, join, name)
                }
            },
            (None, true) => self.join_unknown(id, join),
            (_, false) => self.join_known(id, join),
        };
        if let Err(error) = answer {
            self.say(id, Answer::Joined(Err(error)));
        }
    }

    /// Without an id: it gets one, and comes back with it (KIP-394), so that one that goes away leaves nothing.
    fn join_unknown(&mut self, id: RequestId, join: &Join) -> Result<(), GroupError> {
        self.check_protocols(join)?;
        self.check_room(join)?;
        let name = self.core.new_member_id(&join.client.id);
        if !join.id_required {
            return self.add(id, join, name);
        }
        let until = self.now.passed_ms + u64::from(join.session_ms);
        self.live.pending.insert(name.clone(), until);
        Err(GroupError::MemberIdRequired(name))
    }

    fn join_known(&mut self, id: RequestId, join: &Join) -> Result<(), GroupError> {
        if join.instance.is_none() && self.live.pending.contains_key(&join.member) {
            self.add(id, join, join.member.clone())?;
            return Ok(());
        }
        self.live
            .check_member(&join.member, join.instance.as_ref())?;
        self.check_protocols(join)?;
        self.check_size(join, &join.member)?;
        let known = &self.live.members[&join.member];
        let same = known.stored.protocols == join.protocols;
        let leads = self.live.leader == join.member;
        match self.live.phase {
            Phase::Empty => Err(GroupError::UnknownMember),
            // It did not get the answer.
            Phase::Completing { .. } if same => {
                self.answer_joined(id, &join.member);
                Ok(())
            }
            Phase::Stable if same && !leads => {
                self.answer_joined(id, &join.member);
                Ok(())
            }
            _ => {
                self.renew(id, join);
                self.rebalance();
                Ok(())
            }
        }
    }

    /// A known member says everything anew, and waits.
    pub(super) fn renew(&mut self, id: RequestId, join: &Join) {
        let Some(member) = self.live.members.get_mut(&join.member) else {
            return;
        };
        let assignment = std::mem::take(&mut member.stored.assignment);
        member.stored = ClassicMember {
            assignment,
            ..ClassicMember::of(join)
        };
        member.beat(self.now);
        let former = member.join.replace(id);
        if let Some(former) = former {
            let answer = Answer::Joined(Err(GroupError::RebalanceInProgress));
            self.say(former, answer);
        }
    }

    fn add(&mut self, id: RequestId, join: &Join, name: Arc<str>) -> Result<(), GroupError> {
        self.check_protocols(join)?;
        self.check_room(join)?;
        self.live.pending.remove(&name);
        if self.live.members.is_empty() {
            self.live.protocol_type = join.protocol_type.clone();
        }
        let mut member = LiveMember {
            stored: ClassicMember::of(join),
            session: 0,
            join: Some(id),
            sync: None,
            synced: false,
            fresh: true,
        };
        member.beat(self.now);
        self.live.members.insert(name, member);
        self.live.joined_anew = true;
        self.rebalance();
        Ok(())
    }

    /// Only the newcomer is refused (case KA-06).
    pub(super) fn check_protocols(&self, join: &Join) -> Result<(), GroupError> {
        let Some(common) = self.live.common(&join.member) else {
            return Ok(());
        };
        let mut offered = join.protocols.iter();
        let fits = join.protocol_type == self.live.protocol_type
            && offered.any(|known| common.contains(&known.name));
        match fits {
            true => Ok(()),
            false => Err(GroupError::InconsistentProtocol),
        }
    }

    fn check_room(&self, join: &Join) -> Result<(), GroupError> {
        let members = self.live.members.len() + self.live.pending.len();
        let pending = self.live.pending.contains_key(&join.member);
        if members - usize::from(pending) >= self.core.config.members_max() {
            return Err(GroupError::GroupFull);
        }
        self.check_size(join, &join.member)
    }

    /// The group stays one record with what this join says instead of what the member said before, if it is known: else small members
    /// would get in, and grow.
    pub(super) fn check_size(&self, join: &Join, member: &str) -> Result<(), GroupError> {
        let known = self.live.members.get(member);
        // It keeps its assignment.
        let said = known.map_or(0, |known| {
            known.stored.size() - known.stored.assignment.len()
        });
        match self.live.size() - said + ClassicMember::of(join).size() > GROUP_BYTES_MAX {
            true => Err(GroupError::GroupTooLarge),
            false => Ok(()),
        }
    }

    /// The member's place in the generation as it is.
    pub(super) fn answer_joined(&mut self, id: RequestId, member: &Arc<str>) {
        let joined = self.joined(member);
        self.say(id, Answer::Joined(Ok(joined)));
    }

    pub(super) fn joined(&mut self, name: &Arc<str>) -> Joined {
        self.live.heard(name, self.now);
        let members = match self.live.leader == *name {
            true => self.everybody(),
            false => Vec::new(),
        };
        Joined {
            member: name.clone(),
            generation: self.live.generation,
            protocol_type: self.live.protocol_type.clone(),
            protocol: self.live.protocol.clone(),
            leader: self.live.leader.clone(),
            skip_assignment: false,
            members,
        }
    }

    fn everybody(&self) -> Vec<JoinedMember> {
        let members = self.live.members.iter();
        let members = members.map(|(id, member)| JoinedMember {
            member: id.clone(),
            instance: member.stored.instance.clone(),
            metadata: member
                .stored
                .metadata(&self.live.protocol)
                .cloned()
                .unwrap_or_default(),
        });
        members.collect()
    }
}
