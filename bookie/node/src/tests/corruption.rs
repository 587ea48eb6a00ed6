//! Storage.md §12, 12, and case ST-06 on files: damage is told from a torn tail, reported, and never served.

use std::sync::Arc;

use hulse_proto::bookie::{BookieError, FenceRequest, RecoveryReadAnswer};
use hulse_proto::entry::crc32c;
use hulse_proto::id::{EntryId, FenceToken, LedgerId};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::support::*;
use crate::core::{DamagedEntries, KnownDamage};
use crate::disk::Disk;
use crate::disk::memory::Survival;
use crate::log::format::GroupHeader;
use crate::log::{LimboKind, LogPosition};
use crate::step::{StepAnswer, StepNode};

/// Entries 0..n in groups of their own, each one block; they begin behind header, seal and snapshot.
fn filled(entries: u64) -> (Rig, String) {
    let mut rig = Rig::new(config());
    rig.store(1, 0..entries, 100);
    let name = log_files(&rig.disk)[0].clone();
    (rig, name)
}

fn group_of(entry: u64) -> u64 {
    (3 + entry) * 4096
}

#[test]
fn damage_before_synced_end_is_limbo_and_never_a_torn_tail() {
    for entry in 0..8 {
        for at in [0, 20, 64, 100] {
            let (rig, name) = filled(10);
            rig.disk.ruin(&name, group_of(entry) + at);
            let mut rig = rig.reopen(config(), Survival::Nothing, &[LedgerId(1)]);
            assert_eq!(
                rig.node.new_limbo(),
                [LimboKind::Damage],
                "entry {entry} at {at}"
            );
            assert_eq!(rig.node.damage().len(), 1);
            assert_eq!(rig.node.damage()[0].first, group_of(entry));
            assert_eq!(rig.node.damage()[0].end, group_of(entry + 1));
            for other in (0..10).filter(|other| *other != entry) {
                assert!(
                    rig.has(1, other),
                    "entry {other} behind the damage of {entry} is lost"
                );
            }
            assert!(!rig.has(1, entry));
            let answer = rig.recovery_read(1, 1, entry);
            assert!(
                matches!(
                    answer,
                    StepAnswer::RecoveryRead(Err(BookieError::Damaged { .. }))
                ),
                "negative from limbo: {answer:?}"
            );
            // Known damage is not new at the next start, and not forgotten.
            let rig = rig.reopen(config(), Survival::Nothing, &[LedgerId(1), LedgerId(2)]);
            assert!(rig.node.new_limbo().is_empty());
            assert_eq!(rig.node.damage().len(), 1);
            let state = &rig.node.core().state().ledgers[&LedgerId(1)];
            assert_eq!(state.limbo(), Some(LimboKind::Damage));
        }
    }
}

fn damaged(rig: &Rig) -> Vec<DamagedEntries> {
    let mut known = KnownDamage::default();
    assert_eq!(rig.node.core().damage_page(None, &mut known), None);
    known.entries
}

