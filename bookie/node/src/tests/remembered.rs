//! What an operator must know of damage outlives a start, and goes when it is healed, or when nothing is missing by it any more.

use std::time::Duration;

use hulse_proto::id::{EntryId, LedgerId};

use super::reclaim::reclaim;
use super::support::*;
use crate::NodeConfig;
use crate::core::{Event, KnownDamage, Part};
use crate::disk::memory::Survival;
use crate::log::{DamagedRange, LimboKind};
use crate::step::StepAnswer;

fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: 128 << 10,
        queue_bytes_max: 64 << 10,
        ..config()
    }
}

fn known(rig: &Rig) -> KnownDamage {
    let mut known = KnownDamage::default();
    let mut after = None;
    loop {
        after = rig.node.core().damage_page(after, &mut known);
        if after.is_none() {
            return known;
        }
    }
}

fn damaged(rig: &Rig) -> Vec<(u64, u64)> {
    let found = known(rig).entries;
    let found = found.iter();
    found
        .flat_map(|found| (found.first.0..found.end.0).map(|entry| (found.ledger.0, entry)))
        .collect()
}

/// Entries 0..40 in sealed files; the last byte of these is flipped. Nobody has read them.
fn rotten(entries: &[u64]) -> (Rig, Vec<(String, u64)>) {
    let mut rig = Rig::new(small());
    for number in 0..60 {
        rig.store(1, number..number + 1, 3_000);
        rig.node.idle();
    }
    let places = entries.iter().map(|number| {
        let slot = rig.node.slot(LedgerId(1), EntryId(*number)).unwrap();
        let last = u64::from(slot.location.offset) + u64::from(slot.location.bytes) - 1;
        (
            log_files(&rig.disk)[slot.location.file as usize].clone(),
            last,
        )
    });
    let places: Vec<(String, u64)> = places.collect();
    for (name, at) in &places {
        rig.disk.flip(name, *at, 3);
        rig.confirmed
            .retain(|(_, number)| !entries.contains(number));
    }
    (rig, places)
}

fn reads(rig: &mut Rig, number: u64) -> bool {
    rig.node.read(&read(rig.to(1), number, number + 1)).is_ok()
}

#[test]
fn damage_that_was_found_is_told_by_the_next_starts_too_and_goes_with_its_cause() {
    let (mut rig, places) = rotten(&[3, 4, 9]);
    assert_eq!(damaged(&rig), [], "nobody has looked");
    for number in [3, 4, 9] {
        assert!(!reads(&mut rig, number));
    }
    rig.settle();
    for start in 0..4 {
        assert_eq!(damaged(&rig), [(1, 3), (1, 4), (1, 9)], "start {start}");
        if start == 2 {
            // It is looked at, by itself, and what it was found in is rolled away.
            reclaim(&mut rig);
            for number in 60..100 {
                rig.store(1, number..number + 1, 3_000);
                rig.node.idle();
            }
        }
        rig = rig.reopen(small(), Survival::Nothing, &[]);
    }
    // The disk comes back right, but for one entry: that is believed when it was looked at.
    for (name, at) in &places[..2] {
        rig.disk.flip(name, *at, 3);
    }
    assert_eq!(damaged(&rig).len(), 3);
    reclaim(&mut rig);
    assert_eq!(damaged(&rig), [(1, 9)]);
    assert!(reads(&mut rig, 3) && reads(&mut rig, 4) && !reads(&mut rig, 9));
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    reclaim(&mut rig);
    assert_eq!(damaged(&rig), [(1, 9)]);
    // A copy heals the last one, at once and for good.
    assert!(matches!(rig.fence(1, 1), StepAnswer::Fence(Ok(_))));
    let (_, output) = rig.node.add(recovery_add(rig.to(1), entry(1, 9, 3_000), 1));
    assert!(matches!(rig.answer(output), StepAnswer::Add(Ok(()))));
    assert_eq!(damaged(&rig), []);
    for _ in 0..2 {
        rig = rig.reopen(small(), Survival::Nothing, &[]);
        // What an earlier start wrote down is looked at again.
        reclaim(&mut rig);
        assert_eq!(damaged(&rig), []);
        assert!(reads(&mut rig, 9));
    }
}

