//! Storage.md §12, 7: recovery and members that do not answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::Quorums;
use hulse_proto::mutant::Mutant;
use tests_harness::network::{Delivery, Kind};
use tests_harness::{PowerLoss, Process, SimBookie, runtime};
use tokio::time::sleep;

use super::scene::{SHAPES, Scene, USUAL, choices, finds};

/// How a member keeps recovery in the dark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It is not reached.
    Deaf,
    /// It hears everything, and its answers are lost.
    Mute,
    /// Its process is down.
    Down,
    /// It fences, and answers no recovery read.
    NoReads,
    /// It may have lost something.
    Limbo,
}

impl Way {
    /// True when the member does not even answer a fence.
    fn is_unfenced(self) -> bool {
        matches!(self, Self::Deaf | Self::Mute | Self::Down)
    }
}

const WAYS: [Way; 5] = [Way::Deaf, Way::Mute, Way::Down, Way::NoReads, Way::Limbo];

/// Three confirmed entries, one that Qa - 1 members have, and a dead writer.
async fn tail(scene: &Scene, quorums: Quorums) -> LedgerId {
    let w = Process::new("w");
    let writer = scene.create(&w).await;
    let ledger = writer.ledger();
    scene.fill(&w, &writer, 3).await;
    let members = scene.members(ledger);
    let few: Vec<String> = members[quorums.ack as usize - 1..]
        .iter()
        .map(|bookie| bookie.name().to_owned())
        .collect();
    scene.world.network.script(move |message| {
        let away = message.kind == Kind::Add && few.iter().any(|name| name == message.bookie);
        away.then_some(Delivery::Drop)
    });
    scene.send(&w, &writer);
    sleep(Duration::from_millis(60)).await;
    w.kill();
    scene.world.network.unscript();
    ledger
}

async fn silence(scene: &Scene, ledger: LedgerId, way: Way, silent: &[Arc<SimBookie>]) {
    let mut spoiled = BTreeSet::new();
    for bookie in silent {
        match way {
            Way::Deaf => scene.world.network.cut("r", bookie.name()),
            Way::Mute => scene.world.network.cut(bookie.name(), "r"),
            Way::Down => bookie.hold_down(PowerLoss::No),
            Way::Limbo => {
                // Another entry at each: fewer than Qa copies are lost.
                let mut left = (0..3).filter(|entry| !spoiled.contains(entry));
                let entry = left.find(|entry| bookie.spoil_entry(ledger, EntryId(*entry)));
                spoiled.insert(entry.expect("it has one of them"));
                bookie.hold_down(PowerLoss::Yes);
                bookie.start().await;
            }
            Way::NoReads => {}
        }
    }
    if way == Way::NoReads {
        let names: Vec<String> = silent.iter().map(|b| b.name().to_owned()).collect();
        scene.world.network.script(move |message| {
            let reads = message.kind == Kind::RecoveryRead;
            let named = names.iter().any(|name| name == message.bookie);
            (message.client == "r" && reads && named).then_some(Delivery::Drop)
        });
    }
}

async fn run(quorums: Quorums, silent: &[usize], way: Way, mutant: Option<Mutant>) {
    let case = format!("{quorums:?}, {way:?} {silent:?}");
    let scene = Scene::with(quorums, quorums.ensemble + quorums.ack, mutant).await;
    let ledger = tail(&scene, quorums).await;
    let members = scene.members(ledger);
    let silent: Vec<Arc<SimBookie>> = silent.iter().map(|at| members[*at].clone()).collect();
    silence(&scene, ledger, way, &silent).await;
    let r = Process::new("r");
    if silent.len() < quorums.ack as usize {
        let closed = scene.close("r", ledger, &case).await;
        scene.judge(ledger, &closed).await;
        scene.all_is_well(&case);
        return;
    }
    for _ in 0..3 {
        let tried = scene.recover(&r, ledger).await;
        assert!(matches!(tried, Some(Err(_))), "{case}: {tried:?}");
        assert!(
            !scene.is_closed(ledger),
            "{case}: closed on too few answers"
        );
    }
    scene.world.network.heal();
    if way == Way::Limbo {
        // Nothing but a copy ends limbo, or an operator's word.
        let accepted = scene.world.client(&r).accept_loss(ledger, None).await;
        let closed = accepted.unwrap_or_else(|error| panic!("{case}: {error}"));
        scene.judge_accepted(ledger, &closed).await;
    } else {
        for bookie in &silent {
            bookie.start().await;
        }
        let closed = scene.close("r", ledger, &case).await;
        scene.judge(ledger, &closed).await;
    }
    scene.all_is_well(&case);
}

/// 7: "Recovery with one hanging bookie finishes; with Qa unknown answers it never closes", for every shape of quorums, every set
/// of members and every way not to answer; and it finishes once they answer.
#[test]
fn recovery_needs_answers_of_all_but_qa_minus_one_members() {
    let mut cases = 0;
    for quorums in SHAPES {
        let of = quorums.ensemble as usize;
        for count in 1..=quorums.ack as usize {
            let sets = choices(of, count);
            for silent in sets
                .iter()
                .filter(|set| blocks(quorums, set) == (count == quorums.ack as usize))
            {
                // With striping, whether silence at the end blocks depends on where the end is; without fences it always does.
                let striped = quorums.ensemble > quorums.write && count == quorums.ack as usize;
                for way in WAYS.into_iter().filter(|way| !striped || way.is_unfenced()) {
                    runtime().block_on(run(quorums, silent, way, None));
                    cases += 1;
                }
            }
        }
    }
    println!("hanging members: {cases} cases");
}

/// True when some write set has Qa members in the set; with E above Qw not every set of Qa has.
fn blocks(quorums: Quorums, set: &[usize]) -> bool {
    let (ensemble, write) = (quorums.ensemble as usize, quorums.write as usize);
    (0..ensemble).any(|first| {
        let inside = |at: &&usize| (**at + ensemble - first) % ensemble < write;
        set.iter().filter(inside).count() >= quorums.ack as usize
    })
}

/// 7, with the member falling silent in the middle: after every message of the recovery.
#[test]
fn recovery_finishes_whenever_one_member_stops_answering() {
    for member in ["k1", "k2", "k3"] {
        for stops in 0.. {
            let seen = runtime().block_on(async {
                let case = format!("{member} is silent from message {stops} on");
                let scene = Scene::new(USUAL, 4).await;
                let ledger = tail(&scene, USUAL).await;
                let seen = Arc::new(AtomicU64::new(0));
                let count = seen.clone();
                scene.world.network.script(move |message| {
                    if message.client != "r" {
                        return None;
                    }
                    let silent = count.fetch_add(1, Ordering::Relaxed) >= stops;
                    (silent && message.bookie == member).then_some(Delivery::Drop)
                });
                let closed = scene.close("r", ledger, &case).await;
                let seen = seen.load(Ordering::Relaxed);
                scene.world.network.unscript();
                scene.judge(ledger, &closed).await;
                scene.all_is_well(&case);
                seen
            });
            if stops > seen {
                assert!(stops > 12, "only {stops} messages");
                break;
            }
        }
    }
}

#[test]
fn recovery_that_takes_unknown_for_negative_closes_too_early() {
    let rash = Some(Mutant::UnknownIsNegative);
    for (way, mutant) in [
        (Way::NoReads, rash),
        (Way::Limbo, rash),
        (Way::Limbo, Some(Mutant::NegativeFromLimbo)),
    ] {
        let closed = finds(|| runtime().block_on(run(USUAL, &[0, 1], way, mutant)));
        assert!(closed, "{way:?} with {mutant:?} is not seen");
    }
}
