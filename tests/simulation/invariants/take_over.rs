//! Storage.md §12, 25: the owner of a partition dies, or stands still, at each of its effects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hulse_proto::mutant::Mutant;
use tests_harness::crash_point::Side;
use tests_harness::{Cluster, runtime};

use super::partition::{Chains, all_sent, cluster, judge, mutated, produce, rest};
use super::scene::{USUAL, finds};

/// Batches of the history: some ledgers, and more in flight than one.
const BATCHES: u32 = 12;

/// Turns clients to the other broker once the first one is dead.
fn follow(cluster: &Arc<Cluster>) {
    let (owner, cluster) = (cluster.broker(0), cluster.clone());
    tokio::spawn(async move {
        owner.process.dead().await;
        cluster.prefer(1);
    });
}

/// The owner dies at its effect; false when it had fewer.
async fn death(effect: u64, side: Side, mutant: Option<Mutant>) -> bool {
    let case = format!("effect {effect} {side:?}");
    let cluster = mutated(USUAL, mutant).await;
    let owner = cluster.broker(0);
    owner.process.doom(effect, side);
    follow(&cluster);
    let first = produce(&cluster, 0, BATCHES);
    let second = produce(&cluster, 1, BATCHES / 2);
    all_sent(&cluster, first, &case).await;
    all_sent(&cluster, second, &case).await;
    let died = owner.process.is_dead();
    owner.process.pardon();
    judge(&cluster, &case).await;
    died
}

/// 25: "Offsets: takeover at each point keeps base_offset(n+1) = base_offset(n)+count(n); re-sent pending entries neither duplicate nor
/// skip; UNKNOWN outcomes are deduplicated by producer id/sequence rebuilt from recovered headers."
#[test]
fn take_over_at_each_effect_of_the_owner_keeps_every_offset() {
    for side in [Side::Before, Side::After] {
        let mut effect = 0;
        while runtime().block_on(death(effect, side, None)) {
            effect += 1;
        }
        assert!(effect > 40, "only {effect} effects");
        println!("take-over: {effect} effects, {side:?}");
    }
}

/// The owner stands still at its message number `at`, another takes over, it comes back. Its messages.
async fn pause(at: u64) -> u64 {
    let case = format!("paused at message {at}");
    let cluster = cluster(USUAL).await;
    let owner = cluster.broker(0);
    let seen = Arc::new(AtomicU64::new(0));
    let (count, sleeper, clients) = (seen.clone(), owner.process.clone(), cluster.clone());
    cluster.world.network.script(move |message| {
        let mine = message.client == sleeper.name();
        if mine && count.fetch_add(1, Ordering::Relaxed) == at {
            sleeper.pause();
            clients.prefer(1);
        }
        None
    });
    let first = produce(&cluster, 0, BATCHES);
    let second = produce(&cluster, 1, BATCHES / 2);
    all_sent(&cluster, first, &case).await;
    owner.process.resume();
    all_sent(&cluster, second, &case).await;
    rest(8_000).await;
    let chains = Chains::load(&cluster.world).await;
    assert!(chains.logs() > 1, "{case}: {chains:#?}");
    judge(&cluster, &case).await;
    seen.load(Ordering::Relaxed)
}

/// 25 and 8, with an owner that lives: it stands still at each of its messages and comes back when another one has its partition.
#[test]
fn take_over_from_an_owner_that_comes_back_keeps_every_offset() {
    for at in 0.. {
        let messages = runtime().block_on(pause(at));
        if at >= messages {
            assert!(at > 40, "only {at} messages");
            break;
        }
    }
}

/// What a take-over reads back depends on these rules of the state chain.
#[test]
fn take_over_shows_what_each_rule_is_for() {
    for mutant in [
        Mutant::SnapshotOfUnconfirmed,
        Mutant::LogTrimmedPastSnapshot,
    ] {
        let found = (0..60)
            .any(|effect| finds(|| runtime().block_on(death(effect, Side::After, Some(mutant)))));
        assert!(found, "{mutant:?} is not seen");
    }
}
