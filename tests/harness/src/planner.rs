//! The planner of upkeep as it is (`bookie-upkeep`): elected by a lease, it audits all ledgers, has them repaired, and retires bookies
//! that were drained.

use std::sync::Arc;
use std::time::Duration;

use bookie_upkeep::{Upkeep, UpkeepConfig, UpkeepMetrics, UpkeepSeams};
use hulse_proto::id::NodeName;
use rand::Rng;
use rand::seq::IndexedRandom;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::process::Process;
use crate::world::World;

/// A bookie that is silent for so long is given up, as it is in a cell, or much sooner.
const LOST_AFTER: [Duration; 3] = [
    Duration::from_secs(600),
    Duration::from_secs(600),
    Duration::from_secs(5),
];
/// How long it waits for a bookie.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(900);

/// Starts one in this process. It ends with the run, or stands still for ever when its process dies.
pub fn plan_upkeep(world: &Arc<World>, process: &Process) -> JoinHandle<()> {
    let mut rng = world.seeds.stream(&format!("plans of {}", process.name()));
    let config = UpkeepConfig {
        lost_after: *LOST_AFTER.choose(&mut rng).expect("three times"),
        audit_interval: Duration::from_millis(rng.random_range(400..2_000)),
        bytes_per_second: 1 << 20,
        repairs_at_once: rng.random_range(1..4),
        answer_timeout: ANSWER_TIMEOUT,
        mutation: world.mutation(),
    };
    let seams = UpkeepSeams {
        cell: world.cell,
        name: NodeName::new(process.name()).expect("a short name is a name"),
        metadata: world.upkeep_metadata(process),
        bookies: Arc::new(world.directory(process)),
        clock: world.clock.clone(),
        seed: rng.random(),
        metrics: UpkeepMetrics::default(),
    };
    let upkeep = Upkeep::new(config, seams);
    // Cancelled by nobody.
    tokio::spawn(upkeep.run(CancellationToken::new()))
}
