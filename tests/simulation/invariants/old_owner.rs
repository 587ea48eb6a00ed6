//! Storage.md §12, 8: a writer that has lost its ledger is never told that an add was stored which is not in the ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bookie_client::LedgerWriter;
use bookie_metadata::Txn;
use hulse_proto::id::{EntryId, FenceToken, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, LedgerState};
use hulse_proto::mutant::Mutant;
use tests_harness::network::{Delivery, Kind};
use tests_harness::{CrashPoint, Outcome, PowerLoss, Process, report, runtime};
use tokio::time::{sleep, timeout};

use super::scene::{REST, Scene, USUAL};

/// How the ledger is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// A recoverer fenced it, and died.
    Fenced,
    /// Closed.
    Closed,
    /// Closed, deleted, its tombstones written.
    Deleted,
    /// So long ago that its tombstones are folded into the dead watermark.
    Folded,
    /// The same, and bookies die while they raise the watermark.
    FoldedInCrash,
    /// Every bookie has a fresh disk under its old name; closed by the word of an operator.
    Replaced,
    /// Closed while one member never heard of the fence; another lost the fence with an old copy of its disk.
    FenceLost,
    /// The same, but the fence was lost to damage.
    FenceDamaged,
}

const LOSSES: [Loss; 8] = [
    Loss::Fenced,
    Loss::Closed,
    Loss::Deleted,
    Loss::Folded,
    Loss::FoldedInCrash,
    Loss::Replaced,
    Loss::FenceLost,
    Loss::FenceDamaged,
];

/// Loses it; its end, where it has one.
async fn lose(scene: &Scene, ledger: LedgerId, loss: Loss, case: &str) -> Option<EntryId> {
    match loss {
        Loss::Fenced => {
            fence(scene, ledger, case).await;
            None
        }
        Loss::Replaced => {
            for bookie in scene.members(ledger) {
                bookie.replace(&*scene.world.store).await;
                bookie.start().await;
            }
            let fenced = |metadata: &mut LedgerMetadata| {
                metadata.state = LedgerState::InRecovery;
                metadata.recovery_token = FenceToken(1);
            };
            scene.change(ledger, fenced).await;
            None
        }
        Loss::Closed => Some(end(&scene.close("r", ledger, case).await)),
        Loss::Deleted | Loss::Folded | Loss::FoldedInCrash => {
            let closed = scene.close("r", ledger, case).await;
            delete(scene, ledger, loss, case).await;
            Some(end(&closed))
        }
        Loss::FenceLost | Loss::FenceDamaged => {
            let closed = lose_fence(scene, ledger, loss, case).await;
            Some(end(&closed))
        }
    }
}

fn end(metadata: &LedgerMetadata) -> EntryId {
    metadata.closed.expect("it is closed").end
}

/// A recoverer dies when the second of its fences is answered.
async fn fence(scene: &Scene, ledger: LedgerId, case: &str) {
    let r = Process::new("f");
    let victim = r.clone();
    let fences = AtomicU64::new(0);
    hold_writer_and(scene, u64::MAX, move |message| {
        let fence = message.client == "f" && message.kind == Kind::Fence && message.answer;
        if fence && fences.fetch_add(1, Ordering::Relaxed) == 1 {
            victim.kill();
        }
    });
    assert!(scene.recover(&r, ledger).await.is_none(), "{case}");
}

async fn delete(scene: &Scene, ledger: LedgerId, loss: Loss, case: &str) {
    let members = scene.members(ledger);
    let client = scene.world.client(&Process::new("d"));
    client.delete(ledger, Txn::default()).await.expect(case);
    if loss == Loss::FoldedInCrash {
        for passes in 1..4 {
            scene.world.crashes.arm(CrashPoint(12), passes);
        }
        fold(scene).await;
        let hits = scene.world.crashes.hits().0;
        let hits = hits.get(&CrashPoint(12)).copied().unwrap_or_default();
        assert!(hits > 0, "{case}: nobody died");
        report(&format!("crash point 12: {hits} hits"));
    }
    if loss == Loss::Folded {
        fold(scene).await;
        for bookie in &members {
            let known = bookie.node(|node| {
                let state = node.core().state();
                let below = state.dead_below > ledger;
                (below, state.ledgers.contains_key(&ledger))
            });
            assert_eq!(known, Some((true, false)), "{case}: not forgotten");
        }
    }
}

/// Closes the ledger while the third member hears of nothing; then the first one loses its fence.
async fn lose_fence(scene: &Scene, ledger: LedgerId, loss: Loss, case: &str) -> LedgerMetadata {
    let members = scene.members(ledger);
    let copy = members[0].disk().fork();
    members[0].hold_down(PowerLoss::No);
    members[0].start().await;
    sleep(REST).await;
    let fence = members[0].newest_blocks();
    scene.world.network.cut("r", members[2].name());
    let closed = scene.close("r", ledger, case).await;
    scene.world.network.mend();
    if loss == Loss::FenceLost {
        members[0].put_back(&copy);
    } else {
        sleep(REST).await;
        members[0].spoil_byte(members[0].newest_log(), fence * 4096 + 70);
        members[0].hold_down(PowerLoss::Yes);
    }
    members[0].start().await;
    let state = members[0].node(|node| node.core().state().ledgers.get(&ledger).cloned());
    let fenced = state
        .flatten()
        .is_some_and(|state| state.fence > FenceToken(0));
    assert!(!fenced, "{case}: the fence is not lost");
    closed
}

