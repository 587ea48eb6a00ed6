//! Upkeep in the process of a bookie: one of them all plans, the others wait for it (ARCHITECTURE §1).

use std::sync::Arc;
use std::time::Duration;

use bookie_upkeep::{Upkeep, UpkeepConfig, UpkeepMetrics, UpkeepSeams};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::bookies::of_cluster;
use super::ground::Ground;
use crate::config::Config;

/// Between two looks for metadata that do not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Starts it, as soon as metadata answer.
pub(super) fn start(
    config: &Config,
    ground: &mut Ground,
    stop: CancellationToken,
) -> JoinHandle<()> {
    let bounds = UpkeepConfig {
        lost_after: config.upkeep.lost_after.0,
        audit_interval: config.upkeep.audit_interval.0,
        bytes_per_second: config.upkeep.copy_rate.0,
        ..UpkeepConfig::default()
    };
    let metadata = Arc::clone(&ground.metadata);
    let (cell, name, clock) = (ground.cell, ground.name.clone(), Arc::clone(&ground.clock));
    let seed = ground.seed();
    let metrics = UpkeepMetrics::register(&mut ground.registry);
    let work = async move {
        let bookies = loop {
            match of_cluster(Arc::clone(&metadata)).await {
                Ok(bookies) => break bookies,
                Err(error) => tracing::debug!(%error, "upkeep waits for the metadata store"),
            }
            sleep(LOOK_AGAIN).await;
        };
        let seams = UpkeepSeams {
            cell,
            name,
            metadata,
            bookies: Arc::new(bookies),
            clock,
            seed,
            metrics,
        };
        Upkeep::new(bounds, seams)
    };
    tokio::spawn(async move {
        let upkeep = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            upkeep = work => upkeep,
        };
        Box::pin(upkeep.run(stop)).await;
    })
}
