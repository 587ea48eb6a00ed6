//! Static members (KIP-345, case GR-04): who has the static id is one process; a newer one takes its place and its partitions.

use std::sync::Arc;

use hulse_proto::mutant::Mutant;

use super::live::Phase;
use super::step::Step;
use crate::answer::Answer;
use crate::embedded::{Subscription, decode_assignment};
use crate::error::GroupError;
use crate::request::{Join, RequestId};
use crate::state::ClassicMember;

impl Step<'_> {
    /// A process without an id says a static id that a member has: it is that member from now on, and the former is fenced.
    pub(super) fn replace(
        &mut self,
        id: RequestId,
        join: &Join,
        old: &Arc<str>,
    ) -> Result<(), GroupError> {
        let as_old = Join {
            member: old.clone(),
            ..join.clone()
        };
        self.check_protocols(&as_old)?;
        self.check_size(join, old)?;
        let instance = join.instance.as_deref().unwrap_or_default();
        let name = self.core.new_member_id(instance);
        let led = self.live.leader == *old;
        let Some(mut member) = self.live.members.get(old).cloned() else {
            return Err(GroupError::UnknownMember);
        };
        if !self.core.mutation.is(Mutant::FormerInstanceStays) {
            self.remove(old, &GroupError::FencedInstance);
        }
        if led {
            self.live.leader = name.clone();
        }
        let unchanged = self.wants_the_same(&member.stored, join);
        member.stored = ClassicMember {
            assignment: member.stored.assignment,
            ..ClassicMember::of(join)
        };
        (member.join, member.sync) = (None, None);
        member.beat(self.now);
        let stays = self.live.phase == Phase::Stable && unchanged;
        self.live.members.insert(name.clone(), member);
        match stays && self.live.choose() == self.live.protocol {
            true => self.take_over(id, join, &name, old),
            false => {
                if let Some(member) = self.live.members.get_mut(&name) {
                    member.join = Some(id);
                }
                self.rebalance();
            }
        }
        Ok(())
    }

    /// The generation goes on with the new id, durably, so that also after a move of the coordinator exactly the older process is
    /// fenced.
    fn take_over(&mut self, id: RequestId, join: &Join, name: &Arc<str>, old: &Arc<str>) {
        self.persist();
        let mut joined = self.joined(name);
        if joined.leader == *name {
            match join.skip_assignment {
                true => joined.skip_assignment = true,
                // It must not assign anew, and does not understand to be told so: as if the former still led.
                false => {
                    joined.leader = old.clone();
                    joined.members.clear();
                }
            }
        }
        self.say(id, Answer::Joined(Ok(joined)));
    }

    /// Its bytes of the chosen protocol ask for the same topics. What a process owned when it joined is in them too, and is no
    /// reason for a rebalance; unless the former was about to give some of it up and to join again, so that others get it.
    fn wants_the_same(&self, known: &ClassicMember, join: &Join) -> bool {
        let mut offered = join.protocols.iter();
        let new = offered.find(|offered| offered.name == self.live.protocol);
        let (Some(old), Some(new)) = (known.metadata(&self.live.protocol), new) else {
            return false;
        };
        let read = (
            Subscription::decode(old),
            Subscription::decode(&new.metadata),
        );
        let (Some(old), Some(read)) = read else {
            return *old == new.metadata;
        };
        let assigned = decode_assignment(&known.assignment).unwrap_or_default();
        old.topics == read.topics && old.owned.iter().all(|part| assigned.contains(part))
    }
}
