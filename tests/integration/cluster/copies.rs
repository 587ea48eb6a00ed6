//! Copies of ledgers on bookies that are processes: made again when a disk is gone for good, and moved away when one is to leave.

use std::time::{Duration, Instant};

use bookie_client::{LedgerClient, LedgerWriter, RegistrationState, change_registration};
use bookie_metadata::Txn;
use hulse_proto::id::{EntryId, NodeName};
use hulse_proto::ledger::LedgerMetadata;
use tokio::runtime::Runtime;

use super::ledgers::{client, fill, open, read_all, runtime, store};
use super::processes::Cluster;

const PORT: u16 = 18_300;
/// Bookies that stay away are given up quickly.
const QUICK: [(&str, &str); 2] = [
    ("HULSE_UPKEEP__LOST_AFTER", "2s"),
    ("HULSE_UPKEEP__AUDIT_INTERVAL", "1s"),
];
/// Far above what it takes: a lease, the time until a bookie is given up, a pass, and the copies.
const REPAIRED_WITHIN: Duration = Duration::from_secs(60);

/// A closed ledger of so many entries.
fn closed(runtime: &Runtime, client: &LedgerClient, entries: u64) -> LedgerWriter {
    let writer = runtime.block_on(open(client));
    runtime.block_on(fill(&writer, 0..entries));
    runtime.block_on(writer.close(Txn::default())).unwrap();
    writer
}

fn metadata(runtime: &Runtime, client: &LedgerClient, writer: &LedgerWriter) -> LedgerMetadata {
    let found = runtime.block_on(client.describe(writer.ledger())).unwrap();
    found.unwrap().0
}

/// Numbers of the bookies that hold the end of a ledger, from 0.
fn ensemble(metadata: &LedgerMetadata) -> Vec<usize> {
    let members = metadata.last_fragment().ensemble.iter();
    let number = |name: &NodeName| name.as_str()[1..].parse::<usize>().unwrap() - 1;
    members.map(|member| number(&member.bookie)).collect()
}

/// Waits until no fragment names this bookie.
fn until_left(runtime: &Runtime, client: &LedgerClient, writer: &LedgerWriter, bookie: usize) {
    let name = format!("b{}", bookie + 1);
    let began = Instant::now();
    loop {
        let found = metadata(runtime, client, writer);
        let mut members = found
            .fragments
            .iter()
            .flat_map(|fragment| &fragment.ensemble);
        if members.all(|member| member.bookie.as_str() != name) {
            assert!(found.intents.is_empty(), "{found:?}");
            return;
        }
        assert!(began.elapsed() < REPAIRED_WITHIN, "{found:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn ledger_whose_disk_is_wiped_has_all_its_copies_again() {
    let Some(mut cluster) = Cluster::start_with(PORT, 4, &QUICK) else {
        return;
    };
    let runtime = runtime();
    let client = runtime.block_on(client(&cluster, 1));
    let writer = closed(&runtime, &client, 3_000);
    let first = ensemble(&metadata(&runtime, &client, &writer));
    // One after the other the disks of two of three are gone, each after the copies of the one before were made again.
    cluster.bookies[first[0]].kill();
    std::fs::remove_dir_all(cluster.data(first[0])).unwrap();
    until_left(&runtime, &client, &writer, first[0]);
    let second = ensemble(&metadata(&runtime, &client, &writer));
    let spare = *second
        .iter()
        .find(|bookie| !first.contains(bookie))
        .unwrap();
    // What was copied is read from where it was copied to, and from nowhere else.
    for bookie in second.iter().filter(|bookie| **bookie != spare) {
        cluster.bookies[*bookie].kill();
    }
    assert_eq!(runtime.block_on(read_all(&client, &writer)), 3_000);
    assert_eq!(writer.confirmed_end(), EntryId(3_000));
}

#[test]
fn bookie_that_is_to_leave_is_emptied_while_it_runs_and_then_retired() {
    let Some(mut cluster) = Cluster::start_with(PORT + 10, 4, &QUICK) else {
        return;
    };
    let runtime = runtime();
    let client = runtime.block_on(client(&cluster, 1));
    let store = runtime.block_on(async { store(&cluster) });
    let writer = closed(&runtime, &client, 500);
    let leaves = ensemble(&metadata(&runtime, &client, &writer))[1];
    let name = NodeName::new(&format!("b{}", leaves + 1)).unwrap();
    let change = |to| runtime.block_on(change_registration(&*store, &name, to));
    change(RegistrationState::Draining).unwrap();
    until_left(&runtime, &client, &writer, leaves);
    let began = Instant::now();
    while change(RegistrationState::Draining).is_ok() {
        assert!(began.elapsed() < REPAIRED_WITHIN, "it is not retired");
        std::thread::sleep(Duration::from_millis(200));
    }
    // It can be stopped, and is refused from now on.
    assert!(cluster.bookies[leaves].stop().success());
    cluster.bookies[leaves].spawn();
    assert!(!cluster.bookies[leaves].ended().success());
    assert!(
        cluster.bookies[leaves].log().contains("retired"),
        "{}",
        cluster.bookies[leaves].log()
    );
    assert_eq!(runtime.block_on(read_all(&client, &writer)), 500);
}