/// Its group says what stood there, and each record what it is: one entry is damaged, and nobody is in limbo.
#[test]
fn rotten_payload_costs_its_entry_alone() {
    let there = |rig: &mut Rig, ledger, number| {
        let request = read(rig.to(ledger), number, number + 1);
        rig.node.read(&request).is_ok()
    };
    let mut rig = Rig::new(config());
    // One group: entries of two ledgers, and a fence of a third.
    rig.add(1, 0, 100);
    rig.add(2, 0, 100);
    let to = rig.to(3);
    let token = FenceToken(7);
    rig.node.fence(FenceRequest { to, token });
    rig.settle();
    rig.store(1, 1..3, 100);
    rig.node.idle();
    let slot = rig.node.slot(LedgerId(1), EntryId(0)).unwrap().location;
    let last = u64::from(slot.offset) + u64::from(slot.bytes) - 1;
    let name = log_files(&rig.disk)[0].clone();
    // The envelope rots with the payload.
    for at in [last, last - 100, last - 110] {
        let disk = rig.disk.fork();
        disk.flip(&name, at, 4);
        disk.crash(Survival::Nothing);
        let mut rig = Rig::on(disk, config(), &[LedgerId(1), LedgerId(2)]);
        for start in 0..3 {
            assert!(rig.node.new_limbo().is_empty(), "start {start}");
            assert!(rig.node.damage().is_empty(), "start {start}");
            assert!(
                !there(&mut rig, 1, 0)
                    && there(&mut rig, 1, 1)
                    && there(&mut rig, 1, 2)
                    && there(&mut rig, 2, 0)
            );
            let state = rig.node.core().state();
            assert_eq!(state.ledgers[&LedgerId(3)].fence, FenceToken(7));
            assert!(state.ledgers.values().all(|state| state.limbo().is_none()));
            let damaged = damaged(&rig);
            let found: Vec<_> = damaged
                .iter()
                .map(|found| (found.ledger, found.first))
                .collect();
            assert_eq!(found, [(LedgerId(1), EntryId(0))], "start {start}");
            rig = rig.reopen(config(), Survival::Nothing, &[]);
        }
        let rotten = rig.recovery_read(1, 1, 0);
        assert!(
            matches!(
                rotten,
                StepAnswer::RecoveryRead(Err(BookieError::Damaged { .. }))
            ),
            "{rotten:?}"
        );
        assert!(negative(&rig.recovery_read(1, 1, 3)), "it has an end");
        let copy = recovery_add(rig.to(1), entry(1, 0, 100), 1);
        let (_, output) = rig.node.add(copy);
        assert!(matches!(rig.answer(output), StepAnswer::Add(Ok(()))));
        assert!(there(&mut rig, 1, 0), "a copy heals it");
        let mut rig = rig.reopen(config(), Survival::Nothing, &[]);
        assert!(there(&mut rig, 1, 0));
        assert!(damaged(&rig).is_empty());
    }
}

/// Without proof that it was durable, a group that rotted is torn, whatever its records tell.
#[test]
fn rotten_last_group_without_a_mark_is_torn() {
    let (rig, name) = filled(4);
    rig.disk.flip(&name, group_of(3) + 230, 0);
    let mut rig = rig.reopen(config(), Survival::Nothing, &[LedgerId(1)]);
    assert!(rig.node.new_limbo().is_empty());
    assert!(rig.has(1, 2) && !rig.has(1, 3));
    assert!(
        !rig.node.core().state().ledgers[&LedgerId(1)]
            .entries
            .contains(EntryId(3))
    );
    // What was torn stays so, though it tells what it was and what is stored behind proves that something stood there.
    rig.store(1, 3..5, 50);
    rig.node.idle();
    for _ in 0..3 {
        rig = rig.reopen(config(), Survival::Nothing, &[]);
        assert!(rig.node.new_limbo().is_empty() && rig.node.damage().is_empty());
        assert!(damaged(&rig).is_empty());
        for entry in 0..5 {
            assert!(rig.has(1, entry), "{entry}");
        }
    }
}

#[test]
fn damage_of_the_last_group_is_told_by_its_mark() {
    let (mut rig, name) = filled(4);
    rig.node.idle();
    rig.disk.ruin(&name, group_of(3) + 150);
    let mut rig = rig.reopen(config(), Survival::Nothing, &[LedgerId(1)]);
    assert_eq!(rig.node.new_limbo(), [LimboKind::Damage]);
    assert!(rig.has(1, 2) && !rig.has(1, 3));
}

