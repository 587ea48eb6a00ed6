//! What the node counts. Names begin with `hulse_bookie_`.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// The metrics of one node. Clones share them.
#[derive(Debug, Clone)]
pub struct NodeMetrics {
    /// Adds that were stored.
    pub adds: Counter,
    /// Adds that were refused or failed.
    pub add_failures: Counter,
    /// Adds of an entry that is held with other bytes (storage.md B7).
    pub conflicts: Counter,
    /// Bytes written to the log, padding included.
    pub log_bytes: Counter,
    /// Bytes per group.
    pub group_bytes: Histogram,
    /// Seconds from the first byte of a group's write to the end of its sync.
    pub sync_seconds: Histogram,
    /// Entries answered to reads.
    pub read_entries: Counter,
    /// Bytes read from log files.
    pub read_bytes: Counter,
    /// Entries and ranges found damaged.
    pub damage: Counter,
    /// Bytes that wait for the disk.
    pub queue_bytes: Gauge,
    /// Ledgers in limbo at start.
    pub limbo_ledgers: Gauge,
}

impl NodeMetrics {
    /// Registers the metrics.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            adds: Counter::default(),
            add_failures: Counter::default(),
            conflicts: Counter::default(),
            log_bytes: Counter::default(),
            group_bytes: Histogram::new(exponential_buckets(4096.0, 4.0, 7)),
            sync_seconds: Histogram::new(exponential_buckets(0.000_05, 2.0, 18)),
            read_entries: Counter::default(),
            read_bytes: Counter::default(),
            damage: Counter::default(),
            queue_bytes: Gauge::default(),
            limbo_ledgers: Gauge::default(),
        };
        let bookie = registry.sub_registry_with_prefix("hulse_bookie");
        bookie.register("adds", "Adds stored", metrics.adds.clone());
        bookie.register(
            "add_failures",
            "Adds refused or failed",
            metrics.add_failures.clone(),
        );
        bookie.register(
            "conflicts",
            "Adds of an entry that is held with other bytes",
            metrics.conflicts.clone(),
        );
        bookie.register(
            "log_written",
            "Written to the log",
            metrics.log_bytes.clone(),
        );
        bookie.register_with_unit(
            "group",
            "Per group",
            Unit::Bytes,
            metrics.group_bytes.clone(),
        );
        bookie.register_with_unit(
            "sync",
            "Write and sync of a group",
            Unit::Seconds,
            metrics.sync_seconds.clone(),
        );
        bookie.register(
            "read_entries",
            "Entries answered to reads",
            metrics.read_entries.clone(),
        );
        bookie.register(
            "read_volume",
            "Read from log files",
            metrics.read_bytes.clone(),
        );
        bookie.register(
            "damage",
            "Entries and ranges found damaged",
            metrics.damage.clone(),
        );
        bookie.register_with_unit(
            "queue",
            "Waiting for the disk",
            Unit::Bytes,
            metrics.queue_bytes.clone(),
        );
        bookie.register(
            "limbo_ledgers",
            "In limbo at start",
            metrics.limbo_ledgers.clone(),
        );
        metrics
    }
}
