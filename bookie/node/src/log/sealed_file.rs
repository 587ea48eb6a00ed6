//! What becomes of a sealed file in memory: a summary, and runs that point into its slots.

use hulse_proto::id::LedgerId;

use super::format::footer::{Footer, FooterLedger};
use crate::index::{ColdRun, FileSummary, LedgerShare};

/// A file that got its footer: what the index and reclaim are to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedFile {
    /// How much of which ledger it holds.
    pub summary: FileSummary,
    /// The entries, by ledger; they take the place of what was known of them in this file.
    pub runs: Vec<(LedgerId, Vec<ColdRun>)>,
    /// Log files before this one have a footer, or will never get one.
    pub sealed_below: u32,
    /// A complete state snapshot stands, durable, at the head of this file: no older file is needed for the state.
    pub replay_from: Option<u32>,
}

impl SealedFile {
    /// Of a file of `bytes` bytes with this footer.
    pub fn of(footer: &Footer, bytes: u64) -> Self {
        let file = footer.header.file as u32;
        let share = |ledger: &FooterLedger| LedgerShare {
            ledger: ledger.ledger,
            entries: ledger.entries(),
            // A file is never longer than its offsets reach.
            bytes: ledger.bytes as u32,
        };
        Self {
            summary: FileSummary {
                file,
                kind: footer.header.kind,
                newest: footer.header.newest_log_file() as u32,
                bytes,
                end: footer.end,
                shares: footer.ledgers.iter().map(share).collect(),
            },
            runs: cold_runs(footer, file),
            sealed_below: 0,
            replay_from: None,
        }
    }
}

fn cold_runs(footer: &Footer, file: u32) -> Vec<(LedgerId, Vec<ColdRun>)> {
    let mut slot = 0;
    let mut all = Vec::with_capacity(footer.ledgers.len());
    for ledger in &footer.ledgers {
        let mut runs = Vec::with_capacity(ledger.runs.len());
        for run in &ledger.runs {
            runs.push(ColdRun {
                first: run.first.0,
                entries: run.entries,
                file,
                slot,
            });
            slot += run.entries;
        }
        all.push((ledger.ledger, runs));
    }
    all
}