#[test]
fn limbo_refuses_the_writer_and_lets_recovery_write() {
    let (rig, name) = filled(5);
    rig.disk.ruin(&name, group_of(2) + 150);
    let mut rig = rig.reopen(config(), Survival::Nothing, &[LedgerId(1)]);
    let request = add(rig.to(1), entry(1, 5, 10));
    let (_, output) = rig.node.add(request);
    assert!(matches!(
        rig.answer(output),
        StepAnswer::Add(Err(BookieError::Limbo { .. }))
    ));
    assert!(matches!(rig.fence(1, 1), StepAnswer::Fence(Ok(_))));
    let request = recovery_add(rig.to(1), entry(1, 2, 100), 1);
    let (_, output) = rig.node.add(request);
    assert!(matches!(rig.answer(output), StepAnswer::Add(Ok(()))));
    assert!(rig.has(1, 2), "recovery filled the hole");
    assert!(matches!(
        rig.recovery_read(1, 1, 2),
        StepAnswer::RecoveryRead(Ok(RecoveryReadAnswer::Positive(_)))
    ));
}

/// Metadata name only ledgers that are not closed; the damage may have held the fence of another, whose old writer lives (S3).
#[test]
fn limbo_is_also_about_every_ledger_that_would_take_the_writers_adds() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..2, 100);
    rig.store(2, 0..1, 100);
    rig.store(3, 0..1, 100);
    assert!(matches!(rig.fence(3, 5), StepAnswer::Fence(Ok(_))));
    assert!(matches!(rig.delete(2), StepAnswer::Delete(Ok(()))));
    // The fence of ledger 1 stands in a group of its own, and is lost.
    assert!(matches!(rig.fence(1, 1), StepAnswer::Fence(Ok(_))));
    assert!(negative(&rig.recovery_read(1, 1, 2)));
    rig.store(4, 0..1, 100);
    let name = log_files(&rig.disk)[0].clone();
    let fence = group_of(6);
    rig.disk.ruin(&name, fence + 70);
    let mut rig = rig.reopen(config(), Survival::Nothing, &[LedgerId(4)]);
    assert_eq!(rig.node.new_limbo(), [LimboKind::Damage]);
    assert_eq!(rig.node.damage()[0].first, fence);
    for _ in 0..2 {
        let limbo = |ledger| {
            let state = &rig.node.core().state().ledgers[&LedgerId(ledger)];
            (state.limbo().is_some(), state.fence.0)
        };
        let found = [1, 2, 3, 4].map(limbo);
        assert_eq!(found, [(true, 0), (false, 0), (false, 5), (true, 0)]);
        let late = add(rig.to(1), entry(1, 2, 10));
        let (_, output) = rig.node.add(late);
        assert!(output.verify.is_empty());
        let answer = rig.answer(output);
        assert!(
            matches!(answer, StepAnswer::Add(Err(BookieError::Limbo { .. }))),
            "taken after a negative: {answer:?}"
        );
        rig = rig.reopen(config(), Survival::Nothing, &[]);
    }
}

fn negative(answer: &StepAnswer) -> bool {
    matches!(
        answer,
        StepAnswer::RecoveryRead(Ok(RecoveryReadAnswer::Negative { .. }))
    )
}

#[test]
fn read_of_damaged_entry_is_unknown_and_a_copy_heals_it() {
    let (mut rig, name) = filled(5);
    rig.disk.flip(&name, group_of(2) + 230, 0);
    let request = read(rig.to(1), 2, 3);
    assert!(matches!(
        rig.node.read(&request),
        Err(BookieError::Damaged { .. })
    ));
    let found = rig.node.read(&read(rig.to(1), 0, 5)).unwrap();
    assert_eq!(found.len(), 2, "the run ends before the damage");
    assert!(matches!(rig.fence(1, 1), StepAnswer::Fence(Ok(_))));
    let request = recovery_add(rig.to(1), entry(1, 2, 100), 1);
    let (_, output) = rig.node.add(request);
    assert!(matches!(rig.answer(output), StepAnswer::Add(Ok(()))));
    assert!(rig.has(1, 2));
}

