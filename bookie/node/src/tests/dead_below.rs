//! The dead watermark (storage.md G4): when it is raised, what it forgets, and that what is forgotten stays dead.

use hulse_proto::bookie::{
    AddRequest, BookieError, FenceRequest, Origin, RecoveryReadAnswer, RecoveryReadRequest,
};
use hulse_proto::id::{EntryId, FenceToken, LedgerId};

use super::reclaim::reclaim;
use super::support::*;
use crate::NodeConfig;
use crate::core::Verdict;
use crate::disk::Disk;
use crate::disk::memory::Survival;
use crate::log::format::file_name;
use crate::step::{StepAnswer, StepOutput};

/// Four tombstones are kept, the fifth folds the lowest three.
fn few() -> NodeConfig {
    NodeConfig {
        tombstones_max: 4,
        ..config()
    }
}

/// A node that wrote to ledgers 1 and 2, deleted both and 4 to 6, and forgot what is below 5; of ledger 3 it never heard.
fn folded() -> Rig {
    let mut rig = Rig::new(few());
    rig.store(1, 0..3, 10);
    rig.store(2, 0..1, 10);
    for ledger in [1, 2, 4, 5, 6] {
        assert!(matches!(rig.delete(ledger), StepAnswer::Delete(Ok(()))));
    }
    rig.confirmed.clear();
    assert_eq!(rig.node.core().state().dead_below, LedgerId(5));
    rig
}

/// The same in small files. Ledger 1 left a third of the first ones, ledger 2 lives in the rest of them, ledger 3 left whole files.
fn half_dead() -> Rig {
    let mut rig = Rig::new(few_in_small_files());
    for number in 0..40 {
        rig.store(1, number..number + 1, 3_000);
        rig.store(2, number..number + 1, 7_800);
    }
    rig.store(3, 0..100, 4_000);
    rig.store(2, 40..80, 7_800);
    for ledger in [1, 3, 4, 5, 6] {
        assert!(matches!(rig.delete(ledger), StepAnswer::Delete(Ok(()))));
        rig.confirmed.retain(|(of, _)| *of != ledger);
    }
    assert_eq!(rig.node.core().state().dead_below, LedgerId(5));
    // The snapshot that names the dead no more.
    rig.store(2, 80..110, 7_800);
    rig.node.idle();
    rig
}

fn few_in_small_files() -> NodeConfig {
    NodeConfig {
        file_bytes: 128 << 10,
        queue_bytes_max: 64 << 10,
        ..few()
    }
}

/// What a request that waits for metadata's word is answered when that word is "gone", "silent" or another.
fn word(rig: &mut Rig, ledger: u64, output: StepOutput, verdict: Verdict) -> StepAnswer {
    assert!(output.answers.is_empty(), "answered without a question");
    assert_eq!(output.verify, [LedgerId(ledger)]);
    let output = rig.node.verified(LedgerId(ledger), verdict);
    rig.answer(output)
}

