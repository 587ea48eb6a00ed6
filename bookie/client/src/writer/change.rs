//! Ensemble change (storage.md W7–W12 as amended): another bookie takes the place of a member that fails.
//!
//! A survey (metadata and candidates, both fresh) comes before each proposal; a proposal is one change of the ledger's key.
//!
//! # Invariants
//! 1. One proposal at a time; its bytes never change; only a proof ends it (amended M3).
//! 2. While it is unresolved, acks count only at positions that it leaves alone: those members are in both ensembles (W4, W9).
//! 3. Entries go to a new member only once metadata name it.
//! 4. A fragment begins at the confirmed end of the time of its proposal, so every entry below it is confirmed (W8b).

use std::collections::VecDeque;
use std::time::Duration;

use bookie_metadata::{MetadataError, Revision, Txn};
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{Degraded, Fragment, LedgerMetadata, LedgerState, Member, ledger_key};
use hulse_proto::mutant::Mutant;

use super::core::{Phase, WriterCore};
use super::event::{Survey, WriterEffect};
use super::pending::Slot;
use super::position::Health;
use crate::error::WriterEnd;
use crate::metadata::{NonceField, Proposal, ProposalStep};
use crate::placement;

/// Longest wait between two surveys that found nobody: each lists all bookies.
const NOBODY_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest wait between two surveys that were not answered, and between two requests of one proposal.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(1);
/// Fragments of one ledger; its owner rolls it long before (W15), and while it cannot, the ledger goes on degraded beyond them.
const FRAGMENTS_MAX: usize = 128;
/// Members of all its fragments together: they must fit into its metadata.
const MEMBERS_MAX: usize = 400;

/// Changes are counted over this time.
const WEAR_WINDOW: Duration = Duration::from_secs(60);

/// Where a change stands.
#[derive(Debug)]
pub(super) enum Progress {
    Idle,
    Surveying { asked_at: Duration },
    Proposed(Box<Proposed>),
}

/// A sent proposal.
#[derive(Debug)]
pub(super) struct Proposed {
    pub(super) proposal: Proposal,
    /// First entry of the proposed fragment.
    pub(super) first: EntryId,
    /// Who takes which position.
    pub(super) replaced: Vec<(usize, Member)>,
    /// The request that waits for its time.
    pub(super) again: Option<(Duration, ProposalStep)>,
    pub(super) wait: Duration,
    /// Entries from `first` on that were given up meanwhile (W12): one covering range.
    pub(super) released: Option<(EntryId, EntryId)>,
}

/// All that the writer knows of changes, past and present.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) progress: Progress,
    /// No survey before.
    pub(super) not_before: Duration,
    pub(super) wait: Duration,
    /// Members that were replaced; none is taken again (W10), so bounded by the bookies of the cell.
    pub(super) failed: Vec<Member>,
    /// Every nonce that this writer gave the key, and that of an unresolved proposal. Bounded as `failed`.
    pub(super) nonces: Vec<[u8; 16]>,
    /// What replaced members lack.
    pub(super) lacking: Vec<Degraded>,
    /// When the last changes were committed; as many as `worn_changes`.
    pub(super) times: VecDeque<Duration>,
    /// There were too many, or too many at once (W15).
    pub(super) worn: bool,
    /// A committed change that the shell has not taken note of.
    /// Boxed: thousands of ledgers are open, and it is rare and large.
    pub(super) committed: Option<Box<(LedgerMetadata, Revision)>>,
}

impl Change {
    pub(super) fn new(nonce: [u8; 16], wait: Duration) -> Self {
        Self {
            progress: Progress::Idle,
            not_before: Duration::ZERO,
            wait,
            failed: Vec::new(),
            nonces: vec![nonce],
            lacking: Vec::new(),
            times: VecDeque::new(),
            worn: false,
            committed: None,
        }
    }

    /// A proposal is on its way and unresolved.
    pub(super) fn is_proposed(&self) -> bool {
        matches!(self.progress, Progress::Proposed(_))
    }

    /// What replaced members lack.
    pub(super) fn lacking(&self) -> &[Degraded] {
        &self.lacking
    }

    /// Notes that an entry is given up while a proposal is unresolved.
    pub(super) fn note_released(&mut self, entry: EntryId) {
        if let Progress::Proposed(proposed) = &mut self.progress
            && entry >= proposed.first
        {
            proposed.released = Some(cover(proposed.released, entry));
        }
    }
}

pub(super) fn cover(range: Option<(EntryId, EntryId)>, entry: EntryId) -> (EntryId, EntryId) {
    let (first, end) = range.unwrap_or((entry, entry.next()));
    (first.min(entry), end.max(entry.next()))
}

