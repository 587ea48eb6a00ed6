//! EIO, once and for ever, at every call that a node makes of its disk (storage.md §5 E1, E2, §12 test 13): after an error of a change
//! nothing more is confirmed in this boot, and the next start serves all that was; an error of a read is UNKNOWN for that entry, and
//! ends nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::bookie::BookieError;

use super::support::*;
use crate::NodeConfig;
use crate::disk::memory::{Calls, Fault, MemoryDisk, Survival};
use crate::step::{StepAnswer, StepNode};

const BODY: usize = 4_000;

fn small() -> NodeConfig {
    NodeConfig {
        kernel_boot_id: "a".to_owned(),
        file_bytes: 64 << 10,
        queue_bytes_max: 32 << 10,
        ..config()
    }
}

/// Fills, deletes, compacts, reads; goes on whatever fails.
fn script(rig: &mut Rig) {
    for number in 0..14 {
        for ledger in 1..=3 {
            rig.add(ledger, number, BODY);
            rig.settle();
            rig.node.idle();
        }
    }
    let (_, output) = rig.node.delete(rig.to(2));
    rig.take(output);
    rig.settle();
    rig.confirmed.retain(|(ledger, _)| *ledger != 2);
    for _ in 0..200 {
        let output = rig.node.reclaim();
        rig.take(output.output);
        rig.settle();
        if !output.busy {
            break;
        }
    }
    for number in 14..18 {
        rig.add(1, number, BODY);
        rig.settle();
    }
}

/// Every start finds all that was confirmed, and no damage.
fn judge(rig: &Rig, case: &str) {
    for survival in [Survival::Everything, Survival::Nothing] {
        let disk = rig.disk.fork();
        disk.crash(survival);
        let mut other = Rig::on(disk, small(), &[]);
        let damage = other.node.damage();
        assert!(damage.is_empty(), "{case}: {damage:?}");
        for &(ledger, number) in &rig.confirmed {
            other.expect(ledger, number, BODY);
            assert!(
                other.has(ledger, number),
                "{case}: {number} of {ledger} is lost"
            );
        }
        other.store(9, 0..2, BODY);
    }
}

fn changes(times: u64) -> u32 {
    let mut points: BTreeMap<String, u32> = BTreeMap::new();
    for after in 0.. {
        let mut rig = Rig::new(small());
        let fault = Fault {
            calls: Calls::Changes,
            after,
            times,
        };
        rig.disk.order(Some(fault));
        script(&mut rig);
        let Some((operation, name)) = rig.disk.struck() else {
            break;
        };
        let case = format!("{operation} of {name}, call {after}, {times} times");
        *points.entry(operation.to_owned()).or_default() += 1;
        let why = rig.node.core().failed();
        assert!(why.is_some(), "{case}: the node goes on");
        let confirmed = rig.confirmed.clone();
        rig.disk.order(None);
        rig.add(5, 0, BODY);
        assert!(rig.settle().is_empty());
        let (_, output) = rig.node.add(add(rig.to(5), entry(5, 1, BODY)));
        let answer = rig.answer(output);
        let StepAnswer::Add(Err(BookieError::Failed { why })) = answer else {
            panic!("{case}: {answer:?}");
        };
        assert!(why.contains(operation), "{case} is told as {why:?}");
        assert_eq!(rig.confirmed, confirmed, "{case}: confirmed after an error");
        judge(&rig, &case);
    }
    println!("{points:?}");
    for operation in [
        "write",
        "sync",
        "create",
        "rename",
        "remove",
        "sync directory",
    ] {
        assert!(points.contains_key(operation), "{operation} never failed");
    }
    points.values().sum()
}

#[test]
fn error_of_any_change_once_ends_the_boot_and_loses_nothing() {
    let cases = changes(1);
    report(&format!("EIO of a change, once: {cases} cases"));
}

#[test]
fn error_of_all_changes_from_any_on_ends_the_boot_and_loses_nothing() {
    let cases = changes(u64::MAX);
    report(&format!("EIO of changes, for ever: {cases} cases"));
}

fn filled() -> Rig {
    let mut rig = Rig::new(small());
    script(&mut rig);
    rig.check();
    rig
}

/// Errors while a node starts: it says which call of which file failed, and the next start is none the worse.
#[test]
fn error_of_any_call_of_a_start_is_told_and_leaves_all_as_it_was() {
    let rig = filled();
    let mut cases = 0;
    for calls in [Calls::Changes, Calls::Reads] {
        for times in [1, u64::MAX] {
            for after in 0.. {
                let disk = rig.disk.fork();
                disk.crash(Survival::Nothing);
                disk.order(Some(Fault {
                    calls,
                    after,
                    times,
                }));
                let opened = StepNode::open(small(), Arc::new(disk.clone()), 1, &[]);
                let Some((operation, name)) = disk.struck() else {
                    break;
                };
                cases += 1;
                let case = format!("{operation} of {name}, call {after} of a start");
                if let Err(error) = opened {
                    let words = error.to_string();
                    assert!(words.contains(operation), "{case} is told as {words:?}");
                } else {
                    // A hint that cannot be read is made again from the body.
                    assert_eq!(calls, Calls::Reads, "{case}: the start goes on");
                }
                disk.order(None);
                judge(&on(disk, &rig), &case);
            }
        }
    }
    report(&format!("EIO at a start: {cases} cases"));
    assert!(cases > 40, "{cases}");
}

/// The oracle of `rig`, over another copy of its disk.
fn on(disk: MemoryDisk, rig: &Rig) -> Rig {
    let mut other = Rig::new(small());
    other.disk = disk;
    other.confirmed = rig.confirmed.clone();
    other
}

#[test]
fn error_of_any_read_is_unknown_for_that_entry_and_ends_nothing() {
    let mut cases = 0;
    for times in [1, u64::MAX] {
        for after in 0.. {
            let mut rig = filled();
            rig.disk.order(Some(Fault {
                calls: Calls::Reads,
                after,
                times,
            }));
            let lost: Vec<(u64, u64)> = rig.confirmed.clone().into_iter().collect();
            let lost: Vec<_> = lost
                .into_iter()
                .filter(|&(ledger, number)| !rig.has(ledger, number))
                .collect();
            if rig.disk.struck().is_none() {
                break;
            }
            cases += 1;
            assert!(rig.node.core().failed().is_none());
            assert!(
                !lost.is_empty() && (times > 1 || lost.len() < 20),
                "{lost:?}"
            );
            rig.disk.order(None);
            let (ledger, number) = lost[0];
            assert!(matches!(rig.fence(ledger, 1), StepAnswer::Fence(Ok(_))));
            let answer = rig.recovery_read(ledger, 1, number);
            let unknown = matches!(answer, StepAnswer::RecoveryRead(Err(_)));
            assert!(unknown, "an entry that could not be read: {answer:?}");
            // A copy heals it without a start.
            let copy = recovery_add(rig.to(ledger), entry(ledger, number, BODY), 1);
            let (_, output) = rig.node.add(copy);
            assert!(matches!(rig.answer(output), StepAnswer::Add(Ok(()))));
            assert!(rig.has(ledger, number));
            judge(&rig, &format!("read {after}, {times} times"));
        }
    }
    report(&format!("EIO of a read: {cases} cases"));
    assert!(cases > 20, "{cases}");
}
