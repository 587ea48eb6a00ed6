//! Storage.md §12, 3: a NEGATIVE is kept, whatever happens to the bookie that gave it.

use std::sync::Arc;
use std::time::Duration;

use bookie_client::LedgerWriter;
use bookie_node::disk::MemoryDisk;
use hulse_proto::bookie::{AddRequest, Origin, RecoveryReadAnswer, RecoveryReadRequest};
use hulse_proto::entry::Totals;
use hulse_proto::id::{EntryId, FenceToken, LedgerId};
use hulse_proto::ledger::LedgerState;
use hulse_proto::mutant::Mutant;
use tests_harness::bookie::{Reply, Request};
use tests_harness::{PowerLoss, Process, SimBookie, runtime};
use tokio::time::sleep;

use super::scene::{REST, Scene, USUAL};
use crate::ledger::entry;

/// What happens to the bookie between its NEGATIVE and the add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Its process dies.
    Kill,
    /// Its machine dies, at a turn of the disk from the question on; the question is asked again until it is answered.
    PowerAt(u32),
    /// Its disk is put back to what it was before its last start.
    OldDisk,
    /// The group that holds the fence is damaged.
    DamagedFence,
    /// Its first log file, with entries, is gone; the fence is not.
    LostFile,
}

/// What becomes of the ledger in metadata between the NEGATIVE and the restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ledger {
    /// As the writer left it: a recoverer took a token and died before anything else happened.
    InRecovery,
    /// Closed by that recoverer.
    Closed,
    /// Closed and deleted, while this bookie did not hear of it.
    Marked,
}

/// Entry 3 of the ledger, which its writer never heard of being stored.
const UNSEEN: EntryId = EntryId(3);

async fn ask_negative(scene: &Scene, bookie: &Arc<SimBookie>, ledger: LedgerId) -> bool {
    let request = RecoveryReadRequest {
        to: scene.address(bookie, ledger),
        token: FenceToken(1),
        entry: UNSEEN,
    };
    let reply = bookie.ask(Request::RecoveryRead(request)).await;
    let Some(Reply::RecoveryRead(Ok(answer))) = reply else {
        return false;
    };
    matches!(
        answer,
        RecoveryReadAnswer::Negative {
            unsynced_limbo: false
        }
    )
}

/// The writer's add of that entry, straight to the bookie.
async fn late_add(scene: &Scene, bookie: &Arc<SimBookie>, ledger: LedgerId) -> Option<Reply> {
    let sealed = entry(UNSEEN.0, "late".into()).seal(ledger, UNSEEN, Totals::default());
    let request = AddRequest {
        to: scene.address(bookie, ledger),
        origin: Origin::Normal,
        confirmed_end: UNSEEN,
        entry: sealed,
        timeout: Duration::from_secs(5),
    };
    bookie.ask(Request::Add(request)).await
}

struct Stage {
    scene: Scene,
    bookie: Arc<SimBookie>,
    writer: LedgerWriter,
    copy: MemoryDisk,
    /// Where the group of the fence will stand, and in which file the entries stand.
    fence: u64,
    entries: u64,
}

/// Three confirmed entries, and a disk that was started twice.
async fn stage(mutant: Option<Mutant>) -> Stage {
    let scene = Scene::with(USUAL, 3, mutant).await;
    let w = Process::new("w");
    let writer = scene.create(&w).await;
    scene.fill(&w, &writer, 3).await;
    let bookie = scene.members(writer.ledger())[0].clone();
    let (copy, entries) = (bookie.disk().fork(), bookie.newest_log());
    bookie.hold_down(PowerLoss::No);
    bookie.start().await;
    sleep(REST).await;
    Stage {
        scene,
        fence: bookie.newest_blocks(),
        bookie,
        writer,
        copy,
        entries,
    }
}

async fn decide(stage: &Stage, ledger: Ledger) {
    let (scene, number) = (&stage.scene, stage.writer.ledger());
    scene
        .change(number, |metadata| {
            metadata.state = LedgerState::InRecovery;
            metadata.recovery_token = FenceToken(1);
        })
        .await;
    if ledger == Ledger::InRecovery {
        return;
    }
    // The others take the fence and the copies; this one stays as it is.
    scene.world.network.cut("r", stage.bookie.name());
    scene.close("r", number, "two of three are enough").await;
    scene.world.network.mend();
    if ledger == Ledger::Marked {
        let marked = |metadata: &mut hulse_proto::ledger::LedgerMetadata| {
            metadata.state = LedgerState::Deleting;
        };
        scene.change(number, marked).await;
    }
}

