//! What is known of damage to the log, for people. Damaged entries are known from reads and scrub of this boot alone; ranges that a start
//! found are on record until their file is gone.

use hulse_proto::id::{EntryId, LedgerId};

use super::NodeCore;
use crate::log::DamagedRange;

/// Runs of entries, and ranges, that are listed.
const LISTED_MAX: usize = 10_000;
/// Damaged entries that one look goes over.
const PAGE_ENTRIES: usize = 4_096;

/// Entries in a row that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedEntries {
    /// Of this ledger.
    pub ledger: LedgerId,
    /// The first.
    pub first: EntryId,
    /// Exclusive.
    pub end: EntryId,
    /// Number of the log file.
    pub file: u32,
}

/// All of it, up to a bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownDamage {
    /// In the order of ledgers and entries.
    pub entries: Vec<DamagedEntries>,
    /// Bytes of which nobody knows what they were.
    pub ranges: Vec<DamagedRange>,
    /// Damaged entries, and ranges, that are not listed.
    pub more: u64,
}

impl KnownDamage {
    fn entry(&mut self, (ledger, entry): (LedgerId, EntryId), file: u32) {
        let end = entry.next();
        let full = self.entries.len() == LISTED_MAX;
        match self.entries.last_mut() {
            Some(last) if (last.ledger, last.end, last.file) == (ledger, entry, file) => {
                last.end = end;
            }
            _ if full => self.more += 1,
            _ => self.entries.push(DamagedEntries {
                ledger,
                first: entry,
                end,
                file,
            }),
        }
    }
}

impl NodeCore {
    /// Adds the damaged entries behind this one, as many as one may look at while everybody waits, and the last time what starts found
    /// damaged in files that are there. Where the next page begins.
    pub fn damage_page(
        &self,
        after: Option<(LedgerId, EntryId)>,
        into: &mut KnownDamage,
    ) -> Option<(LedgerId, EntryId)> {
        let mut last = None;
        let mut looked = 0;
        for (at, file) in self.damaged_after(after).take(PAGE_ENTRIES) {
            if let Some(file) = file {
                into.entry(at, file);
            }
            last = Some(at);
            looked += 1;
        }
        if looked == PAGE_ENTRIES {
            return last;
        }
        let mut ranges = self.damaged_ranges();
        into.more += ranges.len().saturating_sub(LISTED_MAX) as u64;
        ranges.truncate(LISTED_MAX);
        into.ranges = ranges;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_damaged_runs_are_counted_and_not_listed() {
        let mut known = KnownDamage::default();
        let ledger = LedgerId(1);
        let runs = LISTED_MAX as u64 + 5;
        for run in 0..runs {
            // Two in a row, then one that is whole.
            known.entry((ledger, EntryId(3 * run)), 7);
            known.entry((ledger, EntryId(3 * run + 1)), 7);
        }
        assert_eq!(known.entries.len(), LISTED_MAX);
        assert_eq!(
            known.entries[1].first..known.entries[1].end,
            EntryId(3)..EntryId(5)
        );
        assert_eq!(known.more, 10);
    }
}
