//! The last room of a full disk (storage.md D3, E4, E5): what frees space finds some whatever else came before it, a short log file goes
//! where none of the usual length does, each start leaves what the next one needs, and compaction has room of its own.

use std::time::Duration;

use hulse_proto::bookie::BookieError;
use hulse_proto::entry::EntryClass;

use super::reclaim::reclaim;
use super::support::*;
use crate::NodeConfig;
use crate::core::{Level, Verdict};
use crate::disk::Disk;
use crate::disk::memory::{MemoryDisk, Survival};
use crate::step::StepAnswer;

const KIB: u64 = 1 << 10;
const STAYS: u64 = 1;
const GOES: u64 = 2;

fn config_of(file_bytes: u64) -> NodeConfig {
    NodeConfig {
        file_bytes,
        queue_bytes_max: 64 * KIB,
        ..config()
    }
}

fn delete(rig: &mut Rig, ledger: u64) {
    let answer = rig.delete(ledger);
    assert!(
        matches!(answer, StepAnswer::Delete(Ok(()))),
        "{ledger}: {answer:?}"
    );
    rig.confirmed.retain(|(of, _)| *of != ledger);
}

/// Fences until they are refused for want of room; how many were taken.
fn fence_all(rig: &mut Rig) -> u64 {
    for number in 0..10_000 {
        let answer = rig.fence(1_000 + number, 1);
        rig.node.idle();
        match answer {
            StepAnswer::Fence(Ok(_)) => {}
            StepAnswer::Fence(Err(BookieError::ReadOnly { .. })) => return number,
            other => panic!("{other:?}"),
        }
    }
    panic!("the disk is not full");
}

#[test]
fn deletion_is_possible_on_a_full_disk_after_many_fences() {
    let mut rig = Rig::new(config_of(128 * KIB));
    rig.store(1, 0..100, 4_000);
    rig.store(2, 0..30, 4_000);
    rig.node.idle();
    rig.disk.set_capacity(Some(rig.disk.used()));
    rig.node.look_at_disk();
    // Each takes a block, and the mark behind it another.
    assert!(fence_all(&mut rig) > 15);
    delete(&mut rig, 1);
    let used = rig.disk.used();
    reclaim(&mut rig);
    assert!(
        rig.disk.used() < used - 4 * 128 * KIB,
        "{}",
        rig.disk.used()
    );
    rig.node.idle();
    assert!(matches!(rig.fence(5_000, 1), StepAnswer::Fence(Ok(_))));
    rig.check();
}

/// Uses up the next file, and a little of it, so that no void one is left behind and much of the last one is free after a start.
fn use_up_spare(rig: &mut Rig) {
    let last = rig.node.log_file() + 1;
    for number in 1_000.. {
        rig.node.advance(std::time::Duration::from_secs(1));
        let request = add(rig.to(2), entry_of(EntryClass::Meta, 2, number, 8_000));
        let (_, output) = rig.node.add(request);
        let answer = rig.answer(output);
        assert!(matches!(answer, StepAnswer::Add(Ok(()))), "{answer:?}");
        if rig.node.log_file() == last {
            break;
        }
    }
}

/// Others take the last byte each time, and the process is killed: room that the start gives back takes no log file of the usual
/// length.
#[test]
fn starts_on_a_disk_that_others_fill_leave_room_for_fences_deletions_and_the_next_start() {
    let config = config_of(1024 * KIB);
    let mut rig = Rig::new(config.clone());
    for ledger in [1, 2, 10, 11, 12] {
        rig.store(ledger, 0..2, 4_000);
    }
    rig.node.idle();
    rig.disk.set_capacity(Some(rig.disk.used()));
    use_up_spare(&mut rig);
    for round in 0..3 {
        rig.disk.set_capacity(Some(rig.disk.used()));
        rig = rig.reopen(config.clone(), Survival::Nothing, &[]);
        let names = rig.disk.list().unwrap();
        assert!(names.contains(&"start.reserve".to_owned()), "{names:?}");
        rig.check();
        rig.node.make_spare();
        rig.node.look_at_disk();
        let level = rig.node.core().level();
        assert!(level >= Level::ReadOnly, "round {round}: {level:?}");
        // Each start has less: others took what the one before gave back.
        for number in 0..4 {
            let fence = rig.fence(2_000 + round * 100 + number, 1);
            assert!(
                matches!(fence, StepAnswer::Fence(Ok(_))),
                "round {round}: {fence:?}"
            );
        }
        delete(&mut rig, 10 + round);
        let request = add(rig.to(1), entry(1, 2 + round, 4_000));
        let (_, output) = rig.node.add(request);
        let verified: Vec<_> = output.verify.clone();
        let mut answers = output.answers;
        for ledger in verified {
            let open = crate::core::Verdict::Open;
            answers.extend(rig.node.verified(ledger, open).answers);
        }
        let refused = |(_, answer): &(_, StepAnswer)| {
            matches!(answer, StepAnswer::Add(Err(BookieError::ReadOnly { .. })))
        };
        assert!(answers.iter().any(refused), "records wait for a whole file");
    }
    rig.disk.set_capacity(None);
    rig.node.idle();
    rig.node.look_at_disk();
    assert_eq!(rig.node.core().level(), Level::Normal);
    rig.store(1, 5..400, 4_000);
    rig.check();
    let mut rig = rig.reopen(config, Survival::Nothing, &[]);
    assert!(rig.node.damage().is_empty());
    rig.check();
}

