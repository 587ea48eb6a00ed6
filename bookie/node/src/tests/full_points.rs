//! Storage.md §12 test 14: the disk is full from any allocation on. Nothing fails; fences, tombstones and recovery pass; a start on the
//! full disk works; and once there is room again, by deletions or by others, the bookie takes records again without a hand.

use std::collections::BTreeMap;

use hulse_proto::bookie::BookieError;
use hulse_proto::id::LedgerId;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use super::support::*;
use crate::NodeConfig;
use crate::core::Level;
use crate::disk::Disk;
use crate::disk::memory::{MemoryDisk, Survival};
use crate::step::StepAnswer;

const FILE: u64 = 128 << 10;
const BODY: usize = 8_000;

fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: FILE,
        queue_bytes_max: 64 << 10,
        ..config()
    }
}

fn reclaim(rig: &mut Rig) {
    for _ in 0..10_000 {
        let output = rig.node.reclaim();
        let busy = output.busy;
        rig.take(output.output);
        rig.settle();
        if !busy {
            return;
        }
    }
    panic!("reclaim finds no end");
}

/// An add that is stored or refused for want of room.
fn offer(rig: &mut Rig, ledger: u64, number: u64) {
    rig.add(ledger, number, BODY);
    for (_, answer) in rig.settle() {
        let StepAnswer::Add(Err(BookieError::ReadOnly { .. })) = answer else {
            panic!("{answer:?}");
        };
    }
    rig.node.idle();
}

fn delete(rig: &mut Rig, ledger: u64) {
    let answer = rig.delete(ledger);
    assert!(matches!(answer, StepAnswer::Delete(Ok(()))), "{answer:?}");
    rig.confirmed.retain(|(of, _)| *of != ledger);
}

/// Fills, deletes, compacts and fills again.
fn script(rig: &mut Rig) {
    for number in 0..30 {
        for ledger in 1..=3 {
            offer(rig, ledger, number);
        }
    }
    delete(rig, 2);
    reclaim(rig);
    for number in 30..50 {
        offer(rig, 1, number);
        offer(rig, 4, number);
    }
    assert!(matches!(rig.fence(3, 2), StepAnswer::Fence(Ok(_))));
    reclaim(rig);
}

/// What passes a full disk does.
fn passes(rig: &mut Rig, case: &str) {
    rig.node.look_at_disk();
    assert!(rig.node.core().failed().is_none(), "{case}: the log failed");
    assert!(
        matches!(rig.fence(50, 1), StepAnswer::Fence(Ok(_))),
        "{case}"
    );
    assert!(
        matches!(rig.delete(60), StepAnswer::Delete(Ok(()))),
        "{case}"
    );
    let reserve = rig.node.core().level() == Level::Reserve;
    let request = recovery_add(rig.to(70), entry(70, 0, BODY), 1);
    let (_, output) = rig.node.add(request);
    match rig.answer(output) {
        StepAnswer::Add(Ok(())) => {}
        StepAnswer::Add(Err(BookieError::ReadOnly { .. })) if reserve => {}
        other => panic!(
            "{case}: recovery at {:?}: {other:?}",
            rig.node.core().level()
        ),
    }
    rig.check();
}

/// The node on a copy of the disk, after it stopped there and then.
fn again(rig: &Rig, survival: Survival<'_>) -> Rig {
    let disk = rig.disk.fork();
    disk.crash(survival);
    let mut other = Rig::on(disk, small(), &[]);
    for &(ledger, number) in &rig.confirmed {
        other.expect(ledger, number, BODY);
    }
    other.confirmed = rig.confirmed.clone();
    other
}

/// Deletions make room. True when there was so much of it that the bookie is back to normal.
fn freed(rig: &mut Rig, capacity: u64, case: &str) -> bool {
    for ledger in [1, 3, 4, 70] {
        delete(rig, ledger);
    }
    reclaim(rig);
    rig.node.idle();
    let left = capacity.saturating_sub(rig.disk.used());
    let level = rig.node.core().level();
    // Low is left a quarter above its bound of four files.
    assert!(
        level == Level::Normal || left < 5 * FILE,
        "{case}: {level} with {left} bytes free"
    );
    level == Level::Normal
}

fn healed(rig: &mut Rig, case: &str) {
    rig.disk.set_capacity(None);
    rig.node.idle();
    rig.node.look_at_disk();
    assert_eq!(rig.node.core().level(), Level::Normal, "{case}");
    rig.store(80, 0..2, BODY);
    assert!(
        rig.confirmed.contains(&(80, 1)),
        "{case}: records are refused"
    );
    rig.check();
}

#[test]
fn disk_full_from_any_allocation_on_fails_nothing_and_heals_by_itself() {
    let mut points: BTreeMap<String, u32> = BTreeMap::new();
    let mut normal = 0;
    for allocation in 0.. {
        let mut rig = Rig::new(small());
        rig.store(1, 0..1, BODY);
        rig.disk.fill_after(allocation);
        script(&mut rig);
        let Some((operation, name)) = rig.disk.struck() else {
            break;
        };
        let case = format!("allocation {allocation}, {operation} of {name}");
        *points.entry(format!("{operation} {name}")).or_default() += 1;
        let capacity = rig.disk.space().unwrap().total;
        passes(&mut rig, &case);
        let mut rng = ChaCha12Rng::seed_from_u64(allocation);
        for survival in [
            Survival::Nothing,
            Survival::Everything,
            Survival::Random(&mut rng),
        ] {
            let mut other = again(&rig, survival);
            assert!(other.node.damage().is_empty(), "{case}");
            assert_eq!(
                other.node.core().state().ledgers[&LedgerId(3)].fence.0,
                2,
                "{case}"
            );
            passes(&mut other, &case);
            healed(&mut other, &case);
        }
        normal += u32::from(freed(&mut rig, capacity, &case));
        healed(&mut rig, &case);
    }
    let count: u32 = points.values().sum();
    println!("{points:?}, back to normal by deletions alone: {normal}");
    report(&format!("disk full at an allocation: {count} cases"));
    assert!(
        points.len() >= 3 && count > 20 && normal > 10,
        "{points:?}, {normal}"
    );
}

/// The start's own allocations: E5.
#[test]
fn start_on_a_disk_that_is_full_from_any_of_its_allocations_on_serves() {
    let mut cases = 0;
    for allocation in 0..40 {
        let mut rig = Rig::new(small());
        rig.store(1, 0..20, BODY);
        rig.node.idle();
        let disk: MemoryDisk = rig.disk.fork();
        disk.crash(Survival::Nothing);
        disk.fill_after(allocation);
        let mut other = Rig::on(disk.clone(), small(), &[]);
        if disk.struck().is_none() {
            break;
        }
        cases += 1;
        (0..20).for_each(|number| other.expect(1, number, BODY));
        other.confirmed = rig.confirmed.clone();
        let case = format!("allocation {allocation} of the start");
        passes(&mut other, &case);
        healed(&mut other, &case);
    }
    report(&format!(
        "disk full at an allocation of a start: {cases} cases"
    ));
    assert!(cases >= 2, "{cases}");
}
