//! How a proposal ends, and what its commit does to the writer (storage.md W8e, W8f; amended W6, M3).

use std::time::Duration;

use bookie_metadata::{MetadataError, Revision, TxnOutcome, Versioned};
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{LedgerMetadata, Member, ledger_key};
use hulse_proto::mutant::Mutant;

use super::change::{Progress, Proposed, WAIT_MAX, cover, degraded_of};
use super::core::WriterCore;
use super::event::WriterEffect;
use super::pending::Slot;
use super::position::Position;
use crate::error::WriterEnd;
use crate::metadata::{ProposalOutcome, ProposalStep};

impl WriterCore {
    /// Takes the answer to a sent proposal.
    pub(super) fn metadata_answer(
        &mut self,
        now: Duration,
        answer: Result<TxnOutcome, MetadataError>,
        effects: &mut Vec<WriterEffect>,
    ) {
        if let Progress::Proposed(proposed) = &mut self.change.progress {
            let step = proposed.proposal.on_answer(answer);
            self.proposal_step(now, step, effects);
        }
    }

    /// Takes the answer to a read that shall resolve a proposal.
    pub(super) fn metadata_read(
        &mut self,
        now: Duration,
        answer: Result<Option<Versioned>, MetadataError>,
        effects: &mut Vec<WriterEffect>,
    ) {
        if let Progress::Proposed(proposed) = &mut self.change.progress {
            let step = proposed.proposal.on_read(answer);
            self.proposal_step(now, step, effects);
        }
    }

    fn proposal_step(
        &mut self,
        now: Duration,
        step: ProposalStep,
        effects: &mut Vec<WriterEffect>,
    ) {
        // Once the writer is ending, acks count only where they count either way, so the outcome does not matter.
        if !self.sending() {
            return;
        }
        let forgetful = self.config.mutation.is(Mutant::SecondProposal);
        let Progress::Proposed(proposed) = &mut self.change.progress else {
            return;
        };
        match step {
            ProposalStep::Done(outcome) => self.resolved(now, outcome, effects),
            // It was never taken by the store, so it need not be kept: the ledger goes on without it.
            ProposalStep::Send(_) if !proposed.proposal.is_unknown() => {
                self.withdraw(now, effects);
                self.put_off(now, WAIT_MAX);
            }
            _ if forgetful => self.withdraw(now, effects),
            step => {
                proposed.again = Some((now + proposed.wait, step));
                proposed.wait = (proposed.wait * 2).min(WAIT_MAX);
            }
        }
    }

    fn resolved(
        &mut self,
        now: Duration,
        outcome: ProposalOutcome,
        effects: &mut Vec<WriterEffect>,
    ) {
        match outcome {
            ProposalOutcome::Committed { version, value } => match LedgerMetadata::decode(&value) {
                Ok(metadata) if self.is_mine(&metadata) => {
                    self.committed(now, metadata, version, effects);
                }
                _ => self.metadata_lost(effects),
            },
            ProposalOutcome::Failed { found, .. } => {
                let found = found.and_then(|found| LedgerMetadata::decode(&found.value).ok());
                match found {
                    // Only upkeep was faster (W8e): begin anew from what is there now.
                    Some(found) if self.is_mine(&found) => {
                        self.withdraw(now, effects);
                        self.change.not_before = now;
                    }
                    _ => self.metadata_lost(effects),
                }
            }
            ProposalOutcome::Refused(_) => {
                self.withdraw(now, effects);
                self.put_off(now, WAIT_MAX);
            }
            // Cannot be: nothing but the version is compared. Then it stays unresolved.
            ProposalOutcome::Unknown => {
                let step = ProposalStep::Read(ledger_key(self.config.ledger));
                if let Progress::Proposed(proposed) = &mut self.change.progress {
                    proposed.again = Some((now + WAIT_MAX, step));
                }
            }
        }
    }

    /// The proposal did not and will not take effect: the committed ensemble counts again as a whole.
    fn withdraw(&mut self, now: Duration, effects: &mut Vec<WriterEffect>) {
        self.change.progress = Progress::Idle;
        // Nobody will ever read its nonce.
        self.change.nonces.pop();
        self.window.hold(None);
        self.confirm(now, effects);
        self.check_drained(effects);
    }

    /// W8f: the proposed ensemble is the committed one.
    fn committed(
        &mut self,
        now: Duration,
        metadata: LedgerMetadata,
        version: Revision,
        effects: &mut Vec<WriterEffect>,
    ) {
        let progress = std::mem::replace(&mut self.change.progress, Progress::Idle);
        let Progress::Proposed(proposed) = progress else {
            return;
        };
        self.wear(now, metadata.fragments.len());
        self.change.committed = Some(Box::new((metadata, version)));
        self.change.not_before = now;
        self.change.wait = self.config.retry_initial;
        let Proposed {
            first,
            replaced,
            released,
            ..
        } = *proposed;
        self.install(now, first, replaced, released, effects);
        self.confirm(now, effects);
        self.check_drained(effects);
    }

    /// Drops what replaced members acked from `first` on, and sends it to those that took their places.
    pub(super) fn install(
        &mut self,
        now: Duration,
        first: EntryId,
        replaced: Vec<(usize, Member)>,
        released: Option<(EntryId, EntryId)>,
        effects: &mut Vec<WriterEffect>,
    ) {
        let quorums = self.config.quorums;
        let keeps_acks = self.config.mutation.is(Mutant::ReplacedMemberCounts);
        let mut begun = Vec::new();
        for (position, member) in replaced {
            let new = Position::after(&self.positions[position], member, released);
            let old = std::mem::replace(&mut self.positions[position], new);
            let mut lacking = old.lacking.map(|(from, end)| (from, end.min(first)));
            for pending in self.window.iter_mut() {
                let entry = pending.header.entry;
                match pending.slot(quorums, position) {
                    None => {}
                    Some(Slot::Acked) if entry < first || keeps_acks => {}
                    Some(_) if entry < first => {
                        lacking = Some(cover(lacking, entry));
                        pending.set(quorums, position, Slot::Gone);
                    }
                    Some(_) => pending.set(quorums, position, Slot::Unsent),
                }
            }
            let lacking = lacking.filter(|(from, end)| from < end);
            let degraded = lacking.map(|range| degraded_of(range, &old.member));
            self.change.lacking.extend(degraded);
            self.change.failed.push(old.member);
            effects.push(WriterEffect::Forget { position });
            begun.push(position);
        }
        self.window.hold(None);
        for position in begun {
            self.flush(now, position, effects);
        }
    }

    /// The ledger is no longer this writer's. With an unresolved proposal no further ack counts: the end of the closed ledger
    /// decides (amended W6).
    pub(super) fn metadata_lost(&mut self, effects: &mut Vec<WriterEffect>) {
        let ledger = self.config.ledger;
        let end = WriterEnd::MetadataChanged { ledger };
        if self.change.is_proposed() && self.sending() {
            self.fail_unconfirmed(&end, effects);
            self.finish(end, effects);
        } else {
            self.begin_end(end, effects);
        }
    }
}
