//! Reclaim when something is in its way: damage that was healed, a log that refuses a removal, a crash between a copy's name and the
//! record of the removal (storage.md G9, G13, D3).

use std::time::Duration;

use hulse_proto::bookie::BookieError;
use hulse_proto::entry::EntryClass;
use hulse_proto::id::{EntryId, LedgerId};

use super::reclaim::reclaim;
use super::support::*;
use crate::core::{Event, Level};
use crate::disk::Disk;
use crate::disk::memory::Survival;
use crate::step::StepAnswer;
use crate::{DiskReserve, NodeConfig};

const FILE: u64 = 128 << 10;

fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: FILE,
        queue_bytes_max: 64 << 10,
        ..config()
    }
}

fn delete(rig: &mut Rig, ledger: u64) {
    assert!(matches!(rig.delete(ledger), StepAnswer::Delete(Ok(()))));
    rig.confirmed.retain(|(of, _)| *of != ledger);
}

/// Flips a bit in what is stored of an entry.
fn rot(rig: &Rig, ledger: u64, number: u64) {
    let slot = rig.node.slot(LedgerId(ledger), EntryId(number)).unwrap();
    let name = log_files(&rig.disk)[slot.location.file as usize].clone();
    let last = u64::from(slot.location.offset + slot.location.bytes) - 1;
    rig.disk.flip(&name, last, 3);
}

fn heal(rig: &mut Rig, ledger: u64, number: u64, body_bytes: usize) {
    let copy = recovery_add(rig.to(ledger), entry(ledger, number, body_bytes), 1);
    let (_, output) = rig.node.add(copy);
    assert!(matches!(rig.answer(output), StepAnswer::Add(Ok(()))));
}

fn is_damaged(rig: &Rig, ledger: u64, number: u64) -> bool {
    let core = rig.node.core();
    core.is_damaged(LedgerId(ledger), EntryId(number))
}

/// The copy that heals lies in a file that is not sealed yet, and scrub and compaction come across the old one.
#[test]
fn healed_entry_is_not_marked_by_the_bytes_that_it_took_the_place_of() {
    let mut rig = Rig::new(NodeConfig {
        scrub_interval: Duration::from_secs(10),
        ..small()
    });
    for number in 0..30 {
        for ledger in 1..=4 {
            rig.store(ledger, number..number + 1, 4_000);
        }
    }
    rot(&rig, 1, 1);
    assert!(!rig.has(1, 1) && is_damaged(&rig, 1, 1));
    heal(&mut rig, 1, 1, 4_000);
    assert!(rig.has(1, 1));
    for ledger in 2..=4 {
        delete(&mut rig, ledger);
    }
    for _ in 0..40 {
        rig.node.advance(Duration::from_secs(5));
        reclaim(&mut rig);
    }
    assert!(!is_damaged(&rig, 1, 1));
    rig.check();
    let left = rig.disk.list().unwrap();
    let first = crate::log::format::file_name(0);
    assert!(!left.contains(&first), "nothing keeps the damaged file");
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    rig.check();
}

/// A reader that is slow reports the old copy when the new one counts.
#[test]
fn late_word_of_damage_says_nothing_of_a_newer_copy() {
    let mut rig = Rig::new(small());
    rig.store(1, 0..60, 4_000);
    let (ledger, entry) = (LedgerId(1), EntryId(1));
    let file = rig.node.slot(ledger, entry).unwrap().location.file;
    rot(&rig, 1, 1);
    assert!(!rig.has(1, 1));
    heal(&mut rig, 1, 1, 4_000);
    rig.node.event(Event::EntryDamaged {
        ledger,
        entry,
        file,
    });
    assert!(rig.has(1, 1) && !is_damaged(&rig, 1, 1));
}

/// Several files that are wholly dead, and their space not yet given back.
fn dead_files(config: NodeConfig) -> Rig {
    let mut rig = Rig::new(config);
    rig.store(1, 0..100, 4_000);
    rig.store(2, 0..30, 4_000);
    delete(&mut rig, 1);
    rig.node.idle();
    rig
}

#[test]
fn removal_that_the_full_queue_refuses_is_not_repeated_without_rest() {
    let mut rig = dead_files(small());
    let used = rig.disk.used();
    for number in 0.. {
        let class = [EntryClass::Data, EntryClass::Meta][usize::from(number > 12)];
        let request = add(rig.to(2), entry_of(class, 2, 30 + number, 4_000));
        let (_, output) = rig.node.add(request);
        let busy = |(_, answer): &(_, StepAnswer)| {
            matches!(answer, StepAnswer::Add(Err(BookieError::Busy { .. })))
        };
        if number > 13 && output.answers.iter().any(busy) {
            break;
        }
    }
    let turns = (0..100).filter(|_| rig.node.reclaim().busy).count();
    assert!(turns < 5, "{turns} turns without rest");
    assert!(rig.disk.used() >= used, "nothing was removed");
    rig.node.settle();
    rig.node.advance(Duration::from_secs(60));
    reclaim(&mut rig);
    assert!(rig.disk.used() < used - 4 * FILE, "{}", rig.disk.used());
    rig.check();
}

/// D3: whatever else used up the log, a removal finds a block.
#[test]
fn removal_is_recorded_in_a_log_that_fences_filled() {
    let mut rig = dead_files(small());
    rig.disk.set_capacity(Some(rig.disk.used()));
    let refused = (0..10_000).find_map(|number| {
        let answer = rig.fence(1_000 + number, 1);
        rig.node.idle();
        match answer {
            StepAnswer::Fence(Ok(_)) => None,
            StepAnswer::Fence(Err(error)) => Some(error),
            other => panic!("{other:?}"),
        }
    });
    assert!(
        matches!(refused, Some(BookieError::ReadOnly { .. })),
        "{refused:?}"
    );
    let used = rig.disk.used();
    reclaim(&mut rig);
    assert!(rig.disk.used() < used - 4 * FILE, "{}", rig.disk.used());
    rig.node.idle();
    assert!(matches!(rig.fence(2_000, 1), StepAnswer::Fence(Ok(_))));
    rig.check();
}

/// G9: both are there after the start; the sources go for nothing.
#[test]
fn sources_of_a_copy_that_got_its_name_before_a_crash_count_as_dead() {
    let mut rig = Rig::new(NodeConfig {
        disk_reserve: DiskReserve::Bytes(10 * FILE),
        ..small()
    });
    for number in 0..30 {
        rig.store(1, number..number + 1, 3_000);
        rig.store(2, number..number + 1, 7_800);
    }
    rig.store(3, 0..30, 7_800);
    rig.node.idle();
    delete(&mut rig, 1);
    // Less than half dead: only a full disk makes that worth a copy.
    rig.disk.set_capacity(Some(rig.disk.used() + 2 * FILE));
    rig.node.look_at_disk();
    assert!(rig.node.core().level() >= Level::ReadOnly);
    let copied = (0..100).any(|_| {
        let done = rig.node.reclaim();
        rig.take(done.output);
        done.compacted
    });
    assert!(copied, "nothing was compacted");
    let stock = rig.node.core().stock();
    let dead = |stock: &crate::reclaim::Stock| -> Vec<u32> {
        let dead = stock.files.iter().filter(|file| file.live == 0);
        dead.map(|file| file.file).collect()
    };
    let before = dead(&stock);
    assert!(!before.is_empty());
    rig.disk.set_capacity(None);
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    assert_eq!(dead(&rig.node.core().stock()), before);
    rig.check();
    reclaim(&mut rig);
    let left = rig.node.core().sealed_files();
    assert!(before.iter().all(|file| !left.contains(file)));
    rig.check();
}
