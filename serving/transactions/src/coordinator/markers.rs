//! Markers on their way: to every participant, again and again until each has it durably (serving.md C5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::id::TopicId;
use hulse_proto::mutant::Mutant;
use hulse_proto::time::TimestampMs;

use super::answer::Effect;
use super::change::Change;
use super::core::Coordinator;
use super::request::MarkerOutcome;
use super::transaction::{Participant, Parts};
use crate::error::TxnError;
use crate::limits::MARKERS_IN_FLIGHT_MAX;

/// The first wait before a marker is sent again; it doubles. An LSO is free a second after its owner is there again. Ms.
const RETRY_MS: TimestampMs = 50;
const RETRY_MAX_MS: TimestampMs = 1_000;

/// The markers of one transaction.
#[derive(Debug)]
pub(super) struct Sending {
    serial: u32,
    /// Who has it not, as far as is known.
    left: BTreeMap<Participant, Marking>,
}

#[derive(Debug)]
struct Marking {
    parts: Parts,
    attempts: u32,
    /// Until when it is not sent again; `None`: it is on its way.
    wait: Option<TimestampMs>,
}

impl Coordinator {
    /// What a coordinator before this one had decided goes on.
    pub(super) fn resume_markers(&mut self) {
        let decided = self.state.iter();
        let decided = decided.filter(|(_, txn)| txn.state.is_preparing());
        let decided: Vec<Arc<str>> = decided.map(|(id, _)| id.clone()).collect();
        for id in decided {
            self.begin_markers(&id);
        }
    }

    /// The last change of an id is durable: if it is a decision, its markers may go.
    pub(super) fn begin_markers(&mut self, id: &Arc<str>) {
        let Some(txn) = self.state.get(id).filter(|txn| txn.state.is_preparing()) else {
            return;
        };
        let marking = |parts| Marking {
            parts,
            attempts: 0,
            wait: Some(TimestampMs::MIN),
        };
        let left = txn.participants.iter();
        let left = left.map(|(participant, parts)| (*participant, marking(*parts)));
        let sending = Sending {
            serial: txn.serial,
            left: left.collect(),
        };
        self.sending.insert(id.clone(), sending);
        self.queued.insert(id.clone());
    }

    /// Sends what has room, and completes what has nobody left.
    pub(super) fn send_markers(&mut self) {
        for id in std::mem::take(&mut self.queued) {
            if self.in_flight >= MARKERS_IN_FLIGHT_MAX {
                self.queued.insert(id);
                continue;
            }
            self.send_markers_of(&id);
            self.complete(&id);
        }
    }

    fn send_markers_of(&mut self, id: &Arc<str>) {
        let Some(sending) = self.sending.get_mut(id) else {
            return;
        };
        let marker = self.state.get(id);
        let Some(marker) = marker.and_then(|txn| txn.marker(self.epoch.0 as i32)) else {
            return;
        };
        for (to, marking) in &mut sending.left {
            if marking.wait.is_some_and(|until| until <= self.now) {
                marking.wait = None;
                self.in_flight += 1;
                self.out.push(Effect::SendMarker {
                    id: id.clone(),
                    to: *to,
                    parts: marking.parts,
                    marker,
                });
            }
        }
    }

    fn complete(&mut self, id: &Arc<str>) {
        if self
            .sending
            .get(id)
            .is_some_and(|sending| sending.left.is_empty())
        {
            self.sending.remove(id);
            self.propose(id, Change::Completed { at: self.now });
        }
    }

    pub(super) fn on_marker(
        &mut self,
        id: &Arc<str>,
        serial: u32,
        to: Participant,
        outcome: MarkerOutcome,
    ) {
        let Some(sending) = self.sending.get_mut(id) else {
            return;
        };
        if sending.serial != serial {
            return;
        }
        let Some(marking) = sending.left.get_mut(&to) else {
            return;
        };
        if marking.wait.is_none() {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        let outcome = match outcome {
            MarkerOutcome::Unknown if self.mutation.is(Mutant::MarkerTriedOnce) => {
                MarkerOutcome::Applied
            }
            other => other,
        };
        match outcome {
            MarkerOutcome::Applied | MarkerOutcome::Gone => {
                sending.left.remove(&to);
            }
            MarkerOutcome::Refused(TxnError::CoordinatorFenced { .. }) => {
                self.out.push(Effect::Fenced);
                self.wait(id, to);
            }
            // Nothing of an older epoch can be open there: a newer one comes only after the end of what was before.
            MarkerOutcome::Refused(error @ TxnError::Fenced { .. }) => {
                sending.left.remove(&to);
                let id = id.clone();
                self.out.push(Effect::Odd { id, to, error });
            }
            MarkerOutcome::Unknown | MarkerOutcome::Refused(_) => self.wait(id, to),
        }
        self.queued.insert(id.clone());
    }

    fn wait(&mut self, id: &Arc<str>, to: Participant) {
        let marking = self.sending.get_mut(id);
        let Some(marking) = marking.and_then(|sending| sending.left.get_mut(&to)) else {
            return;
        };
        let wait = RETRY_MS << marking.attempts.min(5);
        marking.attempts += 1;
        let until = self.now.saturating_add(wait.min(RETRY_MAX_MS));
        marking.wait = Some(until);
        self.retries.insert((until, id.clone(), to));
    }

    /// Whoever is due is sent its marker again.
    pub(super) fn retry_markers(&mut self) {
        while self.retries.first().is_some_and(|(at, ..)| *at <= self.now) {
            if let Some((_, id, _)) = self.retries.pop_first() {
                self.queued.insert(id);
            }
        }
    }

    /// Participants whose topic is deleted have nothing left to settle.
    pub(super) fn on_deleted(&mut self, topics: &BTreeSet<TopicId>) {
        for (id, sending) in &mut self.sending {
            let before = sending.left.len();
            let flying = |left: &BTreeMap<Participant, Marking>| {
                left.values()
                    .filter(|marking| marking.wait.is_none())
                    .count()
            };
            let flew = flying(&sending.left);
            sending
                .left
                .retain(|to, _| !topics.contains(&to.partition().topic));
            self.in_flight = self.in_flight.saturating_sub(flew - flying(&sending.left));
            if sending.left.len() < before {
                self.queued.insert(id.clone());
            }
        }
    }
}
