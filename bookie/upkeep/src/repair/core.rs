//! The order of things in one repair: look, intend, copy, prove, look again, swap (storage.md X4–X6). No I/O and no clock.
//!
//! ```text
//! Looking ─► Intending ─► Copying ⇄ Proving ─► LookingAgain ─► Swapping ─► end
//!    └─────── it only lacks entries ──┘              ▲──── beaten ──┘
//! ```
//!
//! # Invariants
//! 1. Nothing is copied to a new member before an intent that names it is in metadata.
//! 2. A member is swapped in only after it confirmed every copy and then proved to hold them.
//! 3. Every change compares the version that it was made from.

use std::collections::VecDeque;
use std::ops::Range;

use bookie_metadata::Revision;
use hulse_proto::bookie::{BookieError, INVENTORY_RUNS_MAX, Inventory};
use hulse_proto::entry::Entry;
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{LedgerMetadata, LossKind, Member};
use hulse_proto::mutant::Mutant;

use super::changes::{Judged, Place, holds_intent, judge, swapped, with_intent};
use super::copying::{Copying, Route, Step};
use super::event::{RepairEffect, RepairEnd, RepairEvent, RepairFailure, RepairLimits, RepairTask};

enum Phase {
    Looking,
    Intending,
    Copying(Box<Copying>),
    Proving(Box<Copying>),
    LookingAgain,
    Swapping,
    Over,
}

/// One repair. Begins with [`RepairCore::start`]; ends with [`RepairEffect::End`].
pub struct RepairCore {
    task: RepairTask,
    limits: RepairLimits,
    phase: Phase,
    /// As it was when copying began.
    begun: Option<LedgerMetadata>,
    bound: EntryId,
    route: Option<Route>,
    ranges: VecDeque<Range<u64>>,
    /// Identifies the intent.
    intent: [u8; 16],
    tries: u32,
    entries: u64,
    bytes: u64,
}

impl RepairCore {
    /// One that has done nothing yet.
    pub fn new(task: RepairTask, limits: RepairLimits) -> Self {
        Self {
            task,
            limits,
            phase: Phase::Looking,
            begun: None,
            bound: EntryId(0),
            route: None,
            ranges: VecDeque::new(),
            intent: [0; 16],
            tries: 0,
            entries: 0,
            bytes: 0,
        }
    }

    /// The first effect.
    pub fn start(&self) -> RepairEffect {
        RepairEffect::Look
    }

    /// What it works at.
    pub fn task(&self) -> &RepairTask {
        &self.task
    }

    /// Takes an event; what is to be done is pushed.
    pub fn on_event(&mut self, event: RepairEvent, effects: &mut Vec<RepairEffect>) {
        match event {
            RepairEvent::Looked(found, nonce) => match (&self.phase, found) {
                (Phase::Looking, Some(found)) => self.begin(*found, nonce, effects),
                (Phase::LookingAgain, Some(found)) => self.swap(*found, nonce, effects),
                (Phase::Looking | Phase::LookingAgain, None) => {
                    self.end(RepairEnd::Needless, effects);
                }
                _ => {}
            },
            RepairEvent::Committed(found) => self.committed(*found, effects),
            RepairEvent::Beaten => self.beaten(effects),
            RepairEvent::Silent(why) => self.fail(RepairFailure::Metadata(why), effects),
            RepairEvent::Read {
                member,
                first: _,
                answer,
            } => self.read(&member, answer, effects),
            RepairEvent::Copied { entry, answer } => self.copied(entry, answer, effects),
            RepairEvent::Proved(answer) => self.proved(answer, effects),
        }
    }

    fn end(&mut self, end: RepairEnd, effects: &mut Vec<RepairEffect>) {
        if !matches!(self.phase, Phase::Over) {
            self.phase = Phase::Over;
            effects.push(RepairEffect::End(end));
        }
    }

    fn fail(&mut self, failure: RepairFailure, effects: &mut Vec<RepairEffect>) {
        self.end(RepairEnd::Failed(failure), effects);
    }

    fn stands(
        &mut self,
        metadata: &LedgerMetadata,
        effects: &mut Vec<RepairEffect>,
    ) -> Option<Place> {
        match judge(&self.task, metadata, self.limits.mutation) {
            Judged::Stands(place) => Some(place),
            Judged::Needless => {
                self.end(RepairEnd::Needless, effects);
                None
            }
            Judged::Changing => {
                self.fail(RepairFailure::Changing, effects);
                None
            }
        }
    }

