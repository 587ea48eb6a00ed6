//! Snapshots of many ledgers (storage.md G10): they may take more of a file than their usual part, and space comes back; of too many it is
//! said that none does, until there are fewer.

use super::reclaim::reclaim;
use super::support::*;
use crate::NodeConfig;
use crate::disk::memory::Survival;
use crate::step::StepAnswer;

const FILE: u64 = 128 << 10;

fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: FILE,
        queue_bytes_max: 64 << 10,
        tombstones_max: 64,
        ..config()
    }
}

fn delete(rig: &mut Rig, ledger: u64) {
    assert!(matches!(rig.delete(ledger), StepAnswer::Delete(Ok(()))));
    rig.confirmed.retain(|(of, _)| *of != ledger);
}

/// Stores and deletes several files' worth; what the disk takes in the end.
fn turn_over(rig: &mut Rig, ledger: u64) -> u64 {
    rig.store(ledger, 0..100, 4_000);
    delete(rig, ledger);
    rig.node.idle();
    reclaim(rig);
    rig.disk.used()
}

#[test]
fn space_comes_back_with_more_ledgers_than_the_usual_part_of_a_file_names() {
    let mut rig = Rig::new(small());
    for ledger in 100..500 {
        rig.store(ledger, 0..1, 10);
    }
    let rounds: Vec<u64> = (1..10).map(|ledger| turn_over(&mut rig, ledger)).collect();
    assert!(!rig.node.lacks_snapshot());
    assert!(rounds[8] < rounds[2] + 3 * FILE, "{rounds:?}");
    rig.check();
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    rig.check();
    let after = turn_over(&mut rig, 20);
    assert!(after < rounds[2] + 4 * FILE, "{after}, {rounds:?}");
}

#[test]
fn too_many_ledgers_for_a_file_are_told_and_space_comes_back_once_there_are_fewer() {
    let mut rig = Rig::new(small());
    for ledger in 100..1_400 {
        rig.store(ledger, 0..1, 10);
    }
    let rounds: Vec<u64> = (1..5).map(|ledger| turn_over(&mut rig, ledger)).collect();
    assert!(rig.node.lacks_snapshot());
    assert!(
        rounds[3] > rounds[0] + 8 * FILE,
        "or the case is none: {rounds:?}"
    );
    rig.check();
    for ledger in 300..1_400 {
        delete(&mut rig, ledger);
    }
    let rounds: Vec<u64> = (5..9).map(|ledger| turn_over(&mut rig, ledger)).collect();
    assert!(!rig.node.lacks_snapshot());
    assert!(
        rounds[3] < rounds[0] + 3 * FILE && rounds[3] < 12 * FILE,
        "{rounds:?}"
    );
    rig.check();
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    rig.check();
}