/// A partition opens from heads: a record that is known to be damaged must not keep it from that, in this start or a later one.
#[test]
fn heads_of_entries_whose_payload_is_damaged_are_read_and_their_digests_are_not() {
    let (mut rig, _) = rotten(&[3]);
    for _ in 0..2 {
        assert!(!reads(&mut rig, 3));
        rig.settle();
        let request = read(rig.to(1), 3, 5);
        let heads = rig.node.read_heads(&request).unwrap();
        let numbers: Vec<u64> = heads.iter().map(|head| head.header.entry.0).collect();
        assert_eq!(numbers, [3, 4]);
        for part in [Part::Whole, Part::Slot] {
            assert!(rig.node.core().want(&request, part).is_err(), "{part:?}");
        }
        rig = rig.reopen(small(), Survival::Nothing, &[]);
    }
}

/// Of a deleted ledger there is nothing to know.
#[test]
fn damage_of_a_ledger_goes_with_it() {
    let (mut rig, _) = rotten(&[3]);
    assert!(!reads(&mut rig, 3));
    rig.settle();
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    assert!(matches!(rig.delete(1), StepAnswer::Delete(Ok(()))));
    rig.confirmed.clear();
    assert_eq!(damaged(&rig), []);
    rig.node.advance(Duration::from_secs(60));
    reclaim(&mut rig);
    let rig = rig.reopen(small(), Survival::Nothing, &[]);
    assert_eq!(damaged(&rig), []);
}

/// However much is damaged, a bounded part of it is on record; all of it is told while the node runs.
#[test]
fn very_much_damage_is_on_record_up_to_a_bound() {
    const ENTRIES: u64 = 6_000;
    let mut rig = Rig::new(config());
    // Every other one, so that each is a run of its own.
    let ledgers = [1, 2];
    for ledger in ledgers {
        for begin in (0..ENTRIES).step_by(500) {
            for number in begin..begin + 500 {
                rig.add(ledger, number, 1);
            }
            rig.settle();
        }
    }
    for ledger in ledgers.map(LedgerId) {
        for entry in (0..ENTRIES).step_by(2).map(EntryId) {
            let held = &rig.node.core().state().ledgers[&ledger].entries;
            let file = held.file_of(entry).unwrap();
            rig.node.event(Event::EntryDamaged {
                ledger,
                entry,
                file,
            });
        }
        rig.settle();
    }
    assert_eq!(damaged(&rig).len() as u64, ENTRIES);
    let rig = rig.reopen(config(), Survival::Nothing, &[]);
    let told = damaged(&rig).len();
    assert!((4_000..4_200).contains(&told), "{told}");
}

/// A range is told until nothing is missing by it, also by later starts, and is no new damage then.
#[test]
fn damaged_range_is_told_until_it_is_covered() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..10, 100);
    rig.node.idle();
    let name = log_files(&rig.disk)[0].clone();
    rig.disk.ruin(&name, 5 * 4096 + 10);
    let mut rig = rig.reopen(config(), Survival::Nothing, &[LedgerId(1)]);
    assert_eq!(rig.node.new_limbo(), [LimboKind::Damage]);
    let ranges = known(&rig).ranges;
    assert_eq!(ranges.len(), 1);
    let other = DamagedRange {
        file: 77,
        first: 0,
        end: 9,
    };
    rig.node.event(Event::DamageCovered(vec![other]));
    assert_eq!(known(&rig).ranges, ranges, "nobody knows of the other");
    rig.node.event(Event::DamageCovered(ranges));
    rig.settle();
    for _ in 0..3 {
        assert_eq!(known(&rig).ranges, []);
        rig = rig.reopen(config(), Survival::Nothing, &[LedgerId(1)]);
        assert!(rig.node.new_limbo().is_empty(), "it is known all the same");
    }
}
