//! A run made for cursors beside trims: one producer, small ledgers, a retention that lets nearly everything go, subscriptions that are
//! made, or moved back, at the moment when it decides, and metadata that take their time over where the log begins.
//!
//! What must hold (storage.md P6): where a subscription was told that it begins, it begins, until somebody acks or moves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bookie_metadata::Op;
use bookie_metadata::testing::{Call, Fate};
use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::mutant::Mutant;
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use serving_broker::{CursorMove, CursorStart, Limits, PartitionHandle};
use tests_harness::{Cluster, Run, World, trace};
use tokio::time::{sleep, timeout};

use super::scene::{heal_and_judge, in_cell, produced};

/// Subscriptions one after the other.
const ROUNDS: u32 = 40;
/// Metadata answer where the log begins after this at most, ms.
const CHAIN_MS: u64 = 150;
/// Retention, and who makes or moves a cursor, begin within this, ms.
const APART_MS: u64 = 12;
/// Without an answer for this long a request is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// When the trim is over.
const SETTLED: Duration = Duration::from_millis(600);

/// One seed.
pub fn hunt_trimmed(seed: u64, whole_trace: bool, mutant: Option<Mutant>) -> Run {
    in_cell(seed, whole_trace, (3, mutant), play)
}

async fn play(world: Arc<World>) -> Run {
    let mut rng = world.seeds.stream("hunt");
    let slow = slow_chains(&world, world.seeds.stream("chains"));
    let (cluster, producer) = produced(&world, 600, (300, 100));
    // What comes meanwhile may go, too.
    cluster.trims().want(Offset(u64::MAX));
    for round in 0..ROUNDS {
        sleep(Duration::from_millis(rng.random_range(50..600))).await;
        race(&cluster, round, &mut rng).await;
    }
    slow.store(false, Ordering::Relaxed);
    heal_and_judge(&cluster, producer, None).await
}

/// While it is set, where the log begins takes its time.
fn slow_chains(world: &World, mut rng: ChaCha12Rng) -> Arc<AtomicBool> {
    let slow = Arc::new(AtomicBool::new(true));
    let slowed = slow.clone();
    world.faults.choose(move |call| {
        let of_log = |op: &Op| match op {
            Op::Put { key, .. } => key.starts_with("chain/") && key.contains("/log/"),
            _ => false,
        };
        match call {
            Call::Txn(txn) if slowed.load(Ordering::Relaxed) && txn.ops.iter().any(of_log) => {
                Fate::Slow(Duration::from_millis(rng.random_range(0..CHAIN_MS)))
            }
            _ => Fate::Pass,
        }
    });
    slow
}

/// A subscription is made, or moved back, while retention decides.
async fn race(cluster: &Arc<Cluster>, round: u32, rng: &mut ChaCha12Rng) {
    let Some((_, handle)) = cluster.route(false).await else {
        return;
    };
    let subscription = SubscriptionId(cluster.world.seeds.id(&format!("raced {round}")));
    let start = |base| CursorStart {
        subscription,
        name: format!("t/n/raced{round}").into(),
        hold: true,
        base,
    };
    let end = handle.offsets().high_watermark;
    let moves = rng.random_bool(0.5);
    if moves && !heard(handle.make_cursor(start(end))).await {
        return;
    }
    let limits = Limits {
        time: rng.random_bool(0.5).then_some(Duration::ZERO),
        bytes: Some(rng.random_range(0..500)),
    };
    let (first, second) = (rng.random_range(0..APART_MS), rng.random_range(0..APART_MS));
    let retention = async {
        sleep(Duration::from_millis(first)).await;
        heard(handle.retain(limits)).await
    };
    let promise = async {
        sleep(Duration::from_millis(second)).await;
        let back = handle.offsets().log_start;
        let goal = CursorMove {
            to: back,
            keep_acked: false,
        };
        match moves {
            true => heard(handle.move_cursor(subscription, goal)).await,
            false => heard(handle.make_cursor(start(back))).await,
        }
    };
    let (_, promised) = tokio::join!(retention, promise);
    if promised && let Some(told) = base(&handle, subscription).await {
        trace!(
            cluster.world.trace,
            "subscription {round} was told that it begins at {told}"
        );
        cluster.world.counts.add("subscriptions beside a trim");
        sleep(SETTLED).await;
        look(cluster, subscription, told).await;
    }
    // Retention goes on.
    heard(handle.remove_cursor(subscription, true)).await;
}

/// It begins where it was told, and what it was promised is there.
async fn look(cluster: &Cluster, subscription: SubscriptionId, told: Offset) {
    let Some((_, handle)) = cluster.route(false).await else {
        return;
    };
    let Some(base) = base(&handle, subscription).await else {
        return;
    };
    let log_start = handle.offsets().log_start;
    cluster
        .world
        .violations
        .check(base == told && log_start <= told, || {
            format!(
                "LOST PROMISE: a subscription was told that it begins at {told}, now it begins at {base}, the log at {log_start}"
            )
        });
}

async fn base(handle: &PartitionHandle, subscription: SubscriptionId) -> Option<Offset> {
    let views = timeout(ANSWER_TIMEOUT, handle.cursors(Some(subscription), 0)).await;
    let views = views.ok()?.ok()?;
    views.first().map(|view| view.base)
}

/// True when it was done; without an answer nothing is promised.
async fn heard<T>(asked: impl Future<Output = Result<T, Fault>>) -> bool {
    matches!(timeout(ANSWER_TIMEOUT, asked).await, Ok(Ok(_)))
}