/// ST-06 step 2: the last file is cut anywhere.
#[test]
fn cut_log_file_starts_and_serves_what_is_left() {
    let mut rng = ChaCha12Rng::seed_from_u64(6);
    for _ in 0..64 {
        let (rig, name) = filled(20);
        let cut = rng.random_range(0..group_of(20));
        rig.disk.cut(&name, cut);
        let mut rig = rig.reopen(config(), Survival::Nothing, &[LedgerId(1)]);
        for number in 0..20 {
            // An entry's record ends well inside its block, so the cut may fall into the padding.
            let used = group_of(number) + 64 + 28 + 76 + 28 + 100;
            assert_eq!(
                rig.has(1, number),
                used <= cut,
                "entry {number}, cut at {cut}"
            );
        }
        rig.store(2, 0..3, 50);
        let mut rig = rig.reopen(config(), Survival::Nothing, &[]);
        assert!((0..3).all(|number| rig.has(2, number)));
    }
}

/// ST-06 step 2: zeros, noise, and headers of absurd length behind the last group.
#[test]
fn junk_behind_the_last_group_is_never_served() {
    let mut rng = ChaCha12Rng::seed_from_u64(7);
    let mut noise = vec![0; 512];
    rng.fill_bytes(&mut noise);
    let mut header = |body_bytes: u32| {
        let header = GroupHeader {
            sequence: 11,
            offset: group_of(10),
            body_bytes,
            records: 1,
            synced: LogPosition {
                file: 0,
                offset: group_of(10),
            },
            body_crc: crc32c(&[]),
        };
        header.encode(rng.next_u64()).to_vec()
    };
    let huge = [
        vec![0; 512],
        noise,
        header(u32::MAX),
        header(i32::MIN as u32),
        header(8 << 20),
    ];
    for (case, junk) in huge.iter().enumerate() {
        let (rig, name) = filled(10);
        rig.disk.overwrite(&name, group_of(10), junk);
        let mut rig = rig.reopen(config(), Survival::Nothing, &[LedgerId(1)]);
        assert!(rig.node.damage().is_empty(), "case {case}");
        rig.check();
        let held = rig.node.core().state().ledgers[&LedgerId(1)].entries.len();
        assert_eq!(held, 10, "case {case}: junk was adopted");
    }
}

#[test]
fn lost_middle_file_is_damage() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..40, 100_000);
    let names = log_files(&rig.disk);
    assert!(names.len() > 4, "{names:?}");
    rig.disk.remove(&names[1]).unwrap();
    rig.disk.sync_dir().unwrap();
    let mut rig = rig.reopen(config(), Survival::Nothing, &[LedgerId(1)]);
    assert_eq!(rig.node.new_limbo(), [LimboKind::Damage]);
    let held: Vec<u64> = (0..40).filter(|number| rig.has(1, *number)).collect();
    assert!(held.contains(&0) && held.contains(&39), "{held:?}");
    assert!(held.len() > 20 && held.len() < 40, "{held:?}");
}

#[test]
fn lost_file_with_only_an_empty_one_behind_it_is_damage() {
    let (mut rig, name) = filled(10);
    rig.node.make_spare();
    assert_eq!(log_files(&rig.disk).len(), 2);
    rig.disk.remove(&name).unwrap();
    rig.disk.sync_dir().unwrap();
    let scope = [LedgerId(1)];
    let mut rig = rig.reopen(config(), Survival::Everything, &scope);
    assert_eq!(rig.node.new_limbo(), [LimboKind::Damage]);
    let answer = rig.recovery_read(1, 1, 0);
    assert!(
        matches!(
            &answer,
            StepAnswer::RecoveryRead(Err(BookieError::Damaged { .. }))
        ),
        "{answer:?}"
    );
    rig.store(2, 0..3, 100);
    let mut rig = rig.reopen(config(), Survival::Everything, &scope);
    assert!(rig.node.new_limbo().is_empty() && rig.has(2, 2));
}

