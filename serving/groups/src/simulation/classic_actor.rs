//! A classic client: join, sync, heartbeat; eager or cooperative; and, if it leads, it assigns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::actor::{Actor, Speaks};
use crate::embedded::{Subscription, decode_assignment, encode_assignment};
use crate::testing::{at, join, protocol, subscription};
use crate::{Answer, Beat, GroupError, Join, Joined, Leave, Leaver, Partitions, Request, Sync};

/// Partitions of the topic that all clients read.
pub(super) const PARTITIONS: u32 = 7;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Join,
    Sync,
    Beat,
}

fn named(owned: &Partitions) -> BTreeMap<Arc<str>, Vec<u32>> {
    match owned.is_empty() {
        true => BTreeMap::new(),
        false => [(
            Arc::from("t1"),
            owned.iter().map(|part| part.index).collect(),
        )]
        .into(),
    }
}

impl Actor {
    pub(super) fn classic_request(&mut self) -> Request {
        let instance = self.instance.clone();
        if self.leaves {
            self.gone = true;
            return Request::Leave(Leave {
                group: "g".into(),
                members: vec![Leaver {
                    member: self.member.clone(),
                    instance,
                }],
            });
        }
        match self.stage {
            Stage::Join => self.join_request(),
            Stage::Sync => Request::Sync(Sync {
                group: "g".into(),
                member: self.member.clone(),
                instance,
                generation: self.epoch,
                protocol_type: None,
                protocol: None,
                assignments: std::mem::take(&mut self.assigns),
            }),
            Stage::Beat => Request::Beat(Beat {
                group: "g".into(),
                member: self.member.clone(),
                instance,
                generation: self.epoch,
            }),
        }
    }

    fn join_request(&mut self) -> Request {
        // An eager client gives everything up before it joins.
        if self.speaks == Speaks::Eager {
            self.owned.clear();
        }
        let name = match self.speaks {
            Speaks::Eager => "range",
            _ => "cooperative-sticky",
        };
        Request::Join(Box::new(Join {
            instance: self.instance.clone(),
            id_required: true,
            rebalance_ms: 15_000,
            protocols: vec![protocol(name, subscription(&["t1"], &named(&self.owned)))],
            ..join("g", &self.member)
        }))
    }

    pub(super) fn hears_classic(&mut self, answer: Answer, now: u64) {
        self.next = now + 100;
        match answer {
            Answer::Joined(Ok(joined)) => self.is_in(joined),
            Answer::Synced(Ok(synced)) => {
                let parts = decode_assignment(&synced.assignment).unwrap();
                let got: Partitions = parts.into_iter().map(|(_, index)| at(1, index)).collect();
                // A cooperative client that gave something up joins again, so that others get it.
                let gave_up = self.speaks == Speaks::Cooperative && !self.owned.is_subset(&got);
                self.owned = got;
                self.owned_at = self.epoch;
                self.stage = if gave_up { Stage::Join } else { Stage::Beat };
                self.next = now + if gave_up { 100 } else { 3_000 };
            }
            Answer::Beat(Ok(())) => self.next = now + 3_000,
            Answer::Joined(Err(error)) | Answer::Synced(Err(error)) | Answer::Beat(Err(error)) => {
                self.is_refused(error);
            }
            Answer::Left(_) => {}
            other => panic!("{other:?}"),
        }
    }

    fn is_refused(&mut self, error: GroupError) {
        match error {
            GroupError::MemberIdRequired(id) => self.member = id,
            GroupError::RebalanceInProgress => {}
            GroupError::IllegalGeneration => {
                self.owned.clear();
                self.epoch = 0;
            }
            GroupError::UnknownMember | GroupError::FencedInstance => {
                self.lose_everything();
                self.member = "".into();
            }
            GroupError::Busy => {}
            other => panic!("{other:?}"),
        }
        self.stage = Stage::Join;
    }

    fn is_in(&mut self, joined: Joined) {
        self.member = joined.member.clone();
        self.epoch = joined.generation;
        self.stage = Stage::Sync;
        self.assigns = match joined.leader == joined.member && !joined.skip_assignment {
            true => assign(&joined, self.speaks),
            false => Vec::new(),
        };
    }
}

/// The leader's assignor: even; the cooperative one leaves out what another member still has.
fn assign(joined: &Joined, speaks: Speaks) -> Vec<(Arc<str>, bytes::Bytes)> {
    let members = joined.members.iter().map(|known| {
        let read = Subscription::decode(&known.metadata).unwrap();
        let owned: BTreeSet<u32> = read.owned.into_iter().map(|(_, index)| index).collect();
        (known.member.clone(), owned)
    });
    let members: Vec<(Arc<str>, BTreeSet<u32>)> = members.collect();
    let share = |place: usize| {
        let all = PARTITIONS as usize;
        all / members.len() + usize::from(place < all % members.len())
    };
    let mut given: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); members.len()];
    let mut claimed = BTreeSet::new();
    for (place, (_, owned)) in members.iter().enumerate() {
        let kept = owned.iter().filter(|index| claimed.insert(**index));
        given[place] = kept.take(share(place)).copied().collect();
    }
    let taken: BTreeSet<u32> = given.iter().flatten().copied().collect();
    let mut free: Vec<u32> = (0..PARTITIONS)
        .filter(|index| !taken.contains(index))
        .collect();
    for (place, parts) in given.iter_mut().enumerate() {
        while parts.len() < share(place) {
            let Some(index) = free.pop() else { break };
            parts.insert(index);
        }
    }
    let result = members
        .iter()
        .zip(&mut given)
        .map(|((member, owned), parts)| {
            if speaks == Speaks::Cooperative {
                parts.retain(|index| {
                    owned.contains(index) || !members.iter().any(|(_, other)| other.contains(index))
                });
            }
            let parts = parts.iter().map(|index| at(1, *index)).collect();
            (member.clone(), encode_assignment(&named(&parts)))
        });
    result.collect()
}
