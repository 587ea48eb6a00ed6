//! What was accepted and is not durable yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::time::TimestampMs;

use serving_dispatch::Mark;

use super::lane::{CursorAnswer, CursorMove};
use crate::state::{Change, CursorDelta, NewCursor, OffsetRange, OffsetRanges};

/// Changes of cursors, merged, and who waits for them.
#[derive(Debug)]
pub(super) struct Pending<T> {
    cursors: BTreeMap<SubscriptionId, PendingCursor>,
    /// Of a coordinator shard, in order.
    groups: Vec<Arc<serving_groups::Delta>>,
    waiting: Vec<(T, CursorAnswer)>,
    /// Ranges of the acks that wait.
    ranges: usize,
    /// Deltas of dispatchers that are in here, by their numbers.
    shared: Vec<(SubscriptionId, u64)>,
}

/// What a delta will say of one cursor, in this order.
#[derive(Debug, Default)]
struct PendingCursor {
    removed: bool,
    made: Option<NewCursor>,
    moved: Option<(CursorMove, u32)>,
    to: Offset,
    ranges: OffsetRanges,
    acked: bool,
    hold: Option<bool>,
    evicted: u64,
    marks: Vec<(OffsetRange, Mark)>,
    letters: Option<u64>,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self {
            cursors: BTreeMap::new(),
            groups: Vec::new(),
            waiting: Vec::new(),
            ranges: 0,
            shared: Vec::new(),
        }
    }
}

