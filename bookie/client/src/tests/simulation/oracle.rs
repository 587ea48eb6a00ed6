//! What must be true of every run, whatever happened in it (storage.md §11, §12 tests 1, 2, 6, 8).

use std::collections::BTreeMap;

use hulse_proto::entry::EntryDigest;
use hulse_proto::error::Fate;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{ClosedTotals, LedgerMetadata, LedgerState};

use crate::AppendError;
use crate::quorum::write_set;
use crate::testing::MemoryLedgers;

/// What the users of the ledger were told.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// Content of every entry that the writer ever sent.
    pub(super) content: BTreeMap<EntryId, EntryDigest>,
    confirmed: u64,
    answered: u64,
    unwritten: Vec<EntryId>,
    closes: Vec<ClosedTotals>,
    violations: Vec<String>,
    /// The writer knows of every copy, so its close names all that are missing (W11, W12).
    pub(super) closed_by_writer: bool,
    /// A bookie's data were destroyed: fewer copies may be left.
    pub(super) destroyed: bool,
}

impl Oracle {
    pub(super) fn confirmed(&mut self, entry: EntryId) {
        if entry.0 != self.answered || self.confirmed != self.answered {
            self.fail(format!("entry {entry} is confirmed out of order"));
        }
        self.confirmed += 1;
        self.answered += 1;
    }

    pub(super) fn failed(&mut self, entry: EntryId, error: &AppendError) {
        if entry.0 != self.answered {
            self.fail(format!("entry {entry} is answered out of order"));
        }
        self.answered += 1;
        if error.fate() == Fate::NotApplied {
            self.unwritten.push(entry);
        }
    }

    pub(super) fn closed(&mut self, totals: ClosedTotals) {
        self.closes.push(totals);
    }

    pub(super) fn fail(&mut self, what: String) {
        self.violations.push(what);
    }

    pub(super) fn confirmed_count(&self) -> u64 {
        self.confirmed
    }

    /// The verdict, once the ledger is closed and nothing is under way.
    pub(super) fn judge(
        mut self,
        ledger: LedgerId,
        metadata: &LedgerMetadata,
        bookies: &[MemoryLedgers],
    ) -> Vec<String> {
        let (LedgerState::Closed, Some(totals)) = (metadata.state, metadata.closed) else {
            self.fail(format!("the ledger is left {:?}", metadata.state));
            return self.violations;
        };
        if totals.end.0 < self.confirmed {
            self.fail(format!(
                "{} entries were confirmed, {} survive",
                self.confirmed, totals.end
            ));
        }
        for other in self.closes.clone() {
            if other != totals {
                self.fail(format!("two closes: {other:?} and {totals:?}"));
            }
        }
        for entry in self.unwritten.clone() {
            if entry < totals.end {
                self.fail(format!("entry {entry} was answered as not written"));
            }
        }
        for entry in (0..totals.end.0).map(EntryId) {
            self.check_copies(ledger, metadata, bookies, entry);
        }
        self.violations
    }

    fn check_copies(
        &mut self,
        ledger: LedgerId,
        metadata: &LedgerMetadata,
        bookies: &[MemoryLedgers],
        entry: EntryId,
    ) {
        let ensemble = &metadata.fragment_of(entry).ensemble;
        if self.closed_by_writer {
            self.check_degraded(ledger, metadata, bookies, entry);
        }
        let copies = write_set(metadata.quorums, entry)
            .filter_map(|position| {
                let bookie = bookies
                    .iter()
                    .find(|bookie| *bookie.member() == ensemble[position])?;
                bookie.held(ledger, entry)
            })
            .filter(|held| self.content.get(&entry) == Some(&held.header().digest()))
            .count();
        let needed = if self.destroyed {
            1
        } else {
            metadata.quorums.ack as usize
        };
        if copies < needed {
            self.fail(format!("entry {entry} has {copies} copies of {needed}"));
        }
    }

    fn check_degraded(
        &mut self,
        ledger: LedgerId,
        metadata: &LedgerMetadata,
        bookies: &[MemoryLedgers],
        entry: EntryId,
    ) {
        let ensemble = &metadata.fragment_of(entry).ensemble;
        for position in write_set(metadata.quorums, entry) {
            let member = &ensemble[position];
            let lacks = bookies
                .iter()
                .any(|bookie| bookie.member() == member && bookie.held(ledger, entry).is_none());
            let named = metadata.degraded.iter().any(|range| {
                range.first <= entry && entry < range.end && range.bookies.contains(&member.bookie)
            });
            if lacks && !named {
                let bookie = &member.bookie;
                self.fail(format!(
                    "entry {entry} lacks a copy at {bookie}, and nobody says so"
                ));
            }
        }
    }
}
