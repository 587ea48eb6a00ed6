//! What the processes of a run were told about each ledger.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hulse_proto::id::{EntryId, LedgerId};
use tests_harness::Outcome;

/// An append and what became of it.
#[derive(Debug, Clone)]
pub struct Told {
    /// The payload's body.
    pub body: Bytes,
    /// What its writer was told.
    pub outcome: Outcome,
}

/// One ledger.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Appends by entry number, in the order of the calls.
    pub appends: BTreeMap<EntryId, Told>,
    /// Ends that somebody was told.
    pub ends: Vec<EntryId>,
}

/// All ledgers of a run. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Book(Arc<Mutex<BTreeMap<LedgerId, Page>>>);

impl Book {
    fn pages(&self) -> MutexGuard<'_, BTreeMap<LedgerId, Page>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A ledger may come into being.
    pub fn open(&self, ledger: LedgerId) {
        self.pages().entry(ledger).or_default();
    }

    /// Every ledger that may exist.
    pub fn ledgers(&self) -> Vec<LedgerId> {
        self.pages().keys().copied().collect()
    }

    /// An append is made.
    pub fn append(&self, ledger: LedgerId, entry: EntryId, body: Bytes) {
        let told = Told {
            body,
            outcome: Outcome::Unknown,
        };
        self.pages()
            .entry(ledger)
            .or_default()
            .appends
            .insert(entry, told);
    }

    /// Its writer is told what became of it.
    pub fn tell(&self, ledger: LedgerId, entry: EntryId, outcome: Outcome) {
        if let Some(told) = self
            .pages()
            .entry(ledger)
            .or_default()
            .appends
            .get_mut(&entry)
        {
            told.outcome = outcome;
        }
    }

    /// Somebody is told where a ledger ends.
    pub fn end(&self, ledger: LedgerId, end: EntryId) {
        self.pages().entry(ledger).or_default().ends.push(end);
    }

    /// A copy of a page.
    pub fn page(&self, ledger: LedgerId) -> Page {
        self.pages().get(&ledger).cloned().unwrap_or_default()
    }
}
