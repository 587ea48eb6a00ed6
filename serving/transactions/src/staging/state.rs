//! All items of a store, and the one way they change.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::id::{Offset, PartitionId};

use super::change::{Change, Delta};
use super::item::{Decision, Item, ItemId, Status};
use crate::producer::Producer;

/// A target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// Sequence of the next item.
    pub(super) next_sequence: i32,
    /// Items that are on their way, by sequence. Follows from the items.
    pub(super) publishing: BTreeSet<(i32, ItemId)>,
}

/// The items of a store. Changes only by [`StagingState::apply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagingState {
    pub(super) publisher: Producer,
    pub(super) items: BTreeMap<ItemId, Item>,
    pub(super) targets: BTreeMap<PartitionId, Target>,
    // Follows from the items.
    pub(super) places: BTreeSet<(Offset, ItemId)>,
}

impl Default for StagingState {
    fn default() -> Self {
        Self {
            publisher: Producer::NONE,
            items: BTreeMap::new(),
            targets: BTreeMap::new(),
            places: BTreeSet::new(),
        }
    }
}

/// Sequences wrap from `i32::MAX` to 0.
pub(super) fn after(sequence: i32) -> i32 {
    sequence.checked_add(1).unwrap_or(0)
}

impl StagingState {
    /// One of the items.
    pub fn get(&self, id: ItemId) -> Option<&Item> {
        self.items.get(&id)
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&ItemId, &Item)> {
        self.items.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Who publishes; none: nobody does yet.
    pub fn publisher(&self) -> Producer {
        self.publisher
    }

    /// From here on the log is needed; `None`: nothing of it is.
    pub fn held_from(&self) -> Option<Offset> {
        self.places.first().map(|(place, _)| *place)
    }

    /// Items whose payload stands below `end`, the oldest first.
    pub fn placed_below(&self, end: Offset) -> impl Iterator<Item = ItemId> + '_ {
        let below = self
            .places
            .iter()
            .take_while(move |(place, _)| *place < end);
        below.map(|(_, id)| *id)
    }

    /// Folds a delta in.
    pub fn apply(&mut self, delta: &Delta) {
        delta.0.iter().for_each(|change| self.apply_change(change));
    }

    pub(super) fn apply_change(&mut self, change: &Change) {
        match change {
            Change::Publisher(publisher) => {
                self.publisher = *publisher;
                let targets = self.targets.values_mut();
                targets.for_each(|target| target.next_sequence = 0);
            }
            Change::Added(id, item) => {
                if !self.items.contains_key(id) {
                    self.put(*id, item.clone());
                }
            }
            Change::TargetsGone(topics) => {
                self.targets
                    .retain(|target, _| !topics.contains(&target.topic));
                let gone = self.items.iter();
                let gone = gone.filter(|(_, item)| topics.contains(&item.target.topic));
                let gone: Vec<ItemId> = gone.map(|(id, _)| *id).collect();
                for id in gone {
                    // One that waits may yet be rolled back or recalled: that it cannot go anywhere is found when it should.
                    self.change(id, |item| {
                        if matches!(item.status, Status::Committed | Status::Publishing(_)) {
                            item.status = Status::Discarding(true);
                        }
                    });
                }
            }
            Change::Forgotten(id) => {
                self.take(*id);
            }
            Change::Decided { id, .. }
            | Change::Checked { id, .. }
            | Change::Publishing { id, .. }
            | Change::Done { id, .. }
            | Change::Renewed { id, .. }
            | Change::Resumed { id, .. } => self.change(*id, |item| item.apply(change)),
        }
    }

    fn change(&mut self, id: ItemId, change: impl FnOnce(&mut Item)) {
        if let Some(mut item) = self.take(id) {
            change(&mut item);
            self.put(id, item);
        }
    }

    /// Takes an item out of its places.
    fn take(&mut self, id: ItemId) -> Option<Item> {
        let item = self.items.remove(&id)?;
        self.places.remove(&(item.place, id));
        if let Status::Publishing(sequence) = item.status
            && let Some(target) = self.targets.get_mut(&item.target)
        {
            target.publishing.remove(&(sequence, id));
        }
        Some(item)
    }

    pub(super) fn put(&mut self, id: ItemId, item: Item) {
        if item.status.needs_payload() {
            self.places.insert((item.place, id));
        }
        if let Status::Publishing(sequence) = item.status {
            let target = self.targets.entry(item.target).or_default();
            target.publishing.insert((sequence, id));
            let next = after(sequence);
            // A sequence that comes round is lower than the one before it.
            let ahead = next.wrapping_sub(target.next_sequence);
            if ahead > 0 || (next == 0 && target.next_sequence == i32::MAX) {
                target.next_sequence = next;
            }
        }
        self.items.insert(id, item);
    }
}

impl Item {
    fn apply(&mut self, change: &Change) {
        match (change, self.status) {
            (
                Change::Decided {
                    decision,
                    forget_at,
                    ..
                },
                Status::Waiting,
            ) => match decision {
                Decision::Commit => self.status = Status::Committed,
                Decision::Rollback => {
                    self.status = Status::RolledBack;
                    self.due = *forget_at;
                }
                Decision::Discard => self.status = Status::Discarding(false),
            },
            (Change::Checked { checks, due, .. }, Status::Waiting) => {
                (self.checks, self.due) = (*checks, *due);
            }
            // A target that was gone when it came, and one that is published anew, have another sequence.
            (Change::Publishing { sequence, .. }, Status::Committed | Status::Publishing(_)) => {
                self.status = Status::Publishing(*sequence);
            }
            (Change::Done { forget_at, .. }, Status::Publishing(_)) => {
                self.status = Status::Published;
                self.due = *forget_at;
            }
            (Change::Done { forget_at, .. }, Status::Discarding(committed)) => {
                self.status = Status::Discarded(committed);
                self.due = *forget_at;
            }
            (Change::Renewed { place, .. }, _) => self.place = *place,
            (Change::Resumed { due, .. }, Status::Discarded(false)) => {
                self.status = Status::Waiting;
                (self.checks, self.due) = (0, *due);
            }
            _ => {}
        }
    }
}
