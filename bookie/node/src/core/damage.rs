//! What is known of damage to the log, for people. Damaged entries are known from reads and scrub of this boot alone; ranges that a start
//! found are on record until their file is gone.

use hulse_proto::id::{EntryId, LedgerId};

use super::NodeCore;
use crate::log::DamagedRange;

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

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownDamage {
    /// In the order of ledgers and entries.
    pub entries: Vec<DamagedEntries>,
    /// Bytes of which nobody knows what they were.
    pub ranges: Vec<DamagedRange>,
}

impl NodeCore {
    /// What is damaged, as far as it is known, and not gone since.
    pub fn damage(&self) -> KnownDamage {
        let mut entries: Vec<DamagedEntries> = Vec::new();
        for (ledger, entry, file) in self.damaged_entries() {
            let end = entry.next();
            match entries.last_mut() {
                Some(last) if (last.ledger, last.end, last.file) == (ledger, entry, file) => {
                    last.end = end;
                }
                _ => entries.push(DamagedEntries {
                    ledger,
                    first: entry,
                    end,
                    file,
                }),
            }
        }
        KnownDamage {
            entries,
            ranges: self.damaged_ranges(),
        }
    }
}
