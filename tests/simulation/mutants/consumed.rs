//! A run made for the cursors: one producer, consumers that ack, owners that die one after the other, and a trouble of metadata.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bookie_metadata::testing::{Call, Fate};
use bookie_metadata::{Op, Txn};
use hulse_proto::ledger::{LedgerKind, LedgerMetadata, LedgerState};
use hulse_proto::mutant::Mutant;
use rand::Rng;
use tests_harness::{Run, World};
use tokio::time::sleep;

use super::scene::{heal_and_judge, in_cell, produced};
use crate::partition::Consumers;

/// For so long after an owner's start no state ledger can be made, ms: longer than its client tries.
const REFUSED_MS: (u64, u64) = (5_500, 9_000);
/// And then one can for so long, ms.
const GRANTED_MS: (u64, u64) = (50, 1_500);
/// Owners that die.
const DEATHS: u32 = 4;

/// One seed. Each owner needs a new state ledger for its first delta, and does not get it for a while: deltas fail, and are written
/// again.
pub fn hunt_consumed(seed: u64, whole_trace: bool, mutant: Option<Mutant>) -> Run {
    in_cell(seed, whole_trace, (3, mutant), play)
}

async fn play(world: Arc<World>) -> Run {
    let mut rng = world.seeds.stream("hunt");
    let refuses = refuse_state_ledgers(&world);
    let (cluster, producer) = produced(&world, 1 << 30, (80, 400));
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
    heal_and_judge(&cluster, producer, Some(&consumers)).await
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
