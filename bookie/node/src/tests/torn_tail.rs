//! Storage.md §12, 11: whatever subset of the unsynced tail survives, what was confirmed is there and no junk is adopted.

use std::time::Duration;

use hulse_proto::bookie::RecoveryReadAnswer;
use hulse_proto::id::LedgerId;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::support::*;
use crate::disk::Disk;
use crate::disk::memory::Survival;
use crate::log::LimboKind;
use crate::step::StepAnswer;
use crate::{NodeConfig, SyncMode};

/// Three confirmed entries and a group of two that was written and not synced.
fn torn(bodies: usize) -> Rig {
    let mut rig = Rig::new(config());
    rig.store(1, 0..3, 100);
    rig.node.idle();
    rig.add(1, 3, bodies);
    rig.add(1, 4, bodies);
    let output = rig.node.write_group();
    assert!(
        output.answers.is_empty(),
        "nothing is confirmed before the sync"
    );
    rig
}

/// Judges a restart: the group is there as a whole or not at all, and a second restart sees the same.
fn judge(mut rig: Rig, case: &str) -> bool {
    assert!(
        rig.node.damage().is_empty(),
        "{case}: a torn tail is no damage"
    );
    rig.check();
    let (three, four) = (rig.has(1, 3), rig.has(1, 4));
    assert_eq!(three, four, "{case}: half a group was adopted");
    rig.store(1, 5..6, 10);
    let mut rig = rig.reopen(config(), Survival::Nothing, &[]);
    assert!(
        rig.node.damage().is_empty(),
        "{case}: the second start sees damage"
    );
    rig.check();
    assert_eq!(
        (rig.has(1, 3), rig.has(1, 4)),
        (three, four),
        "{case}: the decision changed"
    );
    three
}

/// One crash; true when the group was adopted, which is right exactly if every byte that is not zero survived.
fn run(case: &str, choose: &dyn Fn(u64) -> bool) -> bool {
    let rig = torn(60);
    let name = log_files(&rig.disk)[0].clone();
    let (first, bytes) = rig.disk.unsynced(&name)[0];
    let written = rig.disk.open(&name).unwrap().read_at(first, bytes).unwrap();
    let whole = (0..)
        .zip(&written)
        .all(|(at, byte)| *byte == 0 || choose(at));
    let survives = |of: &str, at: u64| of != name || choose(at - first);
    let adopted = judge(rig.reopen(config(), Survival::Chosen(&survives), &[]), case);
    assert_eq!(adopted, whole, "{case}");
    adopted
}

#[test]
fn torn_tail_of_any_sectors_loses_nothing_confirmed() {
    let masks = 0..256_u32;
    let run = |mask: &u32| {
        run(&format!("sectors {mask:08b}"), &|at| {
            mask >> (at / 512) & 1 == 1
        })
    };
    let adopted = masks.filter(run).count();
    assert_eq!(adopted, 128, "the records lie in the first sector");
    println!("torn tail: 256 sector subsets, {adopted} whole");
}

#[test]
fn torn_tail_at_any_byte_loses_nothing_confirmed() {
    let used = 64 + 2 * (28 + 76 + 28 + 60);
    let mut adopted = 0;
    for at in 0..used {
        adopted += u32::from(run(&format!("byte {at} lost"), &|byte| byte != at));
        adopted += u32::from(run(&format!("prefix {at}"), &|byte| byte < at));
        adopted += u32::from(run(&format!("suffix {at}"), &|byte| byte >= at));
    }
    println!("torn tail: {} byte subsets, {adopted} whole", 3 * used);
}

