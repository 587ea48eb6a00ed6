//! The oracle of what goes: ledgers (storage.md G4, X4) and bookies (C7).
//!
//! When a ledger's key goes, everybody whom it named, in a fragment or as the target of a repair, has buried it; what is left elsewhere
//! are strays, which bookies let go of by themselves. When a bookie is retired, no ledger names it.

use std::sync::{Arc, Weak};

use hulse_proto::id::LedgerId;
use hulse_proto::ledger::LedgerMetadata;
use hulse_proto::wire::metadata::{Bookie, bookie::State};

use crate::bookie::SimBookie;
use crate::counts::Counts;
use crate::violations::Violations;

/// The bookies of a world, as deletions and retirements find them.
pub struct Departed {
    /// Weak, for each bookie knows the store that calls this.
    bookies: Vec<Weak<SimBookie>>,
    violations: Violations,
    counts: Counts,
}

impl Departed {
    /// Of these bookies.
    pub fn new(bookies: &[Arc<SimBookie>], violations: Violations, counts: Counts) -> Self {
        Self {
            bookies: bookies.iter().map(Arc::downgrade).collect(),
            violations,
            counts,
        }
    }

    fn bookies(&self) -> impl Iterator<Item = Arc<SimBookie>> {
        self.bookies.iter().filter_map(Weak::upgrade)
    }

    /// The key of a ledger is gone, and this is what it said last.
    pub fn removed(&self, ledger: LedgerId, last: &LedgerMetadata) {
        for bookie in self.bookies() {
            let Some(me) = bookie.member() else { continue };
            // A tombstone can be lost with what was synced, or was only called so; what it hid is garbage.
            if last.names(&me) && !bookie.is_scarred() && !bookie.has_lost_tail() {
                self.violations.check(!bookie.holds(ledger), || {
                    format!(
                        "ledger {ledger} is deleted, and {} holds entries of it",
                        bookie.name()
                    )
                });
            }
        }
    }

    /// A bookie's registration was written, while these are all ledgers.
    pub fn registered(&self, name: &str, value: &Bookie, ledgers: &[(u64, LedgerMetadata)]) {
        let Some(bookie) = self.bookies().find(|bookie| bookie.name() == name) else {
            return;
        };
        let state = value.state();
        if state == State::Retired && !bookie.is_retired() {
            self.counts.add("bookies drained and retired");
            let me = bookie.member();
            let naming = ledgers
                .iter()
                .find(|(_, ledger)| me.as_ref().is_some_and(|me| ledger.names(me)));
            self.violations.check(naming.is_none(), || {
                format!("{name} is retired, and {naming:?} names it")
            });
        }
        bookie.told(state);
    }
}