    fn begin(
        &mut self,
        (metadata, version): (LedgerMetadata, Revision),
        nonce: [u8; 16],
        effects: &mut Vec<RepairEffect>,
    ) {
        let Some(place) = self.stands(&metadata, effects) else {
            return;
        };
        self.bound = place.bound;
        self.route = Some(Route {
            ledger: self.task.ledger,
            quorums: metadata.quorums,
            ensemble: metadata.fragments[place.index].ensemble.clone(),
            position: self.task.position,
            target: self.task.new.clone(),
        });
        let whole = self.task.first.0..place.bound.0;
        self.ranges = match self.task.fills() {
            true => self.task.lacking.iter().cloned().collect(),
            false => VecDeque::from([whole.clone()]),
        };
        self.ranges.retain(|range| range.start < range.end);
        if metadata.quorums.write < metadata.quorums.ensemble {
            // Each entry may stand alone at its members: no proof may be longer than what is told at once.
            self.ranges = self.ranges.iter().flat_map(pieces).collect();
        }
        // What was found to be lacking lies in the fragment, as it was then.
        let inside = |range: &Range<u64>| whole.start <= range.start && range.end <= whole.end;
        if !self.ranges.iter().all(inside) {
            return self.fail(RepairFailure::Changing, effects);
        }
        let careless = self.limits.mutation.is(Mutant::RepairWithoutIntent);
        self.begun = Some(metadata.clone());
        if self.task.fills() || careless {
            return self.next_range(effects);
        }
        self.intent = nonce;
        self.phase = Phase::Intending;
        let changed = with_intent(&self.task, &metadata, nonce);
        effects.push(RepairEffect::Propose(Box::new(changed), version));
    }

    fn committed(
        &mut self,
        (metadata, _): (LedgerMetadata, Revision),
        effects: &mut Vec<RepairEffect>,
    ) {
        match self.phase {
            // Others may have changed it since; what counts is whether the intent still stands.
            Phase::Intending if holds_intent(&self.task, &metadata, self.intent) => {
                self.begun = Some(metadata);
                self.next_range(effects);
            }
            Phase::Intending => self.fail(RepairFailure::Changing, effects),
            Phase::Swapping => self.done(effects),
            _ => {}
        }
    }

    fn done(&mut self, effects: &mut Vec<RepairEffect>) {
        let (entries, bytes) = (self.entries, self.bytes);
        self.end(RepairEnd::Done { entries, bytes }, effects);
    }

    fn beaten(&mut self, effects: &mut Vec<RepairEffect>) {
        self.tries += 1;
        match self.phase {
            Phase::Swapping if self.tries < self.limits.swap_tries_max => {
                self.phase = Phase::LookingAgain;
                effects.push(RepairEffect::Look);
            }
            Phase::Intending | Phase::Swapping => self.fail(RepairFailure::Changing, effects),
            _ => {}
        }
    }

    fn next_range(&mut self, effects: &mut Vec<RepairEffect>) {
        let route = self.route.as_ref().expect("set by begin");
        match self.ranges.pop_front() {
            Some(range) => {
                self.phase = Phase::Copying(Box::new(Copying::new(range, route)));
                self.pump(effects);
            }
            None => {
                self.phase = Phase::LookingAgain;
                effects.push(RepairEffect::Look);
            }
        }
    }

    fn pump(&mut self, effects: &mut Vec<RepairEffect>) {
        let (Phase::Copying(copying), Some(route)) = (&mut self.phase, &self.route) else {
            return;
        };
        let end = EntryId(copying.range.end);
        match copying.pump(route, self.limits.flying_bytes_max) {
            None => {}
            Some(Step::Read { member, first }) => {
                effects.push(RepairEffect::Read { member, first, end });
            }
            Some(Step::Fail(RepairFailure::Unreadable { .. }))
                if self.limits.mutation.is(Mutant::RepairOpenTail) =>
            {
                copying.cut();
                self.pump(effects);
            }
            Some(Step::Fail(RepairFailure::Unreadable { entry, .. }))
                if !self.task.fills() && is_given_up(self.begun.as_ref(), entry) =>
            {
                self.ranges.push_front(entry.0 + 1..copying.range.end);
                copying.cut();
                self.pump(effects);
            }
            Some(Step::Fail(failure)) => self.fail(failure, effects),
            Some(Step::Copy(_) | Step::Prove) => self.prove(effects),
        }
    }

