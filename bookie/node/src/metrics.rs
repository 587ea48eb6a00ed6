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
    /// How full the disk is: 0 normal, 1 low, 2 read-only, 3 down to the reserve (storage.md D1).
    pub level: Gauge,
    /// Free bytes of the volume.
    pub disk_free: Gauge,
    /// Bytes of it that are to stay free: below them no records are taken.
    pub disk_reserve: Gauge,
    /// Bytes of all log files.
    pub log_held: Gauge,
    /// Of those, bytes that nobody can ask for any more, in sealed files.
    pub log_dead: Gauge,
    /// 1 while the state of all ledgers fits no log file, so that none can be removed (G10).
    pub snapshot_missing: Gauge,
    /// Bytes of log files that were removed.
    pub reclaimed: Counter,
    /// Bytes that compaction wrote; by those of `log_bytes`: write amplification.
    pub compaction_bytes: Counter,
    /// Bytes that scrub read and found right or wrong.
    pub scrubbed: Counter,
    /// Sealed files that scrub has not read to their end since the start.
    pub scrub_unchecked: Gauge,
    /// Ledgers that metadata proved gone and no client had asked to delete here.
    pub collected: Counter,
    /// 1 while a pass over the ledgers drops nothing because it would drop suspiciously much (G3).
    pub collection_held: Gauge,
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
            level: Gauge::default(),
            disk_free: Gauge::default(),
            disk_reserve: Gauge::default(),
            log_held: Gauge::default(),
            log_dead: Gauge::default(),
            snapshot_missing: Gauge::default(),
            reclaimed: Counter::default(),
            compaction_bytes: Counter::default(),
            scrubbed: Counter::default(),
            scrub_unchecked: Gauge::default(),
            collected: Counter::default(),
            collection_held: Gauge::default(),
        };
        let bookie = registry.sub_registry_with_prefix("hulse_bookie");
        metrics.register_work(bookie);
        metrics.register_space(bookie);
        metrics
    }

    /// Adds, reads, the log.
    fn register_work(&self, bookie: &mut Registry) {
        bookie.register("adds", "Adds stored", self.adds.clone());
        bookie.register(
            "add_failures",
            "Adds refused or failed",
            self.add_failures.clone(),
        );
        bookie.register(
            "conflicts",
            "Adds of an entry that is held with other bytes",
            self.conflicts.clone(),
        );
        bookie.register("log_written", "Written to the log", self.log_bytes.clone());
        bookie.register_with_unit("group", "Per group", Unit::Bytes, self.group_bytes.clone());
        bookie.register_with_unit(
            "sync",
            "Write and sync of a group",
            Unit::Seconds,
            self.sync_seconds.clone(),
        );
        bookie.register(
            "read_entries",
            "Entries answered to reads",
            self.read_entries.clone(),
        );
        bookie.register(
            "read_volume",
            "Read from log files",
            self.read_bytes.clone(),
        );
        bookie.register(
            "damage",
            "Entries and ranges found damaged",
            self.damage.clone(),
        );
        bookie.register_with_unit(
            "queue",
            "Waiting for the disk",
            Unit::Bytes,
            self.queue_bytes.clone(),
        );
        bookie.register(
            "limbo_ledgers",
            "In limbo; looked at at each start and twice a minute",
            self.limbo_ledgers.clone(),
        );
    }

    /// How full the disk is, and what is done about it.
    fn register_space(&self, bookie: &mut Registry) {
        bookie.register(
            "level",
            "How full the disk is: 0 normal, 1 low, 2 read-only, 3 reserve",
            self.level.clone(),
        );
        let gauges = [
            ("disk_free", "Free on the volume", &self.disk_free),
            (
                "disk_reserve",
                "To stay free on the volume: below it no records are taken",
                &self.disk_reserve,
            ),
            ("log_held", "Log files", &self.log_held),
            ("log_dead", "Of deleted ledgers", &self.log_dead),
        ];
        for (name, help, gauge) in gauges {
            bookie.register_with_unit(name, help, Unit::Bytes, gauge.clone());
        }
        bookie.register(
            "snapshot_missing",
            "1: the state of all ledgers fits no log file, and no space is freed",
            self.snapshot_missing.clone(),
        );
        let counters = [
            ("reclaimed", "Log files removed", &self.reclaimed),
            (
                "compaction_written",
                "Written by compaction",
                &self.compaction_bytes,
            ),
            ("scrubbed", "Read by scrub", &self.scrubbed),
        ];
        for (name, help, counter) in counters {
            bookie.register_with_unit(name, help, Unit::Bytes, counter.clone());
        }
        bookie.register(
            "scrub_unchecked_files",
            "Sealed files that scrub has not read since the start",
            self.scrub_unchecked.clone(),
        );
        bookie.register(
            "collected_ledgers",
            "Ledgers proved gone by metadata alone",
            self.collected.clone(),
        );
        bookie.register(
            "collection_held",
            "1: a pass would drop suspiciously much and drops nothing",
            self.collection_held.clone(),
        );
    }
}
