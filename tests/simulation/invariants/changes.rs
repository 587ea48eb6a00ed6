//! Storage.md §12, 9: ensemble changes that meet other changes, each other, or nothing to change. The queue always drains.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bookie_client::LedgerWriter;
use bookie_metadata::testing::{Call, Fate, Late};
use bookie_metadata::{Op, Txn};
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{LedgerMetadata, LedgerState, ledger_key};
use hulse_proto::mutant::Mutant;
use tests_harness::{Outcome, PowerLoss, Process, SimBookie, runtime};
use tokio::time::sleep;

use super::scene::{Scene, USUAL, finds};

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// One member, for good.
    One,
    /// Two members at once, for good.
    Two,
    /// One, and another one while the change is under way, ms later.
    OneMore(u64),
    /// One member is not reached for so long, ms; the change that was begun may find nothing to do.
    Flap(u64),
}

const FAILURES: [Failure; 9] = [
    Failure::One,
    Failure::Two,
    Failure::OneMore(650),
    Failure::OneMore(720),
    Failure::OneMore(760),
    Failure::Flap(300),
    Failure::Flap(690),
    Failure::Flap(720),
    Failure::Flap(1_500),
];

/// What the change meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meets {
    /// Nothing.
    Nothing,
    /// Repair swaps a member of an older fragment between the look and the proposal, this often.
    Repair(u64),
    /// A recoverer takes the ledger between the look and the proposal.
    Recovery,
}

const MEETINGS: [Meets; 4] = [
    Meets::Nothing,
    Meets::Repair(1),
    Meets::Repair(3),
    Meets::Recovery,
];

/// What becomes of the first proposal.
const FATES: [Fate; 6] = [
    Fate::Pass,
    Fate::UnknownCommitted,
    Fate::UnknownNever,
    Fate::UnknownLater(Late::AfterReads(1)),
    Fate::UnknownLater(Late::AfterReads(2)),
    Fate::UnknownLater(Late::After(Duration::from_millis(1_500))),
];

/// A ledger of two fragments, its first member replaced once.
async fn two_fragments(scene: &Scene, w: &Process) -> LedgerWriter {
    let writer = scene.create(w).await;
    scene.fill(w, &writer, 2).await;
    let first = scene.members(writer.ledger())[0].clone();
    first.hold_down(PowerLoss::No);
    scene.send(w, &writer);
    sleep(Duration::from_secs(2)).await;
    first.start().await;
    let metadata = scene.metadata(writer.ledger()).expect("it is open");
    assert_eq!(metadata.fragments.len(), 2, "{metadata:?}");
    writer
}

/// Repair's swap in the first fragment: a member whose name is not in it, without a copy. Two of three stay.
fn swap(scene: &Scene, metadata: &mut LedgerMetadata) {
    let named = metadata.fragments[0].ensemble.clone();
    let mut all = scene.world.bookies.iter().filter_map(|b| b.member());
    let fresh = all.find(|member| !named.contains(member));
    metadata.fragments[0].ensemble[0] = fresh.expect("six bookies");
}

/// Lets the proposal of the writer meet what it is to meet.
fn interfere(scene: &Arc<Scene>, ledger: LedgerId, meets: Meets, fate: Fate) {
    let key = ledger_key(ledger);
    let left = Arc::new(AtomicU64::new(match meets {
        Meets::Nothing => 0,
        Meets::Repair(times) => times,
        Meets::Recovery => 1,
    }));
    let weak = Arc::downgrade(scene);
    let mut proposals = 0;
    scene.world.faults.choose(move |call| match call {
        Call::Get(read) if read == key && left.load(Ordering::Relaxed) > 0 => {
            left.fetch_sub(1, Ordering::Relaxed);
            let weak = weak.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(5)).await;
                let Some(scene) = weak.upgrade() else {
                    return;
                };
                if meets == Meets::Recovery {
                    let r = Process::new("r");
                    // It may be beaten, or not succeed: the end of the test looks again.
                    let _ = scene.recover(&r, ledger).await;
                } else {
                    scene
                        .change(ledger, |metadata| swap(&scene, metadata))
                        .await;
                }
            });
            Fate::Slow(Duration::from_millis(10))
        }
        Call::Txn(txn) if proposes(txn, &key) => {
            proposals += 1;
            if proposals == 1 { fate } else { Fate::Pass }
        }
        _ => Fate::Pass,
    });
}

/// True for a change of the ensemble.
fn proposes(txn: &Txn, key: &str) -> bool {
    txn.ops.iter().any(|op| match op {
        Op::Put {
            key: put, value, ..
        } if put == key => {
            LedgerMetadata::decode(value).is_ok_and(|metadata| metadata.state == LedgerState::Open)
        }
        _ => false,
    })
}