#[test]
fn damaged_file_header_is_damage_and_later_files_count() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..40, 100_000);
    let names = log_files(&rig.disk);
    rig.disk.flip(&names[1], 80, 1);
    let mut rig = rig.reopen(config(), Survival::Nothing, &[LedgerId(1)]);
    assert_eq!(rig.node.new_limbo(), [LimboKind::Damage]);
    assert!(rig.has(1, 0) && rig.has(1, 39));
    rig.store(2, 0..3, 50);
    let mut rig = rig.reopen(config(), Survival::Nothing, &[]);
    assert!(rig.has(2, 2), "files behind known damage count");
    assert!(rig.node.new_limbo().is_empty());
}

/// A simulated bookie lost all that its older files held: the start that missed one file cut off the one before it.
#[test]
fn lost_file_does_not_cut_the_one_before_it() {
    let (rig, _) = filled(10);
    let scope = [LedgerId(1)];
    let mut rig = rig.reopen(config(), Survival::Nothing, &scope);
    rig.store(1, 10..14, 100);
    rig.node.make_spare();
    let names = log_files(&rig.disk);
    assert_eq!(names.len(), 3, "{names:?}");
    rig.disk.remove(&names[1]).unwrap();
    rig.disk.sync_dir().unwrap();
    for start in 0..3 {
        rig = rig.reopen(config(), Survival::Nothing, &scope);
        let held = (0..10).filter(|number| rig.has(1, *number)).count();
        assert_eq!(held, 10, "start {start}");
        let new = rig.node.new_limbo();
        assert_eq!(new.is_empty(), start > 0, "start {start}: {new:?}");
    }
}

/// Nothing proves the last group of the file before, and what would is behind the header that is gone.
#[test]
fn damaged_header_of_the_newest_file_with_records_is_damage() {
    let (rig, _) = filled(10);
    let scope = [LedgerId(1)];
    let mut rig = rig.reopen(config(), Survival::Nothing, &scope);
    rig.store(1, 10..14, 100);
    let names = log_files(&rig.disk);
    rig.disk.flip(&names[1], 80, 1);
    rig.disk.flip(&names[0], 4096, 1);
    let mut rig = rig.reopen(config(), Survival::Nothing, &scope);
    assert_eq!(rig.node.new_limbo(), [LimboKind::Damage]);
    let held = (0..10).filter(|number| rig.has(1, *number)).count();
    assert_eq!(held, 10, "only the first group, a seal, was damaged");
    let answer = rig.recovery_read(1, 1, 12);
    assert!(!negative(&answer), "negative from limbo: {answer:?}");
}

/// What says that a file is missing is there until the loss is on record, wherever the start that finds it dies, and also when no
/// other file can be made for that record.
#[test]
fn lost_file_is_damage_also_after_a_start_that_died() {
    let scope = [LedgerId(1)];
    let odd = |_: &str, offset: u64| offset % 2 == 1;
    for (changes, full, torn) in (0..30).flat_map(|changes| {
        let all = [(false, false), (true, false), (true, true)];
        all.map(|(full, torn)| (changes, full, torn))
    }) {
        let survival = || match torn {
            true => Survival::Chosen(&odd),
            false => Survival::Nothing,
        };
        let (rig, _) = filled(10);
        let mut rig = rig.reopen(config(), Survival::Nothing, &scope);
        rig.store(1, 10..14, 100);
        rig.node.make_spare();
        let (disk, names) = (rig.disk.clone(), log_files(&rig.disk));
        drop(rig);
        disk.remove(&names[1]).unwrap();
        disk.sync_dir().unwrap();
        disk.crash(Survival::Nothing);
        // Room for the small files, for no log.
        disk.set_capacity(full.then(|| disk.used() + 4096));
        disk.stop_after(changes);
        drop(StepNode::open(config(), Arc::new(disk.clone()), 1, &scope));
        disk.crash(survival());
        disk.set_capacity(None);
        let mut rig = Rig::on(disk, config(), &scope);
        let case = format!("{changes} changes, full {full}, torn {torn}");
        assert!(!rig.node.damage().is_empty(), "{case}");
        let answer = rig.recovery_read(1, 1, 12);
        assert!(!negative(&answer), "{case}: {answer:?}");
    }
}