#[test]
fn torn_tail_of_many_shapes_loses_nothing_confirmed() {
    for seed in 0..150 {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut rig = Rig::new(NodeConfig {
            file_bytes: 256 << 10,
            ..config()
        });
        let mut number = 0;
        for _ in 0..rng.random_range(1..12) {
            for _ in 0..rng.random_range(1..4) {
                rig.add(1, number, rng.random_range(0..30_000));
                number += 1;
            }
            rig.settle();
        }
        let confirmed = number;
        for _ in 0..rng.random_range(1..6) {
            rig.add(1, number, rng.random_range(0..20_000));
            number += 1;
        }
        rig.node.write_group();
        let mut rig = rig.reopen(config(), Survival::Random(&mut rng), &[]);
        assert!(rig.node.damage().is_empty(), "seed {seed}");
        rig.check();
        let there = (confirmed..number)
            .filter(|number| rig.has(1, *number))
            .count() as u64;
        assert!(
            there == 0 || there == number - confirmed,
            "seed {seed}: part of a group"
        );
    }
}

/// Without sync many groups are unsynced at once: what is adopted is a prefix, and the loss is not silent.
#[test]
fn unsynced_mode_after_power_loss_keeps_a_prefix_and_starts_in_limbo() {
    let mut with_loss = 0;
    for seed in 0..150 {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let off = |kernel: &str| NodeConfig {
            sync: if seed % 2 == 0 {
                SyncMode::Off
            } else {
                SyncMode::Interval(Duration::from_secs(1))
            },
            kernel_boot_id: kernel.to_owned(),
            file_bytes: 128 << 10,
            queue_bytes_max: 60 << 10,
            ..config()
        };
        let mut rig = Rig::new(off("a"));
        for number in 0..20 {
            rig.add(1, number, rng.random_range(0..20_000));
            rig.settle();
            if seed % 2 == 1 && rng.random_range(0..5) == 0 {
                rig.node.sync_now();
            }
        }
        assert_eq!(rig.confirmed.len(), 20, "written counts as stored");
        let scope = [LedgerId(1)];
        let mut rig = rig.reopen(off("b"), Survival::Random(&mut rng), &scope);
        assert_eq!(rig.node.new_limbo(), [LimboKind::Unsynced], "seed {seed}");
        assert!(rig.node.damage().is_empty(), "seed {seed}");
        let there: Vec<bool> = (0..20).map(|number| rig.has(1, number)).collect();
        assert!(
            there.is_sorted_by(|a, b| a >= b),
            "seed {seed}: {there:?} is no prefix"
        );
        with_loss += u32::from(there.contains(&false));
        let answer = rig.recovery_read(1, 1, 20);
        assert!(
            matches!(
                answer,
                StepAnswer::RecoveryRead(Ok(RecoveryReadAnswer::Negative {
                    unsynced_limbo: true
                }))
            ),
            "{answer:?}"
        );
        // The decision stands: later starts see neither damage nor anything that was void.
        let mut rig = rig;
        for _ in 0..2 {
            rig.store(2, 0..3, 9000);
            rig = rig.reopen(off("b"), Survival::Everything, &scope);
            assert!(
                rig.node.damage().is_empty(),
                "seed {seed}: {:?}",
                rig.node.damage()
            );
            assert!(rig.node.new_limbo().is_empty(), "seed {seed}");
            let again: Vec<bool> = (0..20).map(|number| rig.has(1, number)).collect();
            assert_eq!(again, there, "seed {seed}");
            assert!((0..3).all(|number| rig.has(2, number)), "seed {seed}");
        }
    }
    assert!(with_loss > 20, "only {with_loss} runs lost anything");
}