/// The failure happens at the writer's message number `at`.
fn strike(scene: &Scene, members: &[Arc<SimBookie>], failure: Failure, at: u64) -> Arc<AtomicU64> {
    let seen = Arc::new(AtomicU64::new(0));
    let (count, one, two) = (seen.clone(), members[1].clone(), members[2].clone());
    let network = scene.world.network.clone();
    let fail = move || {
        if let Failure::Flap(ms) = failure {
            network.cut("w", one.name());
            let network = network.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(ms)).await;
                network.mend();
            });
            return;
        }
        one.hold_down(PowerLoss::Yes);
        match failure {
            Failure::Two => two.hold_down(PowerLoss::Yes),
            Failure::OneMore(ms) => {
                let two = two.clone();
                tokio::spawn(async move {
                    sleep(Duration::from_millis(ms)).await;
                    two.hold_down(PowerLoss::Yes);
                });
            }
            _ => {}
        }
    };
    scene.world.network.script(move |message| {
        if message.client == "w" && count.fetch_add(1, Ordering::Relaxed) == at {
            // Not under the network's own lock.
            let fail = fail.clone();
            tokio::spawn(async move { fail() });
        }
        None
    });
    seen
}

/// A case: what fails, what the change meets, and what becomes of the proposal.
type Case = (Failure, Meets, Fate);

async fn run((failure, meets, fate): Case, at: u64, mutant: Option<Mutant>) -> u64 {
    let case = format!("{failure:?} at message {at}, meets {meets:?}, proposal {fate:?}");
    let scene = Arc::new(Scene::with(USUAL, 6, mutant).await);
    let w = Process::new("w");
    let writer = two_fragments(&scene, &w).await;
    let ledger = writer.ledger();
    interfere(&scene, ledger, meets, fate);
    let seen = strike(&scene, &scene.members(ledger), failure, at);
    for _ in 0..3 {
        scene.send(&w, &writer);
        scene.send(&w, &writer);
        sleep(Duration::from_millis(15)).await;
    }
    sleep(Duration::from_secs(12)).await;
    let page = scene.book.page(ledger);
    let recovered = scene
        .metadata(ledger)
        .is_some_and(|m| m.state != LedgerState::Open);
    assert!(
        recovered
            || meets != Meets::Recovery
            || at >= seen.load(Ordering::Relaxed)
            || matches!(failure, Failure::Flap(_)),
        "{case}: nobody met"
    );
    for (entry, told) in &page.appends {
        let stored = matches!(told.outcome, Outcome::Ok(_));
        assert!(
            stored || recovered,
            "{case}: entry {entry} {:?}: the queue does not drain\n{}",
            told.outcome,
            scene.world.trace.text()
        );
    }
    scene.world.heal().await;
    if recovered {
        assert!(writer.ended().borrow().is_some(), "{case}: it goes on");
        let closed = scene.close("r2", ledger, &case).await;
        scene.judge(ledger, &closed).await;
    } else {
        let totals = writer.close(Txn::default()).await;
        let totals = totals.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(totals.end.0, page.appends.len() as u64, "{case}");
        let metadata = scene.metadata(ledger).expect("it is closed");
        scene.judge(ledger, &metadata).await;
    }
    scene.all_is_well(&case);
    seen.load(Ordering::Relaxed)
}

/// 9: "Ensemble change: conflict with repair, conflict with recovery, no-op replacement, two failures at once; queue always drains."
#[test]
fn queue_drains_whatever_an_ensemble_change_meets() {
    let mut cases = 0;
    for failure in FAILURES {
        for meets in MEETINGS {
            for fate in FATES {
                for at in [0, 7, 16] {
                    runtime().block_on(run((failure, meets, fate), at, None));
                    cases += 1;
                }
            }
        }
    }
    println!("ensemble changes: {cases} cases");
}

/// The failure at each message in turn.
#[test]
fn queue_drains_whenever_members_fail() {
    for failure in [Failure::One, Failure::Two, Failure::Flap(720)] {
        for at in 0.. {
            let seen = runtime().block_on(run((failure, Meets::Nothing, Fate::Pass), at, None));
            if at >= seen {
                assert!(at > 30, "only {at} messages");
                break;
            }
        }
    }
}

/// A rule of unresolved proposals that is switched off shows itself here.
#[test]
fn queue_or_ledger_breaks_when_a_proposal_is_ended_by_guess() {
    for mutant in [Mutant::OldVersionEndsProposal, Mutant::SecondProposal] {
        let found = FATES.into_iter().any(|fate| {
            let mut meetings = MEETINGS.into_iter();
            meetings.any(|meets| {
                let case = (Failure::OneMore(760), meets, fate);
                finds(|| runtime().block_on(run(case, 7, Some(mutant))))
            })
        });
        assert!(found, "{mutant:?} is not seen");
    }
}