fn error(answer: StepAnswer) -> BookieError {
    match answer {
        StepAnswer::Add(Err(error))
        | StepAnswer::Fence(Err(error))
        | StepAnswer::RecoveryRead(Err(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Everything that may be asked about a ledger but a plain read.
const ASKS: [fn(&mut Rig, u64) -> StepOutput; 5] = [
    |rig, ledger| {
        let request = add(rig.to(ledger), entry(ledger, 3, 10));
        rig.node.add(request).1
    },
    |rig, ledger| {
        let request = recovery_add(rig.to(ledger), entry(ledger, 0, 10), 9);
        rig.node.add(request).1
    },
    |rig, ledger| {
        let bound = EntryId(9);
        let request = AddRequest {
            origin: Origin::Copy { bound },
            ..add(rig.to(ledger), entry(ledger, 0, 10))
        };
        rig.node.add(request).1
    },
    |rig, ledger| {
        let (to, token) = (rig.to(ledger), FenceToken(9));
        rig.node.fence(FenceRequest { to, token }).1
    },
    |rig, ledger| {
        let (to, token, entry) = (rig.to(ledger), FenceToken(9), EntryId(7));
        let request = RecoveryReadRequest { to, token, entry };
        rig.node.recovery_read(request).1
    },
];

#[test]
fn tombstones_are_forgotten_only_after_the_watermark_is_durable() {
    let mut rig = Rig::new(few());
    for ledger in 1..=4 {
        assert!(matches!(rig.delete(ledger), StepAnswer::Delete(Ok(()))));
    }
    assert!(!rig.node.core().raises_watermark());
    let (_, output) = rig.node.delete(rig.to(5));
    assert!(output.answers.is_empty() && rig.node.core().raises_watermark());
    rig.node.write_group();
    let state = rig.node.core().state();
    assert_eq!((state.dead_below, state.ledgers.len()), (LedgerId(0), 5));
    // Killed here, the node must still know them all.
    let dead = rig.disk.fork();
    rig.node.sync_group();
    let state = rig.node.core().state();
    assert_eq!((state.dead_below, state.ledgers.len()), (LedgerId(4), 2));
    dead.crash(Survival::Nothing);
    let rig = Rig::on(dead, few(), &[]);
    let state = rig.node.core().state();
    assert_eq!((state.dead_below, state.tombstones.len()), (LedgerId(0), 4));
}

#[test]
fn forgotten_ledger_stays_dead_for_everyone_across_restarts() {
    let mut rig = folded();
    for _ in 0..2 {
        for ask in ASKS {
            let output = ask(&mut rig, 1);
            let answer = word(&mut rig, 1, output, Verdict::Deleted);
            assert_eq!(
                error(answer),
                BookieError::Deleted {
                    ledger: LedgerId(1)
                }
            );
            let output = ask(&mut rig, 1);
            let answer = word(&mut rig, 1, output, Verdict::Unavailable);
            assert_eq!(error(answer), BookieError::MetadataUnavailable);
        }
        let found = rig.node.read(&read(rig.to(1), 0, 1));
        assert!(matches!(found, Err(BookieError::NotHere { .. })));
        // A deletion that is sent again needs no second tombstone.
        let writes = rig.disk.counts().writes;
        assert!(matches!(rig.delete(1), StepAnswer::Delete(Ok(()))));
        assert_eq!(rig.disk.counts().writes, writes);
        let before = rig.node.core().state().clone();
        rig = rig.reopen(few(), Survival::Nothing, &[]);
        let after = rig.node.core().state();
        assert_eq!(
            (after.dead_below, &after.tombstones),
            (before.dead_below, &before.tombstones)
        );
        assert!(!after.ledgers.contains_key(&LedgerId(1)));
    }
}

/// A file that was removed is no damage: nothing is in doubt, and what files keep of the forgotten stays dead.
#[test]
fn forgotten_ledger_stays_dead_when_one_of_its_files_is_kept_and_others_are_removed() {
    let mut rig = half_dead();
    let before = rig.disk.list().unwrap();
    reclaim(&mut rig);
    let left = rig.disk.list().unwrap();
    assert!(before.iter().any(|name| !left.contains(name)), "{left:?}");
    assert!(left.contains(&before[0]), "too much of it lives");
    let dead_bytes = rig.node.core().held_and_dead_bytes().1;
    for _ in 0..2 {
        rig = rig.reopen(few_in_small_files(), Survival::Nothing, &[]);
        assert!(rig.node.new_limbo().is_empty());
        assert!(!rig.node.core().state().ledgers.contains_key(&LedgerId(1)));
        let dead = rig.node.core().held_and_dead_bytes().1;
        assert!(dead >= dead_bytes, "{dead} of {dead_bytes} dead bytes");
        let output = ASKS[0](&mut rig, 1);
        let answer = word(&mut rig, 1, output, Verdict::Deleted);
        assert!(matches!(error(answer), BookieError::Deleted { .. }));
        rig.check();
    }
}

/// With new damage what is not named is kept; but metadata are asked before its writer is believed, at that start and the next, also
/// when the file is read for want of its footer.
#[test]
fn ledger_that_doubt_brings_back_is_asked_about_at_every_start() {
    for footer_is_damaged in [false, true] {
        let mut rig = half_dead();
        reclaim(&mut rig);
        let names = log_files(&rig.disk);
        if footer_is_damaged {
            let bytes = rig.disk.open(&names[0]).unwrap().bytes().unwrap();
            rig.disk.flip(&names[0], bytes - 60, 1);
        }
        // A hole with groups behind it.
        rig.store(2, 110..114, 7_800);
        let place = rig.node.slot(LedgerId(2), EntryId(111)).unwrap().location;
        let name = file_name(u64::from(place.file));
        rig.disk.ruin(&name, u64::from(place.offset) + 100);
        rig = rig.reopen(few_in_small_files(), Survival::Nothing, &[]);
        assert!(!rig.node.new_limbo().is_empty());
        for start in 1..=3 {
            let known = rig.node.core().state().ledgers.get(&LedgerId(1));
            assert!(known.is_some_and(|state| !state.entries.is_empty()));
            let output = ASKS[0](&mut rig, 1);
            assert_eq!(output.verify, [LedgerId(1)], "start {start}");
            drop(output);
            rig = rig.reopen(few_in_small_files(), Survival::Nothing, &[]);
        }
    }
}

#[test]
fn live_ledger_below_the_watermark_is_asked_about_nowhere() {
    let mut rig = Rig::new(few());
    rig.store(2, 0..2, 10);
    for ledger in [1, 3, 4, 5, 6] {
        assert!(matches!(rig.delete(ledger), StepAnswer::Delete(Ok(()))));
    }
    assert_eq!(rig.node.core().state().dead_below, LedgerId(5));
    for _ in 0..2 {
        rig.store(2, 2..3, 10);
        rig.check();
        rig = rig.reopen(few(), Survival::Nothing, &[]);
    }
    assert!(matches!(rig.fence(2, 1), StepAnswer::Fence(Ok(_))));
    let answer = rig.recovery_read(2, 1, 9);
    let StepAnswer::RecoveryRead(Ok(RecoveryReadAnswer::Negative { .. })) = answer else {
        panic!("{answer:?}");
    };
}

/// The number of a ledger is drawn long before its creation is decided: "absent" is not remembered.
#[test]
fn ledger_below_the_watermark_whose_creation_lands_late_is_served() {
    for ask in ASKS {
        let mut rig = folded();
        let output = ask(&mut rig, 3);
        let answer = word(&mut rig, 3, output, Verdict::Deleted);
        assert!(matches!(error(answer), BookieError::Deleted { .. }));
        let output = ask(&mut rig, 3);
        let answer = word(&mut rig, 3, output, Verdict::Open);
        assert!(
            matches!(
                answer,
                StepAnswer::Add(Ok(()))
                    | StepAnswer::Fence(Ok(_))
                    | StepAnswer::RecoveryRead(Ok(_))
            ),
            "{answer:?}"
        );
        // From now on it is known.
        rig.fence(3, 10);
        let rig = rig.reopen(few(), Survival::Nothing, &[]);
        assert!(rig.node.core().state().dead_below > LedgerId(3));
        let state = &rig.node.core().state().ledgers[&LedgerId(3)];
        assert_eq!(state.fence, FenceToken(10));
    }
}

/// A question about a ledger is under way while it is closed, deleted and folded; the answer still says OPEN.
#[test]
fn stale_word_of_metadata_brings_no_forgotten_ledger_back() {
    let mut rig = Rig::new(few());
    let request = add(rig.to(1), entry(1, 0, 10));
    let (_, output) = rig.node.add(request);
    assert_eq!(output.verify, [LedgerId(1)]);
    for ledger in 1..=5 {
        assert!(matches!(rig.delete(ledger), StepAnswer::Delete(Ok(()))));
    }
    assert_eq!(rig.node.core().state().dead_below, LedgerId(4));
    let output = rig.node.verified(LedgerId(1), Verdict::Open);
    assert!(matches!(
        error(rig.answer(output)),
        BookieError::Deleted { .. }
    ));
    // The next time it goes with the others.
    for ledger in 6..=9 {
        rig.delete(ledger);
    }
    assert!(!rig.node.core().state().ledgers.contains_key(&LedgerId(1)));
    let output = ASKS[0](&mut rig, 1);
    let answer = word(&mut rig, 1, output, Verdict::Deleted);
    assert!(matches!(error(answer), BookieError::Deleted { .. }));
    // The same for a ledger that was forgotten before it was asked about.
    let output = ASKS[3](&mut rig, 1);
    assert!(matches!(rig.delete(1), StepAnswer::Delete(Ok(()))));
    assert!(
        rig.node.core().state().tombstones.contains(&LedgerId(1)),
        "the answer that is under way may be an old one"
    );
    let answer = word(&mut rig, 1, output, Verdict::Open);
    assert!(matches!(error(answer), BookieError::Deleted { .. }));
}

#[test]
fn tombstones_in_memory_stay_within_their_bound() {
    let mut rig = Rig::new(few());
    for ledger in 1..300 {
        rig.node.delete(rig.to(ledger * 7 % 300));
        rig.settle();
        let state = rig.node.core().state();
        assert!(state.tombstones.len() <= 4 && state.ledgers.len() <= 4);
    }
    let watermark = rig.node.core().state().dead_below;
    let rig = rig.reopen(few(), Survival::Nothing, &[]);
    let state = rig.node.core().state();
    assert_eq!(state.dead_below, watermark);
    assert!(watermark > LedgerId(200) && state.tombstones.len() <= 4);
}

/// A log without room for the watermark keeps the tombstones; so does one that failed.
#[test]
fn watermark_that_cannot_be_written_forgets_nothing() {
    let mut rig = folded();
    for ledger in 7..=8 {
        rig.delete(ledger);
    }
    let (_, output) = rig.node.delete(rig.to(9));
    assert!(output.answers.is_empty() && rig.node.core().raises_watermark());
    rig.disk.fail_syncs(1);
    let output = rig.node.settle();
    assert!(matches!(
        &output.answers[..],
        [(_, StepAnswer::Delete(Err(BookieError::Failed { .. })))]
    ));
    let state = rig.node.core().state();
    assert_eq!((state.dead_below, state.tombstones.len()), (LedgerId(5), 5));
}
