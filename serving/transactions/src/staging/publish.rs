//! The one publisher: committed items go to their targets, a few at a time, each under a sequence that is durable before it is sent
//! (serving.md C9.3).

use std::collections::{BTreeSet, VecDeque};

use hulse_proto::id::{PartitionId, TopicId};
use hulse_proto::mutant::Mutant;
use hulse_proto::time::TimestampMs;

use super::change::Change;
use super::checks::AGAIN_MS;
use super::core::Staging;
use super::item::{Decision, ItemId, Status};
use super::request::{Effect, PublishOutcome};
use crate::limits::PUBLISHING_MAX;
use crate::producer::Producer;

/// The first wait before a target is sent to again; it doubles. Ms.
const RETRY_MS: TimestampMs = 50;
const RETRY_MAX_MS: TimestampMs = 5_000;

/// What goes to one target.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Committed, in the order of their decisions.
    queue: VecDeque<ItemId>,
    attempts: u32,
    /// It is sent to again then; nothing is sent before.
    retry_at: Option<TimestampMs>,
}

impl Staging {
    /// An item is committed.
    pub(super) fn enqueue(&mut self, target: PartitionId, id: ItemId) {
        let lane = self.lanes.entry(target).or_default();
        if !lane.queue.contains(&id) {
            lane.queue.push_back(id);
        }
        self.pump(target);
    }

    pub(super) fn pump_all(&mut self) {
        let targets: Vec<PartitionId> = self.lanes.keys().copied().collect();
        for target in targets {
            self.pump(target);
        }
    }

    /// Gives sequences to as many as may be on their way.
    fn pump(&mut self, target: PartitionId) {
        if self.state.publisher() == Producer::NONE {
            return;
        }
        loop {
            let known = self.state.targets.get(&target);
            let (flying, sequence) = known.map_or((0, 0), |known| {
                (known.publishing.len(), known.next_sequence)
            });
            if flying >= PUBLISHING_MAX {
                return;
            }
            let lane = self.lanes.get_mut(&target);
            let Some(id) = lane.and_then(|lane| lane.queue.pop_front()) else {
                return;
            };
            if self.state.get(id).map(|item| item.status) == Some(Status::Committed) {
                self.propose(Some(id), Change::Publishing { id, sequence });
            }
        }
    }

    /// Its sequence is durable.
    pub(super) fn send(&mut self, target: PartitionId, id: ItemId) {
        let lane = self.lanes.entry(target).or_default();
        if lane.retry_at.is_some() {
            return;
        }
        let publisher = self.state.publisher();
        let Some(item) = self.state.get(id) else {
            return;
        };
        if let Status::Publishing(sequence) = item.status {
            self.out.push(Effect::Publish {
                id,
                target,
                place: item.place,
                publisher,
                sequence,
            });
        }
    }

    pub(super) fn on_published(&mut self, id: ItemId, outcome: PublishOutcome) {
        let Some(item) = self.state.get(id) else {
            return;
        };
        let target = item.target;
        if !matches!(item.status, Status::Publishing(_)) {
            return;
        }
        match outcome {
            PublishOutcome::Published => {
                let forget_at = self.forget_at();
                self.propose(Some(id), Change::Done { id, forget_at });
                if let Some(lane) = self.lanes.get_mut(&target) {
                    lane.attempts = 0;
                }
                self.pump(target);
                self.end_lane(target);
            }
            PublishOutcome::TargetGone => self.targets_gone([target.topic].into()),
            PublishOutcome::Unknown => self.retry_later(target, id),
        }
    }

    fn retry_later(&mut self, target: PartitionId, id: ItemId) {
        if self.mutation.is(Mutant::PublishedAnew) {
            let known = self.state.targets.get(&target);
            let sequence = known.map_or(0, |known| known.next_sequence);
            self.propose(Some(id), Change::Publishing { id, sequence });
            return;
        }
        let lane = self.lanes.entry(target).or_default();
        if lane.retry_at.is_none() {
            let wait = (RETRY_MS << lane.attempts.min(7)).min(RETRY_MAX_MS);
            lane.attempts += 1;
            let at = self.now.saturating_add(wait);
            lane.retry_at = Some(at);
            self.retries.insert((at, target));
        }
    }

    /// All that is on its way to a target is sent again, the lowest sequence first.
    pub(super) fn retry_targets(&mut self) {
        while let Some((at, target)) = self.retries.first().copied() {
            if at > self.now {
                return;
            }
            self.retries.pop_first();
            if let Some(lane) = self.lanes.get_mut(&target) {
                lane.retry_at = None;
            }
            let known = self.state.targets.get(&target);
            let flying = known.into_iter().flat_map(|known| &known.publishing);
            let flying: Vec<ItemId> = flying.map(|(_, id)| *id).collect();
            for id in flying {
                if self.is_durable(id) {
                    self.send(target, id);
                }
            }
        }
    }

    fn end_lane(&mut self, target: PartitionId) {
        let idle = self
            .lanes
            .get(&target)
            .is_some_and(|lane| lane.queue.is_empty() && lane.retry_at.is_none());
        if idle {
            self.lanes.remove(&target);
        }
    }

    /// What was to go there is discarded: the decision stays (C9.3).
    pub(super) fn targets_gone(&mut self, topics: BTreeSet<TopicId>) {
        let bound = self.state.iter();
        let bound = bound.filter(|(_, item)| topics.contains(&item.target.topic));
        let bound = bound
            .filter(|(_, item)| matches!(item.status, Status::Committed | Status::Publishing(_)));
        let bound: Vec<ItemId> = bound.map(|(id, _)| *id).collect();
        if bound.is_empty() {
            return;
        }
        self.lanes
            .retain(|target, _| !topics.contains(&target.topic));
        self.retries
            .retain(|(_, target)| !topics.contains(&target.topic));
        self.propose(None, Change::TargetsGone(topics));
        bound.into_iter().for_each(|id| self.touch(id));
    }

    /// A discarded item goes where an operator finds it.
    pub(super) fn copy(&mut self, id: ItemId) {
        let Some(item) = self.state.get(id) else {
            return;
        };
        if !matches!(item.status, Status::Discarding(_)) {
            return;
        }
        let (place, decision) = (item.place, item.status.decision());
        if self.asked.insert(id) {
            self.out.push(Effect::Discard {
                id,
                place,
                decision: decision.unwrap_or(Decision::Discard),
            });
        }
    }

    pub(super) fn on_copied(&mut self, id: ItemId, durable: bool) {
        if !self.asked.remove(&id) {
            return;
        }
        let status = self.state.get(id).map(|item| item.status);
        match (status, durable) {
            (Some(Status::Discarding(_)), true) => {
                let forget_at = self.forget_at();
                self.propose(Some(id), Change::Done { id, forget_at });
            }
            (Some(Status::Discarding(_)), false) => {
                let again = self.now.saturating_add(AGAIN_MS);
                self.due.insert(again, id);
            }
            _ => {}
        }
    }
}
