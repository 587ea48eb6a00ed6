//! What an operator or a test decides of a node.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::id::{CellId, NodeName};
use hulse_proto::mutant::Mutation;

use crate::core::{LevelLimits, Limits};
use crate::disk::Space;
use crate::log::format::GROUP_BODY_BYTES_MAX;

/// Tombstones kept in memory, about 300 bytes each, before the oldest are folded into the dead watermark (storage.md G4).
const TOMBSTONES_MAX: usize = 4096;

/// A volume takes at least so many log files.
const FILES_PER_VOLUME: u64 = 16;
/// A log file that takes every entry is at least this long, bytes.
const FILE_BYTES_FIT_MIN: u64 = 16 << 20;

/// When the node calls something stored (storage.md, amendment to B5). Part of the disk's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncMode {
    /// After a sync that covers it. Nothing confirmed is lost at a power failure.
    Always,
    /// When written; synced this often. A power failure loses up to that much of what was confirmed.
    Interval(Duration),
    /// When written; synced only at a clean stop.
    Off,
}

impl SyncMode {
    /// True when confirmed means durable.
    pub fn always(self) -> bool {
        self == Self::Always
    }
}

/// What is kept free of a volume (storage.md D1); never less than two log files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskReserve {
    /// Hundredths of the volume.
    Percent(u8),
    /// Bytes.
    Bytes(u64),
}

/// Who does the disk's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Threads {
    /// One thread appends, this many read.
    Dedicated {
        /// At least 1.
        readers: usize,
    },
    /// Each call does its own work before it returns: one order of events, for simulation on a paused runtime
    /// of one thread.
    Inline,
}

/// What to do when the log thread panics: the process must not go on (ARCHITECTURE D16).
#[derive(Clone)]
pub struct PanicHook(pub Arc<dyn Fn() + Send + Sync>);

impl PanicHook {
    /// Aborts the process.
    pub fn abort() -> Self {
        Self(Arc::new(|| std::process::abort()))
    }
}

impl std::fmt::Debug for PanicHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PanicHook")
    }
}

/// Configuration of a node.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The cluster this node is to serve.
    pub cell: CellId,
    /// The node's name.
    pub name: NodeName,
    /// Failure domain, published for placement. Default: empty.
    pub zone: String,
    /// Format an empty directory instead of refusing it (standalone). Default: false.
    pub format_if_empty: bool,
    /// Default: always.
    pub sync: SyncMode,
    /// Identity of this boot of the kernel, from the operating system; empty when there is none. Tells a killed process from a
    /// killed machine.
    pub kernel_boot_id: String,
    /// Preallocated length of a log file, bytes; 64 KiB to 2 GiB, and 16 MiB at least if the largest entries are to fit.
    /// Default: 256 MiB.
    pub file_bytes: u64,
    /// Most bytes one sync covers, unless one entry is larger. The cap adapts below this. Default and most: 8 MiB.
    pub group_bytes_max: usize,
    /// Adds queued beyond this many bytes are answered BUSY (storage.md K8); never more than half a log file. Default: 64 MiB.
    pub queue_bytes_max: u64,
    /// Tombstones of deleted ledgers in memory; beyond it the lower half is forgotten, and metadata are asked about such ledgers
    /// instead (storage.md G4). Default: 4096.
    pub tombstones_max: usize,
    /// Pages of the index of sealed log files that are kept in memory, bytes (storage.md 4.4). Default: 32 MiB.
    pub index_cache_bytes: usize,
    /// Kept free: below it no records are taken, so that ledgers can be closed and space be freed. Default: 2 % of the volume.
    pub disk_reserve: DiskReserve,
    /// How often metadata are asked whether what is held here still exists (storage.md G1). Default: 10 minutes.
    pub gc_interval: Duration,
    /// A pass of it that would drop more than this share of the ledgers or bytes, in hundredths, and more than 100 ledgers, drops
    /// nothing and says so (G3). Default: 10.
    pub gc_percent_max: u8,
    /// Bytes per second that compaction and scrub read and write together (G14). Default: 64 MiB.
    pub background_rate: u64,
    /// Each sealed log file is read and checked once in this time. Default: 7 days.
    pub scrub_interval: Duration,
    /// After this long without work following a sync a mark is written (storage.md, amendment to 4.3). Default: 50 ms.
    pub mark_after: Duration,
    /// Longest wait for metadata at a first contact (B2). Default: 3 s.
    pub verify_timeout: Duration,
    /// Default: two readers.
    pub threads: Threads,
    /// Default: abort.
    pub on_panic: PanicHook,
    /// For tests: a rule that is switched off. Default: none.
    pub mutation: Mutation,
}

impl NodeConfig {
    /// The defaults.
    pub fn new(cell: CellId, name: NodeName) -> Self {
        Self {
            cell,
            name,
            zone: String::new(),
            format_if_empty: false,
            sync: SyncMode::Always,
            kernel_boot_id: String::new(),
            file_bytes: 256 << 20,
            group_bytes_max: 8 << 20,
            queue_bytes_max: 64 << 20,
            tombstones_max: TOMBSTONES_MAX,
            index_cache_bytes: 32 << 20,
            disk_reserve: DiskReserve::Percent(2),
            gc_interval: Duration::from_secs(600),
            gc_percent_max: 10,
            background_rate: 64 << 20,
            scrub_interval: Duration::from_secs(7 * 24 * 3600),
            mark_after: Duration::from_millis(50),
            verify_timeout: Duration::from_secs(3),
            threads: Threads::Dedicated { readers: 2 },
            on_panic: PanicHook::abort(),
            mutation: Mutation::default(),
        }
    }

    /// Largest group body this configuration makes.
    fn group_cap(&self) -> usize {
        self.group_bytes_max
            .clamp(4096, GROUP_BODY_BYTES_MAX - (64 << 10))
    }

    /// Bytes that may wait: never more than fit into one fresh log file.
    fn queue_cap(&self) -> u64 {
        self.queue_bytes_max.min(self.file_bytes / 2)
    }

    /// Bounds of the core.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            group_bytes_max: self.group_cap(),
            queue_bytes_max: self.queue_cap(),
            tombstones_max: self.tombstones_max,
            levels: self.level_limits(),
        }
    }

    fn level_limits(&self) -> LevelLimits {
        let (percent, bytes) = match self.disk_reserve {
            DiskReserve::Percent(percent) => (u64::from(percent), 0),
            DiskReserve::Bytes(bytes) => (0, bytes),
        };
        LevelLimits {
            file_bytes: self.file_cap(),
            reserve_percent: percent,
            reserve_bytes: bytes,
        }
    }

    /// On a small volume log files are smaller, or two of them would be all of it (storage.md D1); never too small for the largest
    /// entry.
    pub(crate) fn fit(&mut self, space: Space) {
        let fitting = (space.total / FILES_PER_VOLUME).max(FILE_BYTES_FIT_MIN);
        self.file_bytes = self.file_bytes.min(fitting);
    }

    /// Length of a log file: room for the largest group and the file's own groups.
    pub(crate) fn file_cap(&self) -> u64 {
        self.file_bytes.clamp(64 << 10, 2 << 30)
    }
}
