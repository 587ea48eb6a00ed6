//! Tells a broker what the bookie of its process knows of damage.

use std::sync::Arc;
use std::time::Duration;

use bookie_node::BookieNode;
use serving_broker::{DamageReport, DamagedEntries, StorageDamage};

/// The bookie's knowledge, in the broker's words.
pub(super) fn told(bookie: Arc<BookieNode>, scrub_interval: Duration) -> StorageDamage {
    Arc::new(move || {
        let known = bookie.damage();
        let (sealed, unchecked) = bookie.scrub_progress();
        let entries = known.entries.into_iter().map(|entries| DamagedEntries {
            ledger: entries.ledger,
            first: entries.first,
            end: entries.end,
            file: entries.file.into(),
        });
        let ranges = known.ranges.into_iter();
        DamageReport {
            entries: entries.collect(),
            bytes: ranges
                .map(|range| (range.file, range.first, range.end))
                .collect(),
            more: known.more,
            sealed_files: sealed as u64,
            unchecked_files: unchecked as u64,
            scrub_interval,
        }
    })
}
