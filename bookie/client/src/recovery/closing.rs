//! The close: end, totals and what was lost, on exactly the version that the start wrote (R10).

use hulse_proto::id::EntryId;
use hulse_proto::ledger::{ClosedTotals, Degraded, LedgerMetadata, LedgerState, ledger_key};
use hulse_proto::mutant::Mutant;

use super::core::{Phase, RecoveryCore, push_step};
use super::event::RecoveryEffect;
use crate::metadata::{NonceField, Proposal, ProposalStep};

impl RecoveryCore {
    pub(super) fn close(&mut self, effects: &mut Vec<RecoveryEffect>) {
        let end = self.end.expect("the caller has decided the end");
        let (open, version) = self
            .metadata
            .clone()
            .expect("set when the start is committed");
        let mut fragments = open.fragments.clone();
        // What was written back lies where the local copy says (R9).
        fragments.pop();
        fragments.extend(self.local.fragments.iter().cloned());
        // Only a recorded loss can reach below the last fragment.
        fragments.retain(|fragment| fragment.first <= end);
        let closed = LedgerMetadata {
            state: LedgerState::Closed,
            recovery_nonce: self.config.nonces[1],
            closed: Some(self.totals(end)),
            degraded: self.degraded(&open.degraded, end),
            loss: self.loss.or(open.loss),
            fragments,
            ..open
        };
        let proposal = Proposal::new(
            ledger_key(self.config.ledger),
            Some(version),
            &closed,
            NonceField::Recovery,
            self.config.part.clone(),
        )
        .mutated(self.config.mutation);
        push_step(self.first_step(&proposal), effects);
        self.phase = Phase::Closing(Box::new(proposal));
    }

    /// The close, or by mutation one that overwrites whatever stands there.
    fn first_step(&self, proposal: &Proposal) -> ProposalStep {
        match proposal.start() {
            ProposalStep::Send(mut txn) if self.config.mutation.is(Mutant::CloseWithoutVersion) => {
                txn.compares.clear();
                ProposalStep::Send(txn)
            }
            step => step,
        }
    }

    /// Totals from the last entry's header: bytes and digest are cumulative.
    fn totals(&self, end: EntryId) -> ClosedTotals {
        let last = self
            .last
            .filter(|last| end > EntryId(0) && last.entry.next() == end);
        ClosedTotals {
            end,
            offset_span: last.map_or(0, |last| self.span_to(&last)),
            record_count: last.map_or(0, |_| self.records),
            bytes: last.map_or(0, |last| last.cumulative_bytes),
            digest: last.map_or(0, |last| last.cumulative_digest),
        }
    }

    fn degraded(&self, known: &[Degraded], end: EntryId) -> Vec<Degraded> {
        known
            .iter()
            .chain(&self.lacking)
            .filter(|range| range.first < end)
            .map(|range| Degraded {
                end: range.end.min(end),
                ..range.clone()
            })
            .collect()
    }
}
