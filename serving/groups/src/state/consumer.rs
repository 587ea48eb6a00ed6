//! A group of the newer protocol, KIP-848 (serving.md B7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::id::{PartitionId, TopicId};

use crate::request::{Client, Protocol};
use crate::topics::Partitions;

/// Epoch of a static member that has left and keeps its place.
pub(crate) const LEFT_STATIC: i32 = -2;

/// Epochs, the target, and the members on their way to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConsumerGroup {
    /// Grows with each change of subscriptions, topics or assignor.
    pub epoch: i32,
    /// The topics of the group at this epoch, and their partitions.
    pub topics: BTreeMap<TopicId, u32>,
    /// Who assigns at this epoch.
    pub assignor: Arc<str>,
    /// Epoch of the target.
    pub target_epoch: i32,
    /// What each member shall have.
    pub target: BTreeMap<Arc<str>, Partitions>,
    /// By id.
    pub members: BTreeMap<Arc<str>, ConsumerMember>,
    pub(super) held: BTreeMap<PartitionId, Arc<str>>,
}

/// What a member said of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberFacts {
    /// Static member.
    pub instance: Option<Arc<str>>,
    /// Where it is.
    pub rack: Option<Arc<str>>,
    /// Who.
    pub client: Client,
    /// How long it may take to give partitions up, ms.
    pub rebalance_ms: u32,
    /// Topic names.
    pub topics: BTreeSet<Arc<str>>,
    /// A pattern of topic names.
    pub pattern: Option<Arc<str>>,
    /// The assignor it would like.
    pub assignor: Option<Arc<str>>,
    /// It speaks the classic protocol.
    pub classic: Option<ClassicFacts>,
}

/// What a classic member in a group of the newer protocol said of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassicFacts {
    /// Session, ms.
    pub session_ms: u32,
    /// In order of preference.
    pub protocols: Vec<Protocol>,
}

/// Where a member is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemberState {
    /// It has what the target gives it.
    #[default]
    Stable,
    /// It has to give partitions up before its epoch grows.
    Unrevoked,
    /// It waits for partitions that others still hold.
    Unreleased,
}

/// What a member has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Current {
    /// Its epoch; −2: left, and keeps its place.
    pub epoch: i32,
    /// The one before.
    pub previous_epoch: i32,
    /// Where it is on its way.
    pub state: MemberState,
    /// What it may read, each with the epoch at which it got it.
    pub assigned: BTreeMap<PartitionId, i32>,
    /// What it has to give up, and may still hold.
    pub revoking: Partitions,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConsumerMember {
    /// What it said of itself.
    pub facts: MemberFacts,
    /// What it has.
    pub current: Current,
}

impl ConsumerGroup {
    /// Who holds a partition: has it, or has to give it up.
    pub fn holder(&self, partition: PartitionId) -> Option<&Arc<str>> {
        self.held.get(&partition)
    }

    /// The member of a static id.
    pub fn by_instance(&self, instance: &str) -> Option<(&Arc<str>, &ConsumerMember)> {
        let mut all = self.members.iter();
        all.find(|(_, member)| member.facts.instance.as_deref() == Some(instance))
    }

    /// What a member shall have.
    pub fn target_of(&self, member: &str) -> Partitions {
        self.target.get(member).cloned().unwrap_or_default()
    }

    pub(super) fn set_current(&mut self, id: &Arc<str>, current: Current) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        let former = std::mem::replace(&mut member.current, current);
        let current = &member.current;
        for partition in former.assigned.keys().chain(&former.revoking) {
            if self.held.get(partition) == Some(id) {
                self.held.remove(partition);
            }
        }
        for partition in current.assigned.keys().chain(&current.revoking) {
            self.held.insert(*partition, id.clone());
        }
    }

    pub(super) fn remove(&mut self, id: &Arc<str>) {
        self.set_current(id, Current::default());
        self.members.remove(id);
        self.target.remove(id);
    }
}