impl WriterCore {
    /// The key as the last committed change left it, once; for the shell, before it publishes what was confirmed since.
    pub fn take_committed(&mut self) -> Option<(LedgerMetadata, Revision)> {
        self.change.committed.take().map(|committed| *committed)
    }

    /// True when metadata show the ledger open and last changed by this writer, at whatever time they were read.
    pub fn is_mine(&self, found: &LedgerMetadata) -> bool {
        found.state == LedgerState::Open && self.change.nonces.contains(&found.writer_nonce)
    }

    /// True when acks at `position` count: its member is in the committed ensemble and in an unresolved proposal (amended W4).
    pub(super) fn counts(&self, position: usize) -> bool {
        let Progress::Proposed(proposed) = &self.change.progress else {
            return true;
        };
        self.config.mutation.is(Mutant::UnresolvedReplacedCounts)
            || proposed.replaced.iter().all(|(at, _)| *at != position)
    }

    /// True while members may be replaced. The only member of an ensemble of one is retried for ever: its ledger cannot leave it.
    fn may_change(&self) -> bool {
        self.config.quorums.ensemble > 1
            && !self.drain_over
            && matches!(self.phase, Phase::Open | Phase::Stopping { drained: false })
    }

    /// True when the ensemble changed too often: the owner should roll the ledger (W15). Stays true.
    pub fn is_worn(&self) -> bool {
        self.change.worn
    }

    /// Notes a committed change.
    pub(super) fn wear(&mut self, now: Duration, fragments: usize) {
        let most = self.config.worn_changes.max(1);
        self.change.times.push_back(now);
        while self.change.times.len() > most {
            self.change.times.pop_front();
        }
        let first = self.change.times.front().copied().unwrap_or(now);
        let often = self.change.times.len() == most && now <= first + WEAR_WINDOW;
        self.change.worn |= often || fragments >= self.config.worn_fragments;
    }

    /// When the change must be looked at again.
    pub(super) fn change_wakeup(&self) -> Option<Duration> {
        match &self.change.progress {
            Progress::Proposed(proposed) if self.sending() => {
                proposed.again.as_ref().map(|(at, _)| *at)
            }
            Progress::Idle if self.may_change() => {
                let failing = self.positions.iter();
                let first = failing
                    .filter_map(|position| position.failing_at(self.config.late_time_max))
                    .min()?;
                Some(first.max(self.change.not_before))
            }
            _ => None,
        }
    }

    /// Does what is due: asks for a survey, or sends the proposal's next request.
    pub(super) fn pump_change(&mut self, now: Duration, effects: &mut Vec<WriterEffect>) {
        if self.change_wakeup().is_none_or(|at| at > now) {
            return;
        }
        match &mut self.change.progress {
            Progress::Idle => {
                self.change.progress = Progress::Surveying { asked_at: now };
                effects.push(WriterEffect::Survey);
            }
            Progress::Proposed(proposed) => {
                if let Some((_, step)) = proposed.again.take() {
                    effects.push(WriterEffect::Metadata(step));
                }
            }
            Progress::Surveying { .. } => {}
        }
    }

    /// Takes the answer to [`WriterEffect::Survey`]. An old one proves nothing: the ledger goes on as it is (amended W8a).
    pub(super) fn surveyed(
        &mut self,
        now: Duration,
        result: Result<Survey, MetadataError>,
        effects: &mut Vec<WriterEffect>,
    ) {
        let Progress::Surveying { asked_at } = self.change.progress else {
            return;
        };
        self.change.progress = Progress::Idle;
        if !self.may_change() {
            return;
        }
        match result {
            Ok(survey) if now <= asked_at + self.config.metadata_fresh => {
                self.consider(now, asked_at, survey, effects);
            }
            _ => self.put_off(now, WAIT_MAX),
        }
    }

    pub(super) fn put_off(&mut self, now: Duration, most: Duration) {
        let wait = self.change.wait.min(most);
        self.change.not_before = now + wait;
        self.change.wait = wait * 2;
    }