async fn suffer(stage: &Stage, trouble: Trouble, ledger: Ledger) {
    let bookie = &stage.bookie;
    match trouble {
        Trouble::Kill => bookie.hold_down(PowerLoss::No),
        Trouble::PowerAt(_) => bookie.hold_down(PowerLoss::Yes),
        Trouble::OldDisk => bookie.put_back(&stage.copy),
        Trouble::DamagedFence => {
            sleep(REST).await;
            bookie.spoil_byte(bookie.newest_log(), stage.fence * 4096 + 70);
            bookie.hold_down(PowerLoss::Yes);
        }
        Trouble::LostFile => {
            bookie.hold_down(PowerLoss::Yes);
            bookie.lose(&bookie_node::log::file_name(stage.entries));
        }
    }
    bookie.start().await;
    let state = bookie.node(|node| {
        node.core()
            .state()
            .ledgers
            .get(&stage.writer.ledger())
            .cloned()
    });
    let state = state.expect("it is up").expect("it knows the ledger");
    let (fence, held) = (state.fence, state.entries.len());
    let (lost_fence, lost_entries) = match trouble {
        Trouble::OldDisk | Trouble::DamagedFence => (true, false),
        Trouble::LostFile => (false, true),
        Trouble::Kill | Trouble::PowerAt(_) => (false, false),
    };
    assert_eq!(fence == FenceToken(0), lost_fence, "{trouble:?}");
    assert_eq!(held == 0, lost_entries, "{trouble:?}");
    // A fence that is there keeps its promise without limbo.
    let limbo = lost_fence || (lost_entries && ledger == Ledger::InRecovery);
    assert_eq!(state.limbo().is_some(), limbo, "{trouble:?}, {ledger:?}");
}

/// True when the bookie took the add.
async fn run(trouble: Trouble, ledger: Ledger, mutant: Option<Mutant>) -> bool {
    let case = format!("{trouble:?}, {ledger:?}");
    let stage = stage(mutant).await;
    let number = stage.writer.ledger();
    if let Trouble::PowerAt(turn) = trouble {
        stage.bookie.doom(turn);
    }
    let mut negative = false;
    for _ in 0..20 {
        negative = ask_negative(&stage.scene, &stage.bookie, number).await;
        if negative {
            break;
        }
        sleep(Duration::from_millis(300)).await;
    }
    assert!(
        negative,
        "{case}: never asked\n{}",
        stage.scene.world.trace.text()
    );
    stage.bookie.pardon();
    decide(&stage, ledger).await;
    suffer(&stage, trouble, ledger).await;
    let mut taken = false;
    for _ in 0..2 {
        let reply = late_add(&stage.scene, &stage.bookie, number).await;
        taken |= matches!(reply, Some(Reply::Add(Ok(()))));
        assert!(
            matches!(reply, Some(Reply::Add(_))),
            "{case}: no answer is no proof: {reply:?}"
        );
        // And the next life of the process holds to it.
        stage.bookie.hold_down(PowerLoss::Yes);
        stage.bookie.start().await;
    }
    if mutant.is_none() {
        stage.scene.all_is_well(&case);
    }
    taken
}

fn troubles() -> Vec<Trouble> {
    let mut all = vec![
        Trouble::Kill,
        Trouble::OldDisk,
        Trouble::DamagedFence,
        Trouble::LostFile,
    ];
    all.extend((0..8).map(Trouble::PowerAt));
    all
}

/// 3: "Fence promise: after a NEGATIVE for e under token t, bookie never accepts a normal add of e, across restart and compaction."
#[test]
fn negative_is_kept_across_restarts_power_loss_old_disks_and_damage() {
    for trouble in troubles() {
        for ledger in [Ledger::InRecovery, Ledger::Closed, Ledger::Marked] {
            let taken = runtime().block_on(run(trouble, ledger, None));
            assert!(!taken, "{trouble:?}, {ledger:?}: taken after a NEGATIVE");
        }
    }
}

/// The test sees a fence that is not kept.
#[test]
fn negative_is_broken_by_a_bookie_that_forgets_fences() {
    let forgets = Some(Mutant::FenceForgotten);
    let taken = runtime().block_on(run(Trouble::Kill, Ledger::InRecovery, forgets));
    assert!(taken, "the test no longer shows what it is about");
}