/// Ledgers come and go until every bookie has forgotten the first ones.
async fn fold(scene: &Scene) {
    let process = Process::new("passing");
    let client = scene.world.client(&process);
    for _ in 0..6 {
        let writer = scene.create(&process).await;
        let ledger = writer.ledger();
        writer.close(Txn::default()).await.expect("it is calm");
        client
            .delete(ledger, Txn::default())
            .await
            .expect("it is calm");
    }
}

/// Holds everything between the writer and the bookies from its message number `from` on; `also` sees every message.
fn hold_writer_and(
    scene: &Scene,
    from: u64,
    mut also: impl FnMut(&tests_harness::network::Message<'_>) + Send + 'static,
) -> Arc<AtomicU64> {
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    let holding = Arc::new(AtomicU64::new(from));
    scene.world.network.script(move |message| {
        also(message);
        if message.client != "w" {
            return None;
        }
        let number = count.fetch_add(1, Ordering::Relaxed);
        (number >= holding.load(Ordering::Relaxed)).then_some(Delivery::Hold)
    });
    seen
}

/// The writer appends four entries and stands still from its message `from` on, loses its ledger, and goes on. Its messages so far.
async fn run(loss: Loss, from: u64, mutant: Option<Mutant>) -> (u64, Vec<String>) {
    let case = format!("{loss:?}, held from message {from}");
    let scene = Scene::with(USUAL, 3, mutant).await;
    let w = Process::new("w");
    let writer = scene.create(&w).await;
    let ledger = writer.ledger();
    let seen = hold_writer_and(&scene, from, |_| {});
    for _ in 0..2 {
        scene.send(&w, &writer);
    }
    sleep(REST).await;
    for _ in 0..2 {
        scene.send(&w, &writer);
    }
    sleep(REST).await;
    w.pause();
    let messages = seen.load(Ordering::Relaxed);
    let losing = Box::pin(lose(&scene, ledger, loss, &case));
    let end = timeout(Duration::from_secs(60), losing).await;
    let end = end.unwrap_or_else(|_| panic!("{case}: stuck\n{}", scene.world.trace.text()));
    scene.world.network.heal();
    w.resume();
    go_on(&scene, &w, &writer, end, &case).await;
    (messages, scene.world.violations.all())
}

/// The writer comes back: what it sent arrives, and it sends more.
async fn go_on(
    scene: &Scene,
    w: &Process,
    writer: &LedgerWriter,
    end: Option<EntryId>,
    case: &str,
) {
    let ledger = writer.ledger();
    let first_new = writer.appended_end();
    for _ in 0..3 {
        scene.send(w, writer);
        sleep(Duration::from_millis(50)).await;
    }
    sleep(Duration::from_secs(9)).await;
    let page = scene.book.page(ledger);
    for (entry, told) in &page.appends {
        let stored = matches!(told.outcome, Outcome::Ok(_));
        let new = *entry >= first_new;
        let beyond = end.is_some_and(|end| *entry >= end);
        scene
            .world
            .violations
            .check(!(stored && (new || beyond)), || {
                format!("{case}: entry {entry} was stored in a ledger that was lost, end {end:?}")
            });
        scene.world.violations.check(
            told.outcome != Outcome::Failed || end.is_none() || beyond,
            || format!("{case}: entry {entry} is said not to be written, and it is"),
        );
    }
    if scene.is_closed(ledger) {
        let metadata = scene.metadata(ledger).expect("it is closed");
        scene.judge(ledger, &metadata).await;
    } else if scene
        .metadata(ledger)
        .is_some_and(|m| m.state == LedgerState::InRecovery)
        && end.is_none()
    {
        let r = Process::new("later");
        if let Some(Ok(metadata)) = scene.recover(&r, ledger).await {
            scene.judge(ledger, &metadata).await;
        }
    }
}

fn at_every_message(loss: Loss, mutant: Option<Mutant>) -> (u64, Vec<String>) {
    for from in 0.. {
        let (seen, violations) = runtime().block_on(run(loss, from, mutant));
        if !violations.is_empty() || from >= seen {
            return (from, violations);
        }
    }
    unreachable!("every history ends")
}

/// 8: "Old owner after fence, after close, after delete + GC, after bookie replacement: no add is ever acked to a client." The owner
/// stands still at each of its messages in turn; what it had sent arrives afterwards, and then it sends more.
#[test]
fn old_owner_is_never_told_of_an_entry_that_is_not_in_the_ledger() {
    for loss in LOSSES {
        let (messages, violations) = at_every_message(loss, None);
        assert!(
            violations.is_empty(),
            "{loss:?} from {messages} on: {violations:#?}"
        );
        assert!(messages >= 24, "{loss:?}: only {messages} messages");
    }
}

#[test]
fn old_owner_is_told_of_lost_entries_by_bookies_that_forget_fences() {
    let forgets = Some(Mutant::FenceForgotten);
    assert!(!at_every_message(Loss::Closed, forgets).1.is_empty());
}
