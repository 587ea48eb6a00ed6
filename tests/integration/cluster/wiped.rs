//! Disks of bookies that are gone for good while records are produced: every acknowledged one is read, and all copies are made again.

use std::time::{Duration, Instant};

use hulse_sdk::{Admin, BookieState, Bookies};
use tokio::runtime::Runtime;

use super::processes::Cluster;
use super::records::{client, consume, produce, runtime, whole};

const PORT: u16 = 18_320;
/// Far above what it takes: leases, the time until a bookie is given up, passes, and the copies.
const REPAIRED_WITHIN: Duration = Duration::from_secs(90);

const BOOKIES: [(&str, &str); 2] = [
    ("HULSE_UPKEEP__LOST_AFTER", "2s"),
    ("HULSE_UPKEEP__AUDIT_INTERVAL", "1s"),
];

fn wipe(cluster: &mut Cluster, bookie: usize) {
    cluster.bookies[bookie].kill();
    std::fs::remove_dir_all(cluster.data(bookie)).unwrap();
}

fn add_broker(cluster: &mut Cluster, settings: &[(&str, &str)]) {
    let mut broker = cluster.broker(0);
    // Ledgers are closed now and then.
    broker.set("HULSE_BROKER__LEDGER_ROLL_SIZE", "1MiB");
    for (name, value) in settings {
        broker.set(name, value);
    }
    broker.start();
    cluster.brokers.push(broker);
}

/// Waits until the cluster says so.
fn until(
    runtime: &Runtime,
    admin: &Admin,
    what: &str,
    holds: impl Fn(&Bookies) -> bool,
) -> Bookies {
    let began = Instant::now();
    loop {
        let found = runtime.block_on(admin.list_bookies()).unwrap();
        if holds(&found) {
            return found;
        }
        assert!(began.elapsed() < REPAIRED_WITHIN, "{what}: {found:#?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Ledgers that name this bookie; `None`: not known.
fn named(found: &Bookies, name: &str) -> Option<u64> {
    let bookie = found.bookies.iter().find(|bookie| bookie.name == name)?;
    bookie.holds.map(|(ledgers, _)| ledgers)
}

fn is_whole(found: &Bookies) -> bool {
    let upkeep = found.upkeep.as_ref();
    upkeep.is_some_and(|upkeep| upkeep.lacking_ledgers == 0)
}

/// An operator says that the bookie's disk is gone, as soon as its lease has ended.
fn declare_lost(runtime: &Runtime, admin: &Admin, name: &str) {
    let began = Instant::now();
    while let Err(error) = runtime.block_on(admin.change_bookie(name, BookieState::Lost)) {
        assert!(began.elapsed() < REPAIRED_WITHIN, "{error}");
        assert!(error.to_string().contains("stop it first"), "{error}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn bookie_whose_disk_is_gone_costs_no_record_and_its_copies_are_made_again() {
    let Some(mut cluster) = Cluster::start_with(PORT, 4, &BOOKIES) else {
        return;
    };
    add_broker(&mut cluster, &[]);
    let runtime = runtime();
    let sdk = client(&cluster);
    let admin = sdk.admin();
    runtime.block_on(produce(client(&cluster), 0..4_000));
    let producing = runtime.spawn(produce(client(&cluster), 4_000..10_000));
    std::thread::sleep(Duration::from_millis(200));
    wipe(&mut cluster, 0);
    runtime.block_on(producing).unwrap();
    whole(&runtime.block_on(consume(&sdk)), 10_000);

    declare_lost(&runtime, &admin, "b1");
    // Also the ledgers that nobody writes to now.
    until(&runtime, &admin, "no ledger names it", |found| {
        named(found, "b1") == Some(0) && is_whole(found)
    });
    // Now two more: of three copies one is left, with the bookie that took those of the first.
    wipe(&mut cluster, 1);
    cluster.bookies[2].kill();
    whole(&runtime.block_on(consume(&sdk)), 10_000);
}

#[test]
fn any_two_disks_may_go_when_all_three_copies_are_waited_for() {
    const ACKS: (&str, &str) = ("HULSE_BROKER__REPLICATION__ACK_QUORUM", "3");
    let settings = [BOOKIES[0], BOOKIES[1], ACKS];
    let Some(mut cluster) = Cluster::start_with(PORT + 40, 5, &settings) else {
        return;
    };
    add_broker(&mut cluster, &[ACKS]);
    let runtime = runtime();
    let sdk = client(&cluster);
    let admin = sdk.admin();
    runtime.block_on(produce(client(&cluster), 0..3_000));
    let producing = runtime.spawn(produce(client(&cluster), 3_000..6_000));
    std::thread::sleep(Duration::from_millis(200));
    wipe(&mut cluster, 1);
    wipe(&mut cluster, 3);
    // The two others take their places.
    runtime.block_on(producing).unwrap();
    whole(&runtime.block_on(consume(&sdk)), 6_000);
    // Both get new disks under their old names, and all copies are made again.
    for bookie in [1, 3] {
        let began = Instant::now();
        loop {
            let replaced = cluster.replace(bookie);
            if replaced.status.success() {
                break;
            }
            let words = String::from_utf8_lossy(&replaced.stderr);
            assert!(words.contains("does not run"), "{words}");
            assert!(began.elapsed() < REPAIRED_WITHIN, "{words}");
            std::thread::sleep(Duration::from_millis(500));
        }
        cluster.bookies[bookie].start();
    }
    let passes = until(&runtime, &admin, "there is a report", |found| {
        found.upkeep.is_some()
    });
    let passes = passes.upkeep.unwrap().passes;
    until(&runtime, &admin, "every ledger is whole", |found| {
        let later = found
            .upkeep
            .as_ref()
            .is_some_and(|upkeep| upkeep.passes > passes + 1);
        later && is_whole(found)
    });
    // Any two others go.
    wipe(&mut cluster, 0);
    wipe(&mut cluster, 2);
    whole(&runtime.block_on(consume(&sdk)), 6_000);
}