    fn consider(
        &mut self,
        now: Duration,
        asked_at: Duration,
        survey: Survey,
        effects: &mut Vec<WriterEffect>,
    ) {
        let ledger = self.config.ledger;
        let Some(found) = survey.found else {
            return self.begin_end(WriterEnd::Deleted { ledger }, effects);
        };
        let ensemble: Vec<Member> = self.members();
        let mine = LedgerMetadata::decode(&found.value)
            .ok()
            .filter(|found| self.is_mine(found) && found.last_fragment().ensemble == ensemble);
        let Some(metadata) = mine else {
            return self.metadata_lost(effects);
        };
        self.forgive();
        let failing: Vec<usize> = (0..self.positions.len())
            .filter(|at| {
                let since = self.positions[*at].failing_at(self.config.late_time_max);
                since.is_some_and(|since| since <= now)
            })
            .collect();
        let replaced = placement::replace(
            self.config.kind.into(),
            &ensemble,
            &failing,
            &self.change.failed,
            &survey.candidates,
        );
        let members = (metadata.fragments.len() + 1) * ensemble.len();
        let too_many = metadata.fragments.len() >= FRAGMENTS_MAX || members > MEMBERS_MAX;
        if replaced.is_empty() || too_many {
            // W10: degraded, on the committed ensemble. A member that came back makes this a change of nothing.
            self.full.nobody_at = Some(asked_at);
            // In another ledger those that failed in this one may be taken again.
            let forgiven = placement::replace(
                self.config.kind.into(),
                &ensemble,
                &failing,
                &[],
                &survey.candidates,
            );
            self.change.worn |= !forgiven.is_empty();
            return self.put_off(now, NOBODY_WAIT_MAX);
        }
        let base = (metadata, found.version);
        self.propose(now, base, replaced, survey.nonce, effects);
    }

    fn members(&self) -> Vec<Member> {
        let positions = self.positions.iter();
        positions.map(|position| position.member.clone()).collect()
    }

    /// A slow member that acks again and has everything by now is slow no longer.
    fn forgive(&mut self) {
        for position in 0..self.positions.len() {
            let caught_up = self.positions[position].health == Health::Up
                && self.positions[position].acked_since
                && self.window.late().all(|late| {
                    let slot = late.slot(self.config.quorums, position);
                    !matches!(slot, Some(Slot::Unsent | Slot::Sent { .. }))
                });
            if caught_up {
                self.positions[position].slow = false;
            }
        }
    }

    fn propose(
        &mut self,
        now: Duration,
        (known, version): (LedgerMetadata, Revision),
        mut replaced: Vec<(usize, Member)>,
        nonce: [u8; 16],
        effects: &mut Vec<WriterEffect>,
    ) {
        let first = self.window.confirmed_end();
        let mut metadata = LedgerMetadata {
            writer_nonce: nonce,
            degraded: self.degraded_at(&known, first, &replaced),
            ..known
        };
        let mut ensemble = self.members();
        for (position, member) in &replaced {
            ensemble[*position] = member.clone();
        }
        // M4: the last fragment is replaced when it has no confirmed entry, else it ends here.
        metadata.fragments.retain(|fragment| fragment.first < first);
        metadata.fragments.push(Fragment { first, ensemble });
        let proposal = Proposal::new(
            ledger_key(self.config.ledger),
            Some(version),
            &metadata,
            NonceField::Writer,
            Txn::default(),
        )
        .mutated(self.config.mutation);
        self.change.nonces.push(nonce);
        self.window.hold(Some(first));
        effects.push(WriterEffect::Metadata(proposal.start()));
        if self.config.mutation.is(Mutant::ProposedMemberCounts) {
            self.install(now, first, std::mem::take(&mut replaced), None, effects);
        }
        self.change.progress = Progress::Proposed(Box::new(Proposed {
            proposal,
            first,
            replaced,
            again: None,
            wait: self.config.retry_initial,
            released: None,
        }));
    }

    /// What the new value says of missing copies (W11): all that may be missing below `first`, as hints for repair.
    fn degraded_at(
        &self,
        known: &LedgerMetadata,
        first: EntryId,
        replaced: &[(usize, Member)],
    ) -> Vec<Degraded> {
        let mut degraded = self.change.lacking.clone();
        for (index, position) in self.positions.iter().enumerate() {
            let mut lacking = position.lacking;
            for pending in self.window.iter().filter(|p| p.header.entry < first) {
                let slot = pending.slot(self.config.quorums, index);
                if matches!(slot, Some(Slot::Unsent | Slot::Sent { .. })) {
                    lacking = Some(cover(lacking, pending.header.entry));
                }
            }
            degraded.extend(lacking.map(|range| degraded_of(range, &position.member)));
        }
        // Members that were down when the ledger was made, and still are in it.
        let stays = |range: &&Degraded| {
            let gone = |at: &usize| range.bookies.contains(&self.positions[*at].member.bookie);
            range.end == EntryId(u64::MAX) && !replaced.iter().any(|(at, _)| gone(at))
        };
        degraded.extend(known.degraded.iter().filter(stays).cloned());
        degraded
    }
}

pub(super) fn degraded_of((first, end): (EntryId, EntryId), member: &Member) -> Degraded {
    Degraded {
        first,
        end,
        bookies: vec![member.bookie.clone()],
    }
}
