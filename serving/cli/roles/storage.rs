//! The bookie of a process.

use std::path::Path;
use std::sync::Arc;

use bookie_node::{BookieNode, Disk as _, NodeConfig, NodeMetrics, NodeSeams, OsDisk};
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

use super::failures;
use super::ground::Ground;
use super::seams::kernel_boot_id;
use crate::config::{Config, MemoryBudget, SyncMode};
use crate::failure::Failure;

impl From<MemoryBudget> for bookie_node::DiskReserve {
    fn from(reserve: MemoryBudget) -> Self {
        match reserve {
            MemoryBudget::Share(percent) => Self::Percent(percent),
            MemoryBudget::Size(size) => Self::Bytes(size.0),
        }
    }
}

impl From<SyncMode> for bookie_node::SyncMode {
    fn from(mode: SyncMode) -> Self {
        match mode {
            SyncMode::Always => Self::Always,
            SyncMode::Interval(period) => Self::Interval(period.0),
            SyncMode::Off => Self::Off,
        }
    }
}

/// What the configuration says of a bookie.
pub(super) fn node_config(config: &Config, ground: &Ground) -> NodeConfig {
    NodeConfig {
        zone: config.node.zone.clone(),
        sync: config.bookie.sync.into(),
        kernel_boot_id: kernel_boot_id(),
        file_bytes: config.bookie.log_file_size.0,
        queue_bytes_max: config.bookie.queue_size.0,
        disk_reserve: config.bookie.disk_reserve.into(),
        gc_interval: config.bookie.gc_interval.0,
        gc_percent_max: config.bookie.gc_percent_max,
        background_rate: config.bookie.compaction_rate.0,
        scrub_interval: config.bookie.scrub_interval.0,
        ..NodeConfig::new(ground.cell, ground.name.clone())
    }
}

/// Looks whether another process has the directory, so that this is said before anything is waited for. The start locks it for good.
///
/// # Errors
/// It has, or the directory cannot be used.
pub(super) fn look(directory: &Path) -> Result<(), Failure> {
    let locked = OsDisk::open(directory).and_then(|disk| disk.lock());
    let locked = locked.map(drop);
    locked.map_err(|error| failures::bookie(&error.into(), directory))
}

/// Starts the bookie of this directory. `format_if_empty`: an empty one becomes ours.
///
/// # Errors
/// As [`BookieNode::start`].
pub(super) async fn start(
    config: &Config,
    directory: &Path,
    ground: &mut Ground,
    format_if_empty: bool,
) -> Result<Arc<BookieNode>, Failure> {
    let disk = OsDisk::open(directory);
    let disk = disk.map_err(|error| failures::bookie(&error.into(), directory))?;
    let node = NodeConfig {
        format_if_empty,
        ..node_config(config, ground)
    };
    let seams = NodeSeams {
        disk: Arc::new(disk),
        metadata: Arc::clone(&ground.metadata),
        clock: Arc::clone(&ground.clock),
        rng: ChaCha12Rng::from_seed(ground.seed()),
        metrics: NodeMetrics::new(&mut ground.registry),
    };
    let started = Box::pin(BookieNode::start(node, seams)).await;
    started.map_err(|error| failures::bookie(&error, directory))
}
