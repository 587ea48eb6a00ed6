//! All groups of a shard, and the one way they change.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::change::{Change, Delta};
use super::group::{DurableGroup, GroupKind};

/// The groups of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShardState {
    pub(super) groups: BTreeMap<Arc<str>, DurableGroup>,
}

impl ShardState {
    /// A group.
    pub fn group(&self, name: &str) -> Option<&DurableGroup> {
        self.groups.get(name)
    }

    /// All of them, by name.
    pub fn groups(&self) -> impl Iterator<Item = (&Arc<str>, &DurableGroup)> {
        self.groups.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Folds a delta in.
    pub fn apply(&mut self, delta: &Delta) {
        for (group, change) in &delta.0 {
            self.apply_change(group, change);
        }
    }

    pub(crate) fn apply_change(&mut self, name: &Arc<str>, change: &Change) {
        match change {
            Change::Gone => {
                self.groups.remove(name);
            }
            // What is not there cannot go; it must not make a group.
            Change::OffsetGone { partition } => {
                if let Some(group) = self.groups.get_mut(name) {
                    group.offsets.remove(partition);
                }
            }
            _ => self.groups.entry(name.clone()).or_default().apply(change),
        }
    }
}

impl DurableGroup {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Classic { at, group } => {
                if group.members.is_empty() && (!self.is_empty() || self.empty_since == 0) {
                    self.empty_since = *at;
                }
                self.kind = GroupKind::Classic(group.clone());
            }
            Change::Epoch {
                at,
                epoch,
                assignor,
                topics,
            } => {
                if self.empty_since == 0 {
                    self.empty_since = *at;
                }
                let group = self.consumer();
                (group.epoch, group.assignor) = (*epoch, assignor.clone());
                group.topics.clone_from(topics);
            }
            Change::Member { member, facts } => {
                let group = self.consumer();
                group.members.entry(member.clone()).or_default().facts = facts.clone();
            }
            Change::Target { epoch, members } => {
                let group = self.consumer();
                group.target_epoch = *epoch;
                for (member, target) in members {
                    match target.is_empty() {
                        true => group.target.remove(member),
                        false => group.target.insert(member.clone(), target.clone()),
                    };
                }
            }
            Change::Current { member, current } => {
                self.consumer().set_current(member, current.clone());
            }
            Change::MemberGone { at, member } => {
                let group = self.consumer();
                group.remove(member);
                if group.members.is_empty() {
                    self.empty_since = *at;
                }
            }
            Change::Committed { partition, offset } => {
                if self.empty_since == 0 {
                    self.empty_since = offset.at;
                }
                self.offsets.insert(*partition, offset.clone());
            }
            Change::OffsetGone { .. } | Change::Gone => {}
        }
    }
}
