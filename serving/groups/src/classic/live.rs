//! A classic group as it lives: the phase, and members with the requests that they wait on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::answer::GroupState;
use crate::error::GroupError;
use crate::request::{Now, Protocol, RequestId};
use crate::state::{ClassicGroup, ClassicMember};

/// Between generations, or in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Empty,
    /// Members join.
    Preparing {
        until: u64,
        /// The first generation of an empty group waits for more members, at most until then.
        first: Option<u64>,
    },
    /// The leader assigns.
    Completing {
        until: u64,
    },
    Stable,
}

/// A member.
#[derive(Debug, Clone)]
pub(super) struct LiveMember {
    pub(super) stored: ClassicMember,
    /// When its session ends. While it waits for an answer of ours its session does not count.
    pub(super) session: u64,
    pub(super) join: Option<RequestId>,
    pub(super) sync: Option<RequestId>,
    /// It asked for its assignment of this generation.
    pub(super) synced: bool,
    /// It is in no generation yet.
    pub(super) fresh: bool,
}

impl LiveMember {
    pub(super) fn beat(&mut self, now: Now) {
        self.session = now.passed_ms + u64::from(self.stored.session_ms);
    }

    fn expires(&self) -> Option<u64> {
        (self.join.is_none() && self.sync.is_none()).then_some(self.session)
    }
}

/// A classic group as it lives.
#[derive(Debug)]
pub(crate) struct ClassicLive {
    pub(super) phase: Phase,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Arc<str>,
    pub(crate) protocol: Arc<str>,
    pub(super) leader: Arc<str>,
    pub(super) members: BTreeMap<Arc<str>, LiveMember>,
    /// Ids that were given out and have not joined (KIP-394), and until when they may.
    pub(super) pending: BTreeMap<Arc<str>, u64>,
    /// A member came during the first wait.
    pub(super) joined_anew: bool,
}

impl ClassicLive {
    /// As a chain told it: stable where it has members, with full sessions.
    pub(crate) fn replayed(group: &ClassicGroup, now: Now) -> Self {
        let members = group.members.iter().map(|(id, stored)| {
            let mut member = LiveMember {
                stored: stored.clone(),
                session: 0,
                join: None,
                sync: None,
                synced: true,
                fresh: false,
            };
            member.beat(now);
            (id.clone(), member)
        });
        Self {
            phase: match group.members.is_empty() {
                true => Phase::Empty,
                false => Phase::Stable,
            },
            generation: group.generation,
            protocol_type: group.protocol_type.clone(),
            protocol: group.protocol.clone(),
            leader: group.leader.clone(),
            members: members.collect(),
            pending: BTreeMap::new(),
            joined_anew: false,
        }
    }

    /// Nobody is in it, or about to be.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn state(&self) -> GroupState {
        match self.phase {
            Phase::Empty => GroupState::Empty,
            Phase::Preparing { .. } => GroupState::PreparingRebalance,
            Phase::Completing { .. } => GroupState::CompletingRebalance,
            Phase::Stable => GroupState::Stable,
        }
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = (&Arc<str>, &ClassicMember)> {
        self.members.iter().map(|(id, member)| (id, &member.stored))
    }

    /// A request waits in it.
    pub(crate) fn waits(&self, request: RequestId) -> bool {
        self.waiting().any(|waiting| waiting == request)
    }

    /// Joins that wait for the generation.
    pub(crate) fn waiting_joins(&self) -> impl Iterator<Item = RequestId> {
        self.members.values().filter_map(|member| member.join)
    }

    /// Syncs that wait for the leader.
    pub(crate) fn waiting_syncs(&self) -> impl Iterator<Item = RequestId> {
        self.members.values().filter_map(|member| member.sync)
    }

    fn waiting(&self) -> impl Iterator<Item = RequestId> {
        let members = self.members.values();
        members.flat_map(|member| member.join.into_iter().chain(member.sync))
    }

    pub(crate) fn due(&self) -> Option<u64> {
        let phase = match self.phase {
            Phase::Preparing { until, .. } | Phase::Completing { until } => Some(until),
            Phase::Empty | Phase::Stable => None,
        };
        let sessions = self.members.values().filter_map(LiveMember::expires);
        let pending = self.pending.values().copied();
        sessions.chain(pending).chain(phase).min()
    }

    /// Members whose session is over.
    pub(super) fn expired(&self, now: Now) -> Vec<Arc<str>> {
        let over = |member: &LiveMember| {
            member
                .expires()
                .is_some_and(|session| session <= now.passed_ms)
        };
        let members = self.members.iter();
        members
            .filter(|(_, member)| over(member))
            .map(|(id, _)| id.clone())
            .collect()
    }

    pub(super) fn by_instance(&self, instance: &str) -> Option<&Arc<str>> {
        let mut members = self.members.iter();
        members
            .find(|(_, member)| member.stored.instance.as_deref() == Some(instance))
            .map(|(id, _)| id)
    }

    /// The member that speaks, unless a static id says that it is another one.
    pub(crate) fn check_member(
        &self,
        member: &str,
        instance: Option<&Arc<str>>,
    ) -> Result<(), GroupError> {
        if let Some(instance) = instance {
            match self.by_instance(instance) {
                None => return Err(GroupError::UnknownMember),
                Some(known) if **known != *member => return Err(GroupError::FencedInstance),
                Some(_) => {}
            }
        }
        match self.members.contains_key(member) {
            true => Ok(()),
            false => Err(GroupError::UnknownMember),
        }
    }

    /// The same, and of this generation.
    pub(crate) fn check_generation(
        &self,
        member: &str,
        instance: Option<&Arc<str>>,
        generation: i32,
    ) -> Result<(), GroupError> {
        self.check_member(member, instance)?;
        match generation == self.generation {
            true => Ok(()),
            false => Err(GroupError::IllegalGeneration),
        }
    }

    pub(crate) fn is_completing(&self) -> bool {
        matches!(self.phase, Phase::Completing { .. })
    }

    /// A request of this member came: its session begins anew.
    pub(crate) fn heard(&mut self, member: &str, now: Now) {
        if let Some(member) = self.members.get_mut(member) {
            member.beat(now);
        }
    }

    /// The names of protocols that all members but one have.
    pub(super) fn common(&self, but: &str) -> Option<BTreeSet<Arc<str>>> {
        let others = self.members.iter().filter(|(id, _)| ***id != *but);
        others
            .map(|(_, member)| names(&member.stored.protocols))
            .reduce(|common, names| &common & &names)
    }

    /// The protocol that most members put first among those that all have (B6).
    pub(super) fn choose(&self) -> Arc<str> {
        let common = self.common("").unwrap_or_default();
        let mut votes: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for member in self.members.values() {
            let mut own = member.stored.protocols.iter();
            if let Some(first) = own.find(|known| common.contains(&known.name)) {
                *votes.entry(first.name.clone()).or_default() += 1;
            }
        }
        let most = votes.values().max().copied().unwrap_or(0);
        let chosen = votes.into_iter().find(|(_, count)| *count == most);
        chosen.map_or_else(|| "".into(), |(name, _)| name)
    }

    /// The longest time that a member may take to join again.
    pub(super) fn rebalance_ms(&self) -> u64 {
        let members = self.members.values();
        let longest = members.map(|member| u64::from(member.stored.rebalance_ms));
        longest.max().unwrap_or(0)
    }

    pub(super) fn size(&self) -> usize {
        self.members
            .values()
            .map(|member| member.stored.size())
            .sum()
    }
}

fn names(protocols: &[Protocol]) -> BTreeSet<Arc<str>> {
    protocols.iter().map(|known| known.name.clone()).collect()
}
