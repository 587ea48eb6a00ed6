//! What the storage node in this process knows of damage, as far as brokers have to know what a storage node is: not at all.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::id::{EntryId, LedgerId};

/// Says what is damaged now. Asked for people, so it may look at everything, and must not wait.
pub type StorageDamage = Arc<dyn Fn() -> DamageReport + Send + Sync>;

/// What is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DamageReport {
    /// Entries that cannot be read.
    pub entries: Vec<DamagedEntries>,
    /// Bytes of which nobody knows what they were: number of the file, first byte, exclusive end (`u64::MAX`: of the file).
    pub bytes: Vec<(u64, u64, u64)>,
    /// Damaged places that are in neither.
    pub more: u64,
    /// Log files that are full.
    pub sealed_files: u64,
    /// How many of them were not checked since the start.
    pub unchecked_files: u64,
    /// Each is checked once in this time.
    pub scrub_interval: Duration,
}

/// Entries in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedEntries {
    /// Of this ledger.
    pub ledger: LedgerId,
    /// The first.
    pub first: EntryId,
    /// Exclusive.
    pub end: EntryId,
    /// Number of the log file.
    pub file: u64,
}