/// Nothing was written to either when the node died.
#[test]
fn short_next_file_and_the_one_behind_it_are_both_void_to_a_start() {
    let config = config_of(1024 * KIB);
    let mut rig = Rig::new(config.clone());
    rig.store(1, 0..2, 4_000);
    rig.store(2, 0..2, 4_000);
    rig.node.idle();
    rig.disk.set_capacity(Some(rig.disk.used()));
    use_up_spare(&mut rig);
    rig = rig.reopen(config.clone(), Survival::Nothing, &[]);
    rig.node.make_spare();
    rig.disk.set_capacity(None);
    rig.node.make_spare();
    assert!(!rig.node.wants_spare());
    rig = rig.reopen(config.clone(), Survival::Everything, &[]);
    assert!(rig.node.damage().is_empty(), "{:?}", rig.node.damage());
    rig.node.make_spare();
    assert_eq!(rig.node.core().level(), Level::Normal);
    rig.store(1, 2..600, 4_000);
    rig.check();
    let mut rig = rig.reopen(config, Survival::Nothing, &[]);
    assert!(rig.node.damage().is_empty());
    rig.check();
}

/// Adds of this class, to a ledger that stays and one that goes in turn, until they are refused; the number of the next.
fn fill(rig: &mut Rig, class: EntryClass, from: u64, goes: u64) -> u64 {
    for number in from.. {
        // What passes is not fast.
        rig.node.advance(Duration::from_secs(1));
        let ledger = if number % 4 == 0 { STAYS } else { goes };
        rig.expect(ledger, number, 24_000);
        let request = add(rig.to(ledger), entry_of(class, ledger, number, 24_000));
        let (_, output) = rig.node.add(request);
        for ledger in output.verify {
            let verified = rig.node.verified(ledger, Verdict::Open);
            rig.take(verified);
        }
        let mut answers = output.answers;
        answers.extend(rig.node.settle().answers);
        rig.node.idle();
        match &answers[..] {
            [] => {}
            [(_, StepAnswer::Add(Ok(())))] if class == EntryClass::Data => {
                rig.confirmed.insert((ledger, number));
            }
            [(_, StepAnswer::Add(Ok(())))] => {}
            [(_, StepAnswer::Add(Err(BookieError::ReadOnly { .. })))] => return number,
            other => panic!("{other:?}"),
        }
    }
    unreachable!("numbers do not end")
}

/// Until nothing is left to do, and what failed once had its rest.
fn free(rig: &mut Rig) {
    for _ in 0..4 {
        reclaim(rig);
        rig.node.idle();
        rig.node.look_at_disk();
        rig.node.advance(Duration::from_secs(31));
    }
}

/// No file is wholly dead, and each keeps more than what is left of the disk behind its last whole log file, be that little or much.
#[test]
fn full_disk_is_freed_by_compaction_whatever_is_left_of_it() {
    let file = 1024 * KIB;
    for left in (0..file).step_by(60 * KIB as usize) {
        for (passing, starts) in [(false, 0), (false, 3), (true, 0), (true, 3)] {
            let case = format!("{left} bytes, passing {passing}, {starts} starts");
            let disk = MemoryDisk::default();
            disk.set_capacity(Some(10 * file + left));
            let mut rig = Rig::on(disk, config_of(file), &[]);
            let mut next = fill(&mut rig, EntryClass::Data, 0, GOES);
            if passing {
                next = fill(&mut rig, EntryClass::Meta, next, GOES);
            }
            for _ in 0..starts {
                rig = rig.reopen(config_of(file), Survival::Nothing, &[]);
                rig.node.idle();
                rig.node.look_at_disk();
            }
            delete(&mut rig, GOES);
            free(&mut rig);
            rig.check();
            let level = rig.node.core().level();
            assert!(
                level < Level::ReadOnly,
                "{case}: {level:?}, {} used",
                rig.disk.used() / KIB
            );
            assert!(
                fill(&mut rig, EntryClass::Data, next, GOES + 1) > next + 10,
                "{case}"
            );
        }
    }
}
