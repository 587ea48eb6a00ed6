//! Storage.md §12, 13: a sync fails once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hulse_proto::bookie::{ReadClass, ReadRequest};
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::mutant::Mutant;
use tests_harness::bookie::{Reply, Request};
use tests_harness::{PowerLoss, Process, SimBookie, runtime};
use tokio::time::sleep;

use super::partition::{all_sent, cluster, judge, produce};
use super::scene::{REST, Scene, USUAL, finds, quorums};

/// What a bookie said it stored, by bookie.
type Said = Arc<Mutex<BTreeMap<String, BTreeSet<(LedgerId, EntryId)>>>>;

/// What it serves now.
fn served(scene: &Scene, bookie: &SimBookie, ledger: LedgerId) -> BTreeSet<EntryId> {
    let to = scene.address(bookie, ledger);
    let held = |entry: &EntryId| {
        let read = ReadRequest {
            to,
            first: *entry,
            end: entry.next(),
            max_bytes: 1 << 20,
            class: ReadClass::CatchUp,
        };
        bookie.look(&read).is_ok()
    };
    (0..12).map(EntryId).filter(held).collect()
}

/// The next sync of one bookie fails, so many ms after the writer's append number `at`; true when one did.
async fn run((at, ms): (u64, u64), bookies: u32, mutant: Option<Mutant>) -> bool {
    let case = format!("{ms} ms after append {at}, {bookies} bookies");
    let shape = if bookies == 1 {
        quorums(1, 1, 1)
    } else {
        USUAL
    };
    let scene = Scene::with(shape, bookies, mutant).await;
    let said = Said::default();
    let told = said.clone();
    scene.world.network.observe(move |sight| {
        if let (Request::Add(add), Some(Reply::Add(Ok(())))) = (sight.request, sight.reply) {
            let mut said = told.lock().unwrap_or_else(PoisonError::into_inner);
            let of = said.entry(sight.bookie.to_owned()).or_default();
            of.insert((add.to.ledger, add.entry.header().entry));
        }
    });
    let w = Process::new("w");
    let writer = scene.create(&w).await;
    let ledger = writer.ledger();
    let victim = scene.members(ledger)[0].clone();
    let starts = victim.starts();
    for number in 0..6 {
        scene.send(&w, &writer);
        sleep(Duration::from_millis(ms)).await;
        if number == at {
            victim.disk().fail_syncs(1);
        }
        sleep(Duration::from_millis(12 - ms)).await;
    }
    sleep(Duration::from_secs(9)).await;
    let failed = victim.starts() > starts;
    victim.disk().fail_syncs(0);
    w.kill();
    // What it serves after its restart is on the medium: it serves the same after a power loss.
    victim.start().await;
    let after = served(&scene, &victim, ledger);
    sleep(REST).await;
    victim.hold_down(PowerLoss::Yes);
    victim.start().await;
    assert_eq!(
        after,
        served(&scene, &victim, ledger),
        "{case}: served what was not on the medium"
    );
    {
        let said = said.lock().unwrap_or_else(PoisonError::into_inner);
        for (of, entry) in said.get(victim.name()).into_iter().flatten() {
            let there = *of != ledger || after.contains(entry);
            assert!(there, "{case}: said that it stored entry {entry}");
        }
    }
    let closed = scene.close("r", ledger, &case).await;
    scene.judge(ledger, &closed).await;
    scene.all_is_well(&case);
    failed
}

/// 13: "fdatasync error once: no ack for that group or later ones, process exits, restart serves only what is on the medium": each
/// sync of a bookie in turn, with and without others that go on.
#[test]
fn failed_sync_confirms_nothing_and_restart_serves_the_medium() {
    for bookies in [1, 4] {
        let mut hits = 0;
        for at in 0..6 {
            for ms in 0..12 {
                hits += u32::from(runtime().block_on(run((at, ms), bookies, None)));
            }
        }
        assert!(hits >= 40, "{bookies} bookies: only {hits} syncs failed");
    }
}

#[test]
fn ack_before_its_sync_is_seen_when_the_sync_fails() {
    let early = Some(Mutant::AckBeforeSync);
    let found = (0..12).any(|ms| finds(|| runtime().block_on(run((3, ms), 1, early))));
    assert!(found, "an ack before its sync is not seen");
}

/// 13, under a partition: a sync fails at each message in turn, at one bookie or at all of them.
#[test]
fn failed_sync_at_any_message_loses_no_record() {
    for all in [false, true] {
        for at in (0..).step_by(3) {
            let messages = runtime().block_on(async {
                let case = format!("message {at}, all bookies: {all}");
                let cluster = cluster(USUAL).await;
                let seen = Arc::new(AtomicU64::new(0));
                let (count, bookies) = (seen.clone(), cluster.world.bookies.clone());
                cluster.world.network.script(move |_| {
                    if count.fetch_add(1, Ordering::Relaxed) == at {
                        let failing = if all { &bookies[..] } else { &bookies[..1] };
                        failing
                            .iter()
                            .for_each(|bookie| bookie.disk().fail_syncs(1));
                    }
                    None
                });
                let producer = produce(&cluster, 0, 6);
                all_sent(&cluster, producer, &case).await;
                let messages = seen.load(Ordering::Relaxed);
                judge(&cluster, &case).await;
                messages
            });
            if at >= messages {
                break;
            }
        }
    }
}
