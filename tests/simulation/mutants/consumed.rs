//! A run made for the cursors: one producer, consumers that ack, owners that die one after the other, and a trouble of metadata.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bookie_metadata::testing::{Call, Fate};
use bookie_metadata::{Op, Txn};
use hulse_proto::ledger::{LedgerKind, LedgerMetadata, LedgerState, Quorums};
use hulse_proto::mutant::Mutant;
use rand::Rng;
use tests_harness::{BrokerSizes, Cluster, Manner, Producer, Run, World, WorldSetup, runtime};
use tokio::time::sleep;

use crate::partition::{Consumers, finish_with, wait_for};

/// For so long after an owner's start no state ledger can be made, ms: longer than its client tries.
const REFUSED_MS: (u64, u64) = (5_500, 9_000);
/// And then one can for so long, ms.
const GRANTED_MS: (u64, u64) = (50, 1_500);
/// Owners that die.
const DEATHS: u32 = 4;
const QUORUMS: Quorums = Quorums {
    ensemble: 3,
    write: 3,
    ack: 2,
};

/// One seed. Each owner needs a new state ledger for its first delta, and does not get it for a while: deltas fail, and are written
/// again.
pub fn hunt_consumed(seed: u64, whole_trace: bool, mutant: Option<Mutant>) -> Run {
    runtime().block_on(async move {
        let setup = WorldSetup {
            seed,
            whole_trace,
            quorums: QUORUMS,
            bookies: 3,
            mutant,
        };
        play(&Arc::new(World::new(setup))).await
    })
}

async fn play(world: &Arc<World>) -> Run {
    let mut rng = world.seeds.stream("hunt");
    world.start_bookies().await;
    let refuses = refuse_state_ledgers(world);
    let sizes = BrokerSizes {
        roll_bytes: 1 << 30,
        roll_age: Duration::from_secs(3600),
        tail_bytes: 1 << 20,
    };
    let cluster = Cluster::start(world, sizes);
    let manner = Manner {
        number: 0,
        idempotent: true,
        batches: 80,
        pause_ms: 400,
        gives_up: false,
        echoes: false,
        strays: false,
    };
    let producer = tokio::spawn(Producer::new(&cluster, manner).run());
    let consumers = Consumers::start(&cluster);
    for _ in 0..DEATHS {
        sleep(Duration::from_millis(
            rng.random_range(REFUSED_MS.0..REFUSED_MS.1),
        ))
        .await;
        refuses.store(false, Ordering::Relaxed);
        sleep(Duration::from_millis(
            rng.random_range(GRANTED_MS.0..GRANTED_MS.1),
        ))
        .await;
        refuses.store(true, Ordering::Relaxed);
        cluster.replace(0);
        cluster.replace(1);
    }
    world.heal().await;
    let supervisor = tokio::spawn(cluster.clone().keep_alive());
    wait_for(world, vec![producer]).await;
    consumers.stop();
    supervisor.abort();
    finish_with(&cluster, Some(&consumers)).await
}

/// While it is set, no state ledger can be made.
fn refuse_state_ledgers(world: &World) -> Arc<AtomicBool> {
    let refuses = Arc::new(AtomicBool::new(true));
    let refused = refuses.clone();
    world.faults.choose(move |call| match call {
        Call::Txn(txn) if refused.load(Ordering::Relaxed) && makes_state_ledger(txn) => {
            Fate::Unavailable
        }
        _ => Fate::Pass,
    });
    refuses
}

fn makes_state_ledger(txn: &Txn) -> bool {
    txn.ops.iter().any(|op| match op {
        Op::Put { key, value, .. } if key.starts_with("ledger/") => LedgerMetadata::decode(value)
            .is_ok_and(|metadata| {
                metadata.kind == LedgerKind::State && metadata.state == LedgerState::Open
            }),
        _ => false,
    })
}