/// Two groups without a sync between them, each of three sectors: every subset of these sectors. What is adopted is a prefix: the
/// second group, whole behind a hole, is junk.
#[test]
fn two_unsynced_groups_of_any_sectors_are_adopted_as_a_prefix() {
    let off = |kernel: &str| NodeConfig {
        sync: SyncMode::Off,
        kernel_boot_id: kernel.to_owned(),
        ..config()
    };
    let mut seen = [0; 3];
    for mask in 0..256_u64 {
        let mut rig = Rig::new(off("a"));
        rig.add(1, 0, 1000);
        rig.settle();
        rig.node.sync_now();
        for number in 1..3 {
            rig.add(1, number, 1200);
            rig.settle();
        }
        let name = log_files(&rig.disk)[0].clone();
        let unsynced = rig.disk.unsynced(&name);
        assert_eq!(unsynced.len(), 2, "two groups, each a write");
        let first = unsynced[0].0;
        let survives = |of: &str, at: u64| {
            let (block, sector) = ((at - first) / 4096, (at - first) % 4096 / 512);
            of != name || sector > 3 || mask >> (block * 4 + sector) & 1 == 1
        };
        let mut rig = rig.reopen(off("b"), Survival::Chosen(&survives), &[LedgerId(1)]);
        let (one, two) = (mask & 7 == 7, mask >> 4 & 7 == 7);
        for _ in 0..2 {
            assert!(rig.node.damage().is_empty(), "{mask:08b}");
            assert!(rig.has(1, 0), "{mask:08b}: what was synced is lost");
            assert_eq!(rig.has(1, 1), one, "{mask:08b}");
            assert_eq!(rig.has(1, 2), one && two, "{mask:08b}");
            rig.store(2, 0..2, 10);
            rig = rig.reopen(off("b"), Survival::Everything, &[]);
        }
        seen[usize::from(one) + usize::from(one && two)] += 1;
    }
    assert_eq!(seen, [224, 28, 4], "none, one and both groups");
}

#[test]
fn unsynced_mode_after_kill_keeps_everything() {
    let off = NodeConfig {
        sync: SyncMode::Off,
        kernel_boot_id: "a".to_owned(),
        ..config()
    };
    let mut rig = Rig::new(off.clone());
    rig.store(1, 0..10, 5000);
    let mut rig = rig.reopen(off, Survival::Everything, &[LedgerId(1)]);
    assert!(rig.node.new_limbo().is_empty());
    rig.check();
}

/// A killed process leaves a write half done: its group's header may stand without its records. That is a torn tail also under
/// the kernel that took the write, and never damage.
#[test]
fn write_cut_short_by_a_kill_is_a_torn_tail_under_the_same_kernel() {
    let same_kernel = NodeConfig {
        kernel_boot_id: "a".to_owned(),
        ..config()
    };
    for kept in [0, 64, 512, 4096, 8192, 12_000] {
        let mut rig = Rig::new(same_kernel.clone());
        rig.store(1, 0..3, 100);
        rig.node.idle();
        rig.add(1, 3, 6_000);
        rig.add(1, 4, 6_000);
        rig.node.write_group();
        let name = log_files(&rig.disk)[0].clone();
        let (first, _) = rig.disk.unsynced(&name)[0];
        let survives = |of: &str, at: u64| of != name || at < first + kept;
        let mut rig = rig.reopen(same_kernel.clone(), Survival::Chosen(&survives), &[]);
        assert!(
            rig.node.damage().is_empty(),
            "{kept} bytes of the group: {:?}",
            rig.node.damage()
        );
        rig.check();
        assert!(!rig.has(1, 4), "half a group was adopted");
    }
}

/// A failed sync marks pages clean that the disk never got; that the same kernel still runs proves nothing then (amended B5).
#[test]
fn failed_sync_makes_the_next_start_unclean() {
    let interval = || NodeConfig {
        sync: SyncMode::Interval(Duration::from_secs(1)),
        kernel_boot_id: "a".to_owned(),
        ..config()
    };
    let mut rig = Rig::new(interval());
    for number in 0..5 {
        rig.add(1, number, 100);
        rig.settle();
    }
    rig.disk.fail_syncs(1);
    rig.node.sync_now();
    assert!(rig.node.core().failed().is_some());
    let mut rig = rig.reopen(interval(), Survival::Everything, &[LedgerId(1)]);
    assert_eq!(rig.node.new_limbo(), [LimboKind::Unsynced]);
    assert!(!rig.has(1, 4), "the disk never got it");
}
