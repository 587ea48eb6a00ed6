//! What must hold at each moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::id::PartitionId;

use super::actor::{Actor, Speaks};
use crate::testing::World;
use crate::{Commit, GroupKind, GroupType};

/// What was seen of a run.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// Who owned a partition at an epoch.
    owners: BTreeMap<(PartitionId, i32), Arc<str>>,
    /// Who owned it last.
    last: BTreeMap<PartitionId, Arc<str>>,
    /// Partitions that came to another member.
    pub(super) handed_over: u64,
}

impl Oracle {
    /// A client heard what it owns.
    pub(super) fn owns(&mut self, actor: &Actor) {
        if actor.owned_at <= 0 {
            return;
        }
        let who = actor.identity();
        for partition in &actor.owned {
            let known = self.owners.entry((*partition, actor.owned_at));
            let known = known.or_insert_with(|| who.clone());
            assert_eq!(
                *known, who,
                "{partition:?} has two owners at epoch {}",
                actor.owned_at
            );
            if self
                .last
                .insert(*partition, who.clone())
                .is_some_and(|former| former != who)
            {
                self.handed_over += 1;
            }
        }
    }

    /// No two of those that the coordinator takes for members own the same.
    pub(super) fn is_disjoint(&self, world: &World, actors: &[Actor]) {
        let mut owned: BTreeMap<PartitionId, Arc<str>> = BTreeMap::new();
        // Between join and sync a cooperative client goes on with what it had.
        let since = |actor: &Actor| match actor.speaks {
            Speaks::Cooperative => actor.epoch,
            _ => actor.owned_at,
        };
        for actor in actors
            .iter()
            .filter(|actor| is_valid(world, actor, since(actor)))
        {
            for partition in &actor.owned {
                let other = owned.insert(*partition, actor.identity());
                assert_eq!(other, None, "{partition:?} also at {}", actor.identity());
            }
        }
        has_each_instance_once(world);
        let Some(group) = world.coordinator.consumer_group("g") else {
            return;
        };
        let mut held = BTreeMap::new();
        for (id, member) in &group.members {
            let current = &member.current;
            for partition in current.assigned.keys().chain(&current.revoking) {
                let other = held.insert(*partition, id);
                assert_eq!(other, None, "{partition:?} is held by two");
                assert_eq!(group.holder(*partition), Some(id));
            }
        }
    }

    /// A commit was taken.
    pub(super) fn committed(&self, world: &World, actor: &Actor, partition: PartitionId) {
        assert!(
            is_valid(world, actor, actor.epoch) || actor.speaks == Speaks::Newer,
            "{actor:?} is fenced"
        );
        if let Some(group) = world.coordinator.consumer_group("g")
            && let Some(holder) = group.holder(partition)
        {
            assert_eq!(**holder, *actor.member, "{partition:?} is another's");
        }
    }

    /// A commit that was long under way was taken: at the epoch that it says its member had the partition, and nobody had it since.
    pub(super) fn committed_late(&self, world: &World, commit: &Commit) {
        let partition = commit.offsets[0].partition;
        if let Some(live) = world.coordinator.classic_live("g") {
            let known = live.check_generation(&commit.member, None, commit.epoch);
            assert_eq!(known, Ok(()), "{commit:?} is of a generation that is over");
        } else if let Some(group) = world.coordinator.consumer_group("g") {
            let current = &group.members[&commit.member].current;
            let since = match group.members[&commit.member].facts.classic {
                Some(_) => Some(&current.epoch),
                None => current.assigned.get(&partition),
            };
            let had =
                commit.epoch == current.epoch || since.is_some_and(|since| *since <= commit.epoch);
            assert!(had, "{commit:?} is of an epoch that is over: {current:?}");
        }
    }

    /// Everybody has what it should, and all of it is somebody's.
    pub(super) fn is_settled(&self, world: &mut World, actors: &[Actor], partitions: u32) {
        let description = world.describe("g");
        let mut owned = Vec::new();
        for actor in actors {
            assert!(
                is_valid(world, actor, actor.epoch),
                "{actor:?} is out of {description:?}"
            );
            assert_eq!(
                actor.epoch, description.epoch,
                "{actor:?} in {description:?}"
            );
            owned.extend(actor.owned.iter().map(|partition| partition.index));
        }
        owned.sort_unstable();
        let all: Vec<u32> = (0..partitions).collect();
        assert_eq!(owned, all, "{description:?} {actors:?}");
        assert_eq!(description.members.len(), actors.len(), "{description:?}");
        let newer = actors.iter().any(|actor| actor.speaks == Speaks::Newer);
        let kind = if newer {
            GroupType::Consumer
        } else {
            GroupType::Classic
        };
        assert_eq!(description.listing.kind, kind);
    }
}

/// A static id is one member's (KIP-345).
fn has_each_instance_once(world: &World) {
    let instances: Vec<&Arc<str>> = match world.coordinator.classic_live("g") {
        Some(live) => live
            .members()
            .filter_map(|(_, member)| member.instance.as_ref())
            .collect(),
        None => {
            let group = world.coordinator.consumer_group("g");
            let members = group.into_iter().flat_map(|group| group.members.values());
            members
                .filter_map(|member| member.facts.instance.as_ref())
                .collect()
        }
    };
    let once: BTreeSet<_> = instances.iter().collect();
    assert_eq!(once.len(), instances.len(), "{instances:?}");
}

/// The coordinator takes it for a member at this epoch.
fn is_valid(world: &World, actor: &Actor, epoch: i32) -> bool {
    if epoch <= 0 {
        return false;
    }
    if let Some(live) = world.coordinator.classic_live("g") {
        return live.check_generation(&actor.member, None, epoch).is_ok();
    }
    match world
        .coordinator
        .state()
        .group("g")
        .map(|group| &group.kind)
    {
        Some(GroupKind::Consumer(group)) => {
            let known = group.members.get(&actor.member);
            known.is_some_and(|known| known.current.epoch == epoch)
        }
        _ => false,
    }
}
