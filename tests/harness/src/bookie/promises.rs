//! What a bookie has said so far, and the oracle that holds it to its word (storage.md §12, tests 3 and 11).

use std::collections::BTreeSet;

use hulse_proto::bookie::{Origin, RecoveryReadAnswer};
use hulse_proto::id::{EntryId, LedgerId};

use super::request::{Reply, Request};
use super::sim_bookie::{SimBookie, State};

/// What a bookie has promised. It outlives its processes.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// Entries that it said it would never take from the writer.
    refused: BTreeSet<(LedgerId, EntryId)>,
    /// Entries that it said it holds.
    stored: BTreeSet<(LedgerId, EntryId)>,
}

impl Promises {
    pub(super) fn has_stored(&self, ledger: LedgerId, entry: EntryId) -> bool {
        self.stored.contains(&(ledger, entry))
    }
}

impl SimBookie {
    /// True when it said that it holds the entry, and its disk lost bytes since it was made.
    pub fn has_lost(&self, ledger: LedgerId, entry: EntryId) -> bool {
        let state = self.state();
        (state.scars.any || state.scars.tail) && state.promises.has_stored(ledger, entry)
    }

    /// After a NEGATIVE for an entry, no add of it is ever accepted from the writer; and what was stored is never negative, as long
    /// as the ledger is not closed: limbo is about those (storage.md S3).
    ///
    /// A mutant's broken promises are not told: it is for what follows from them to be seen.
    pub(super) fn watch(&self, state: &mut State, request: &Request, reply: &Reply) {
        let (violations, mutant) = (&self.setup.violations, self.setup.mutant.is_some());
        match (request, reply) {
            (Request::RecoveryRead(read), Reply::RecoveryRead(Ok(answer))) => {
                let (ledger, entry) = (read.to.ledger, read.entry);
                let RecoveryReadAnswer::Negative { unsynced_limbo } = answer else {
                    // Also of an add whose answer was lost: recovery counts this copy.
                    if let RecoveryReadAnswer::Positive { .. } = answer {
                        state.promises.stored.insert((ledger, entry));
                    }
                    return;
                };
                state.promises.refused.insert((ledger, entry));
                let lies = state.promises.has_stored(ledger, entry)
                    && !unsynced_limbo
                    && self.setup.observed.is_undecided(ledger);
                violations.check(mutant || !lies, || {
                    format!(
                        "{}: entry {entry} of ledger {ledger} was stored, and is said never to have been",
                        self.name
                    )
                });
            }
            (Request::Add(add), Reply::Add(Ok(()))) => {
                let (ledger, entry) = (add.to.ledger, add.entry.header().entry);
                state.promises.stored.insert((ledger, entry));
                let broken = add.origin == Origin::Normal
                    && state.promises.refused.contains(&(ledger, entry));
                violations.check(mutant || !broken, || {
                    format!(
                        "{}: entry {entry} of ledger {ledger} was taken after a negative",
                        self.name
                    )
                });
            }
            _ => {}
        }
    }
}
