//! Storage.md §12, 6: recoverers that meet, with members that fail under them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{LedgerMetadata, LedgerState};
use hulse_proto::mutant::Mutant;
use tests_harness::network::{Delivery, Kind};
use tests_harness::{PowerLoss, Process, runtime};
use tokio::time::{sleep, timeout};

use super::scene::{Scene, USUAL, finds};

/// Tries of each recoverer.
const TRIES: u32 = 6;

/// What becomes of the first recoverer at its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It dies.
    Dies,
    /// It stands still until the others are done.
    Pauses,
    /// It goes on, and a member of the ensemble falls.
    LosesMember,
}

/// What the first recoverer finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    /// The third member is down.
    Down,
    /// Its write-backs to the second and third member are lost (trace T4).
    WriteBacksLost,
}

const FATES: [Fate; 3] = [Fate::Dies, Fate::Pauses, Fate::LosesMember];

/// Entries 0 and 1 with every member, 2 and 3 with the first alone, nothing else; the writer is dead.
async fn tail(scene: &Scene) -> LedgerId {
    let w = Process::new("w");
    let writer = scene.create(&w).await;
    let ledger = writer.ledger();
    scene.fill(&w, &writer, 2).await;
    let first = scene.members(ledger)[0].name().to_owned();
    scene.world.network.script(move |message| {
        let away = message.kind == Kind::Add && message.bookie != first;
        away.then_some(Delivery::Drop)
    });
    scene.send(&w, &writer);
    scene.send(&w, &writer);
    sleep(Duration::from_millis(60)).await;
    w.kill();
    scene.world.network.unscript();
    ledger
}

/// Recovers until it succeeds; `None` when the process died.
async fn insist(scene: &Scene, process: &Process, ledger: LedgerId) -> Option<LedgerMetadata> {
    for _ in 0..TRIES {
        if let Ok(metadata) = scene.recover(process, ledger).await? {
            return Some(metadata);
        }
        sleep(Duration::from_millis(100)).await;
    }
    scene.world.violations.add("a recoverer gave up");
    None
}

/// All three recover, one after the other begins; what each says in the end. `None`: they do not end.
async fn recover_all(
    scene: &Scene,
    [a, b, c]: [&Process; 3],
    ledger: LedgerId,
) -> Option<Vec<LedgerMetadata>> {
    let later = async |ms, process| {
        sleep(Duration::from_millis(ms)).await;
        insist(scene, process, ledger).await
    };
    let others = async {
        let ended = tokio::join!(later(30, b), later(45, c));
        let sleeper = a.clone();
        tokio::spawn(async move {
            // It may fall asleep later than the others are done.
            for _ in 0..TRIES * 100 {
                sleeper.resume();
                sleep(Duration::from_millis(100)).await;
            }
        });
        ended
    };
    let all = Box::pin(async { tokio::join!(insist(scene, a, ledger), others) });
    let (one, (two, three)) = timeout(Duration::from_secs(120), all).await.ok()?;
    Some([one, two, three].into_iter().flatten().collect())
}

/// One meeting; the number of messages that the first recoverer sent or got.
async fn meet(
    message: u64,
    fate: Fate,
    ground: Ground,
    mutant: Option<Mutant>,
) -> (u64, Vec<String>) {
    let scene = Scene::with(USUAL, 6, mutant).await;
    let ledger = tail(&scene).await;
    let members = scene.members(ledger);
    if ground == Ground::Down {
        // Whoever writes back replaces it.
        members[2].hold_down(PowerLoss::No);
    }
    let far = [members[1].name().to_owned(), members[2].name().to_owned()];
    let (a, b, c) = (Process::new("a"), Process::new("b"), Process::new("c"));
    let seen = Arc::new(AtomicU64::new(0));
    let (count, victim, second) = (seen.clone(), a.clone(), members[1].clone());
    scene.world.network.script(move |sent| {
        if sent.client != "a" {
            return None;
        }
        if count.fetch_add(1, Ordering::Relaxed) == message {
            match fate {
                Fate::Dies => victim.kill(),
                Fate::Pauses => victim.pause(),
                Fate::LosesMember => second.crash(PowerLoss::Yes),
            }
        }
        let lost = ground == Ground::WriteBacksLost
            && sent.kind == Kind::WriteBack
            && far.iter().any(|name| name == sent.bookie);
        lost.then_some(Delivery::Drop)
    });
    let Some(closed) = recover_all(&scene, [&a, &b, &c], ledger).await else {
        return (seen.load(Ordering::Relaxed), vec!["STUCK".to_owned()]);
    };
    members[2].start().await;
    let now = scene.metadata(ledger).expect("it is closed");
    let same = closed.iter().all(|metadata| *metadata == now);
    scene.world.violations.check(same && closed.len() >= 2, || {
        format!("not one close: {closed:#?}")
    });
    scene
        .world
        .violations
        .check(now.state == LedgerState::Closed, || format!("{now:?}"));
    sleep(Duration::from_secs(2)).await;
    scene.judge(ledger, &now).await;
    scene.world.check_copies();
    let violations = scene.world.violations.all();
    (seen.load(Ordering::Relaxed), violations)
}

fn meet_at_every_message(fate: Fate, ground: Ground, mutant: Option<Mutant>) -> (u64, Vec<String>) {
    for message in 0.. {
        let (seen, violations) = runtime().block_on(meet(message, fate, ground, mutant));
        if !violations.is_empty() || message > seen {
            return (message, violations);
        }
    }
    unreachable!("every history ends")
}

/// 6: "Two to three concurrent recoverers with local ensemble changes; exactly one close; test 1; >= Qa copies in recorded ensemble":
/// the first one dies, or stands still until the others are done, or loses a member, at each of its messages in turn.
#[test]
fn three_recoverers_agree_on_one_close_with_its_copies() {
    for ground in [Ground::Down, Ground::WriteBacksLost] {
        for fate in FATES {
            let (messages, violations) = meet_at_every_message(fate, ground, None);
            assert!(
                violations.is_empty(),
                "{fate:?}, {ground:?} at {messages}: {violations:#?}"
            );
            assert!(
                messages > 20,
                "{fate:?}, {ground:?}: only {messages} messages"
            );
            println!("recoverers: {ground:?}, {fate:?} at each of {messages} messages");
        }
    }
}

/// Each of these mutants stumbles over the entries that one member alone has.
#[test]
fn meetings_of_recoverers_show_what_each_rule_is_for() {
    for mutant in [
        Mutant::RecoveryRaisesConfirmedEnd,
        Mutant::CloseWithoutVersion,
        Mutant::LocalChangeTooLow,
    ] {
        let found = [Ground::WriteBacksLost, Ground::Down]
            .into_iter()
            .any(|ground| {
                let mut fates = FATES.into_iter();
                fates.any(|fate| {
                    finds(|| {
                        let (at, wrong) = meet_at_every_message(fate, ground, Some(mutant));
                        assert!(wrong.is_empty(), "{at}: {wrong:?}");
                    })
                })
            });
        assert!(found, "{mutant:?} is not seen");
    }
}
