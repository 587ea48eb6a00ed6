//! Storage.md E1, E4, E5: a full disk refuses data and nothing else, heals, and does not keep the node from starting.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::bookie::{Address, BookieCalls, BookieError};
use hulse_proto::entry::EntryClass;
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::LedgerState;
use tokio::time::{Instant, sleep};

use super::support::*;
use crate::disk::memory::{MemoryDisk, Survival};
use crate::step::StepAnswer;
use crate::{BookieNode, NodeConfig};

fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: 256 << 10,
        queue_bytes_max: 64 << 10,
        ..config()
    }
}

fn submit(rig: &mut Rig, class: EntryClass, number: u64) -> Result<(), BookieError> {
    let (_, output) = {
        let request = add(rig.to(1), entry_of(class, 1, number, 8000));
        rig.node.add(request)
    };
    match rig.answer(output) {
        StepAnswer::Add(result) => result,
        other => panic!("{other:?}"),
    }
}

/// Adds until data is refused; the next number.
fn fill(rig: &mut Rig) -> u64 {
    for number in 1..1000 {
        match submit(rig, EntryClass::Data, number) {
            Ok(()) => {}
            Err(BookieError::ReadOnly { .. }) => return number,
            Err(error) => panic!("{error}"),
        }
        rig.node.idle();
    }
    panic!("the disk never filled");
}

#[test]
fn full_disk_refuses_data_and_heals() {
    let disk = MemoryDisk::default();
    disk.set_capacity(Some(900 << 10));
    let mut rig = Rig::on(disk, small(), &[]);
    rig.store(1, 0..1, 10);
    let next = fill(&mut rig);
    assert!(rig.node.core().failed().is_none());
    submit(&mut rig, EntryClass::Meta, next).unwrap();
    submit(&mut rig, EntryClass::Control, next + 1).unwrap();
    assert!(matches!(rig.fence(2, 1), StepAnswer::Fence(Ok(_))));
    assert!(matches!(rig.delete(3), StepAnswer::Delete(Ok(()))));
    rig.disk.set_capacity(None);
    rig.node.idle();
    submit(&mut rig, EntryClass::Data, next + 2).unwrap();
    rig.check();
}

#[test]
fn full_disk_to_the_last_byte_fails_nothing() {
    let disk = MemoryDisk::default();
    disk.set_capacity(Some(900 << 10));
    let mut rig = Rig::on(disk, small(), &[]);
    rig.store(1, 0..1, 10);
    let next = fill(&mut rig);
    let mut number = next;
    let error = loop {
        match submit(&mut rig, EntryClass::Meta, number) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
        rig.node.idle();
    };
    assert!(matches!(error, BookieError::ReadOnly { .. }), "{error}");
    assert!(
        rig.node.core().failed().is_none(),
        "running full is no failure of the log"
    );
    // Starting on the full disk works, serves, and takes a fence.
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    rig.check();
    assert!(matches!(rig.fence(1, 1), StepAnswer::Fence(Ok(_))));
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    rig.check();
}

#[test]
fn error_inside_a_log_file_is_final() {
    let mut rig = Rig::new(small());
    rig.store(1, 0..3, 10);
    rig.disk.set_read_only(true);
    let error = submit(&mut rig, EntryClass::Data, 3).unwrap_err();
    assert!(matches!(error, BookieError::Failed { .. }));
    rig.disk.set_read_only(false);
    assert!(matches!(
        submit(&mut rig, EntryClass::Data, 3),
        Err(BookieError::Failed { .. })
    ));
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    rig.check();
}

/// Others took the last byte, and the process died: E5.
#[test]
fn start_on_a_disk_without_any_room_serves_and_takes_a_fence() {
    let disk = MemoryDisk::default();
    let mut rig = Rig::on(disk, small(), &[]);
    rig.store(1, 0..1, 10);
    rig.store(2, 0..1, 10);
    rig.node.idle();
    let used = rig.disk.used();
    rig.disk.set_capacity(Some(used));
    let next = fill(&mut rig);
    // META uses up the spare, too, so that no void file is left behind.
    let full = (next..).find_map(|number| submit(&mut rig, EntryClass::Meta, number).err());
    assert!(
        matches!(full, Some(BookieError::ReadOnly { .. })),
        "{full:?}"
    );
    let used = rig.disk.used();
    rig.disk.set_capacity(Some(used));
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    rig.check();
    assert!(rig.node.core().read_only().is_some());
    assert!(matches!(rig.fence(1, 1), StepAnswer::Fence(Ok(_))));
    rig.disk.set_capacity(None);
    rig.node.idle();
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    rig.check();
    assert!(matches!(rig.fence(1, 1), StepAnswer::Fence(Ok(_))));
}

/// Acks go on while records are refused: the log never rests long enough to look for room on the side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_heals_under_traffic_that_never_rests() {
    let store = Arc::new(MapStore::default());
    let disk = MemoryDisk::default();
    let config = NodeConfig {
        file_bytes: 4 << 20,
        // Or a busy machine rests long enough all the same.
        mark_after: Duration::from_secs(60),
        ..config()
    };
    let seams = seams(Arc::new(disk.clone()), store.clone(), 1);
    let node = BookieNode::start(config, seams).await.unwrap();
    store.ledger(1, LedgerState::Open, node.member());
    let to = Address {
        cell: CELL,
        incarnation: node.member().incarnation,
        ledger: LedgerId(1),
    };
    let mut number = 0;
    let mut next = |class, bytes| {
        let request = add(to, entry_of(class, 1, number, bytes));
        number += 1;
        node.add(request)
    };
    next(EntryClass::Data, 10).await.unwrap();
    // The next file is there before the disk is full.
    while disk.used() < 8 << 20 {
        sleep(Duration::from_millis(5)).await;
    }
    disk.set_capacity(Some(disk.used()));
    let no_room = |answer: &Result<(), BookieError>| matches!(answer, Err(BookieError::ReadOnly { why }) if why.contains("no room for another"));
    loop {
        let answer = next(EntryClass::Meta, 100 << 10).await;
        assert!(!no_room(&answer), "the last file must not be full");
        if no_room(&next(EntryClass::Data, 10).await) {
            break;
        }
    }
    disk.set_capacity(None);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        next(EntryClass::Meta, 10).await.unwrap();
        if next(EntryClass::Data, 10).await.is_ok() {
            return;
        }
        sleep(Duration::from_millis(15)).await;
    }
    panic!("no records were taken for 10 s though there is room");
}