    fn prove(&mut self, effects: &mut Vec<RepairEffect>) {
        let Phase::Copying(copying) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return;
        };
        self.entries += copying.entries;
        self.bytes += copying.bytes;
        let nothing = copying.range.is_empty();
        let (first, end) = (EntryId(copying.range.start), EntryId(copying.range.end));
        self.phase = Phase::Proving(copying);
        if nothing || self.limits.mutation.is(Mutant::SwapUnproven) {
            return self.next_range(effects);
        }
        effects.push(RepairEffect::Prove { first, end });
    }

    fn read(
        &mut self,
        member: &Member,
        answer: Result<Vec<Entry>, BookieError>,
        effects: &mut Vec<RepairEffect>,
    ) {
        let (Phase::Copying(copying), Some(route)) = (&mut self.phase, &self.route) else {
            return;
        };
        let bound = self.bound;
        for entry in copying.read(route, member, answer) {
            let again = false;
            effects.push(RepairEffect::Copy {
                entry,
                bound,
                again,
            });
        }
        self.pump(effects);
    }

    fn copied(
        &mut self,
        entry: EntryId,
        answer: Result<(), BookieError>,
        effects: &mut Vec<RepairEffect>,
    ) {
        let (Phase::Copying(copying), Some(route)) = (&mut self.phase, &self.route) else {
            return;
        };
        let answer = match self.limits.mutation.is(Mutant::SwapUnproven) {
            true => Ok(()),
            false => answer,
        };
        let tries = self.limits.copy_tries_max;
        match copying.copied(route, entry, answer, tries) {
            Some(Step::Copy(entry)) => {
                let (bound, again) = (self.bound, true);
                effects.push(RepairEffect::Copy {
                    entry,
                    bound,
                    again,
                });
            }
            Some(Step::Fail(failure)) => self.fail(failure, effects),
            _ => self.pump(effects),
        }
    }

    fn proved(&mut self, answer: Result<Inventory, BookieError>, effects: &mut Vec<RepairEffect>) {
        let (Phase::Proving(copying), Some(route)) = (&self.phase, &self.route) else {
            return;
        };
        let bookie = self.task.new.bookie.clone();
        match answer {
            Ok(held) if copying.is_proved(route, &held) => self.next_range(effects),
            Ok(_) => self.fail(RepairFailure::Unproven { bookie }, effects),
            Err(error) => self.fail(RepairFailure::Target { bookie, error }, effects),
        }
    }

    fn swap(
        &mut self,
        (metadata, version): (LedgerMetadata, Revision),
        nonce: [u8; 16],
        effects: &mut Vec<RepairEffect>,
    ) {
        let blind = self.limits.mutation.is(Mutant::SwapBlindly);
        let metadata = match &self.begun {
            Some(begun) if blind => begun.clone(),
            _ => metadata,
        };
        let Some(place) = self.stands(&metadata, effects) else {
            return;
        };
        let careless = self.limits.mutation.is(Mutant::RepairWithoutIntent);
        let intended =
            careless || self.task.fills() || holds_intent(&self.task, &metadata, self.intent);
        if place.bound != self.bound || !intended {
            return self.fail(RepairFailure::Changing, effects);
        }
        let mut changed = swapped(&self.task, place, &metadata);
        if changed == metadata {
            return self.done(effects);
        }
        changed.repair_nonce = nonce;
        self.phase = Phase::Swapping;
        effects.push(RepairEffect::Propose(Box::new(changed), version));
    }
}

/// The same range in parts that can be proved.
fn pieces(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let (end, length) = (range.end, INVENTORY_RUNS_MAX as u64);
    let first = (range.start..end).step_by(INVENTORY_RUNS_MAX);
    first.map(move |first| first..end.min(first + length))
}

/// An operator accepted that entries from here on may be lost: one that no member has must not keep the others from being copied to
/// where they are safe.
fn is_given_up(metadata: Option<&LedgerMetadata>, entry: EntryId) -> bool {
    let loss = metadata.and_then(|metadata| metadata.loss.as_ref());
    loss.is_some_and(|loss| loss.kind == LossKind::Accepted && loss.from <= entry)
}