impl<T> Pending<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.cursors.is_empty() && self.groups.is_empty()
    }

    pub(super) fn has(&self, id: SubscriptionId) -> bool {
        self.cursors.contains_key(&id)
    }

    pub(super) fn has_made(&self, id: SubscriptionId) -> bool {
        self.cursors
            .get(&id)
            .is_some_and(|cursor| cursor.made.is_some())
    }

    pub(super) fn has_moved(&self, id: SubscriptionId) -> bool {
        self.cursors
            .get(&id)
            .is_some_and(|cursor| cursor.moved.is_some())
    }

    /// The subscriptions whose cursors it moves.
    pub(super) fn moved(&self) -> Vec<SubscriptionId> {
        let moved = self
            .cursors
            .iter()
            .filter(|(_, cursor)| cursor.moved.is_some());
        moved.map(|(id, _)| *id).collect()
    }

    /// Somebody waits until all that is in here is durable.
    pub(super) fn wait(&mut self, ticket: T, answer: CursorAnswer) {
        if let CursorAnswer::Acked(acked) = &answer {
            self.ranges += acked.statuses.len();
        }
        self.waiting.push((ticket, answer));
    }

    /// Acks that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Ranges of the acks that wait; each has a status to be told.
    pub(super) fn waiting_ranges(&self) -> usize {
        self.ranges
    }

    pub(super) fn take_waiting(&mut self) -> Vec<(T, CursorAnswer)> {
        self.ranges = 0;
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn make(&mut self, id: SubscriptionId, new: NewCursor) {
        self.cursors.entry(id).or_default().made = Some(new);
    }

    pub(super) fn remove(&mut self, id: SubscriptionId) {
        let removed = PendingCursor {
            removed: true,
            ..PendingCursor::default()
        };
        self.cursors.insert(id, removed);
    }

    pub(super) fn move_to(&mut self, id: SubscriptionId, mut goal: CursorMove, state_epoch: u32) {
        let cursor = self.cursors.entry(id).or_default();
        if !goal.keep_acked {
            cursor.to = Offset(0);
            cursor.ranges = OffsetRanges::default();
            cursor.acked = false;
            cursor.marks.clear();
            cursor.letters = None;
        } else if let Some((before, _)) = cursor.moved {
            // A skip behind a seek is a seek to where the skip leads.
            goal.to = goal.to.max(before.to);
            goal.keep_acked = before.keep_acked;
        }
        cursor.moved = Some((goal, state_epoch));
    }

    pub(super) fn ack_to(&mut self, id: SubscriptionId, end: Offset) {
        let cursor = self.cursors.entry(id).or_default();
        cursor.acked = true;
        if end > cursor.to {
            cursor.to = end;
            cursor.ranges.remove_below(end);
        }
    }

    pub(super) fn ack(&mut self, id: SubscriptionId, range: OffsetRange) {
        let cursor = self.cursors.entry(id).or_default();
        cursor.acked = true;
        let above = OffsetRange {
            first: range.first.max(cursor.to),
            end: range.end,
        };
        cursor.ranges.insert(above);
    }

    pub(super) fn hold(&mut self, id: SubscriptionId, hold: bool) {
        self.cursors.entry(id).or_default().hold = Some(hold);
    }

    pub(super) fn groups(&mut self, delta: Arc<serving_groups::Delta>) {
        self.groups.push(delta);
    }

    pub(super) fn evict(&mut self, id: SubscriptionId, records: u64) {
        self.cursors.entry(id).or_default().evicted += records;
    }

    /// A delta of a dispatcher, in its order.
    pub(super) fn share(&mut self, id: SubscriptionId, seq: u64, changes: Vec<Change>) {
        self.shared.push((id, seq));
        for change in changes {
            match change {
                Change::Moved {
                    base, state_epoch, ..
                } => {
                    let keep_acked = false;
                    let goal = CursorMove {
                        to: base,
                        keep_acked,
                    };
                    self.move_to(id, goal, state_epoch);
                }
                Change::Marked(marks) => {
                    let cursor = self.cursors.entry(id).or_default();
                    cursor.marks.extend(marks);
                }
                Change::Acked { ranges, .. } => {
                    ranges.into_iter().for_each(|range| self.ack(id, range));
                }
                Change::Letters(next) => {
                    self.cursors.entry(id).or_default().letters = Some(next);
                }
                // A dispatcher says nothing else.
                Change::Made(_)
                | Change::Removed
                | Change::Hold(_)
                | Change::Evicted(_)
                | Change::Groups(_) => {}
            }
        }
    }

    /// Deltas of dispatchers that are in here; none afterwards.
    pub(super) fn take_shared(&mut self) -> Vec<(SubscriptionId, u64)> {
        std::mem::take(&mut self.shared)
    }

    /// About how long its delta is.
    pub(super) fn bytes(&self) -> usize {
        let each = self.cursors.values();
        let each = each.map(|cursor| cursor.ranges.len() * 16 + cursor.marks.len() * 36);
        each.sum::<usize>() + self.cursors.len() * 64
    }

    /// The delta. `at` is the owner's clock.
    pub(super) fn delta(&self, at: TimestampMs) -> CursorDelta {
        let mut changes = Vec::new();
        for (id, cursor) in &self.cursors {
            let mut say = |change| changes.push((*id, change));
            if cursor.removed {
                say(Change::Removed);
            }
            if let Some(made) = &cursor.made {
                say(Change::Made(made.clone()));
            }
            if let Some((CursorMove { to, keep_acked }, state_epoch)) = cursor.moved {
                say(Change::Moved {
                    at,
                    base: to,
                    state_epoch,
                    keep_acked,
                });
            }
            if !cursor.marks.is_empty() {
                say(Change::Marked(cursor.marks.clone()));
            }
            if cursor.acked {
                say(Change::Acked {
                    at,
                    to: cursor.to,
                    ranges: cursor.ranges.iter().collect(),
                });
            }
            if let Some(hold) = cursor.hold {
                say(Change::Hold(hold));
            }
            if let Some(next) = cursor.letters {
                say(Change::Letters(next));
            }
            if cursor.evicted > 0 {
                say(Change::Evicted(cursor.evicted));
            }
        }
        let groups = self.groups.iter().cloned().map(Change::Groups);
        changes.extend(groups.map(|change| (SubscriptionId::default(), change)));
        CursorDelta(changes)
    }

    /// Puts what came later behind what failed to be written.
    pub(super) fn join(&mut self, later: Self) {
        for (id, newer) in later.cursors {
            if newer.removed {
                self.cursors.insert(id, newer);
                continue;
            }
            if let Some(made) = newer.made {
                self.make(id, made);
            }
            if let Some((goal, state_epoch)) = newer.moved {
                self.move_to(id, goal, state_epoch);
            }
            let cursor = self.cursors.entry(id).or_default();
            cursor.marks.extend(newer.marks);
            cursor.letters = newer.letters.or(cursor.letters);
            if newer.acked {
                self.ack_to(id, newer.to);
                for range in newer.ranges.iter() {
                    self.ack(id, range);
                }
            }
            if let Some(hold) = newer.hold {
                self.hold(id, hold);
            }
            if newer.evicted > 0 {
                self.evict(id, newer.evicted);
            }
        }
        self.groups.extend(later.groups);
        self.ranges += later.ranges;
        self.shared.extend(later.shared);
        self.waiting.extend(later.waiting);
    }
}
