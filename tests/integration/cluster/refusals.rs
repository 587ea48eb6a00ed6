//! Which bookies and brokers may not start, and what they say.

use std::time::Duration;

use hulse_sdk::Client;

use super::super::server::{HULSE, copy, http_get};
use super::load::{Load, runtime};
use super::ports::Ports;
use super::processes::{Cluster, Process};
use super::truth::read_all;

const PORT: u16 = 17_880;

/// Starts a process that must end by itself, and says why and what to do.
fn refused(mut process: Process, words: &str) {
    process.spawn();
    let status = process.ended();
    let log = process.log();
    assert_eq!(status.code(), Some(5), "{log}");
    assert!(log.contains(words), "{words}: {log}");
    let typed = log.contains("[HULSE-91") && log.contains("next:");
    assert!(typed, "it has a code, and says what to do: {log}");
}

#[test]
fn bookie_starts_on_its_own_disk_alone() {
    let Some(mut cluster) = Cluster::start(PORT, 1) else {
        return;
    };
    // Formatted once, and by nobody else.
    let again = cluster.format(0);
    assert_eq!(again.status.code(), Some(5), "{again:?}");
    // The same directory, in another process.
    refused(cluster.bookie_at(&cluster.data(0), 1, "b1"), "locked");
    // A directory that was never formatted.
    refused(
        cluster.bookie_at(&cluster.data(7), 1, "b7"),
        "format it first",
    );
    // A copy of the disk beside the living one: of the same name, and of another.
    copy(&cluster.data(0), &cluster.data(8));
    let copied = cluster.bookie_at(&cluster.data(8), 1, "b1");
    refused(copied, "another node has this name");
    refused(
        cluster.bookie_at(&cluster.data(8), 1, "b8"),
        "belongs to bookie b1",
    );
    assert!(cluster.bookies[0].stop().success());
    // An empty disk under a name that is known.
    let empty = cluster.bookie_at(&cluster.data(9), 1, "b1");
    refused(empty, "the disk is lost or not mounted");
    // Another cell in the same etcd.
    let mut strange = cluster.bookie(0);
    strange.set("HULSE_METADATA__PREFIX", "other/");
    refused(strange, "belongs to cell");
    // Another life of its disk: the name was given away, and this one never serves again.
    other_life(&cluster);
    // And its own again, cleanly, without a wait for a lease.
    let began = std::time::Instant::now();
    cluster.bookies[0].start();
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    cluster.stop();
}

/// The registration names another disk for a moment.
fn other_life(cluster: &Cluster) {
    use bookie_metadata::{EtcdOptions, EtcdStore, MetadataStore as _, Op, Txn};
    use hulse_proto::wire::{Message as _, metadata as wire};
    const KEY: &str = "bookie/b1";
    let runtime = runtime();
    // Its connection is dialled by a task.
    let _entered = runtime.enter();
    let options = EtcdOptions::new([cluster.etcd.url()], "hulse/");
    let store = EtcdStore::new(options).unwrap();
    let put = |value: bytes::Bytes| {
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![Op::put(KEY.to_owned(), value)],
        };
        runtime.block_on(store.txn(txn)).unwrap();
    };
    let before = runtime.block_on(store.get(KEY)).unwrap().unwrap().value;
    let mut other = wire::Bookie::decode(before.clone()).unwrap();
    other.incarnation = bytes::Bytes::from_static(&[7; 16]);
    put(other.encode_to_vec().into());
    refused(cluster.bookie(0), "incarnation");
    put(before);
}

#[test]
fn broker_of_other_quorums_or_of_a_taken_name_is_refused() {
    let Some(mut cluster) = Cluster::start(PORT + 40, 1) else {
        return;
    };
    cluster.add_broker();
    let mut twin = cluster.broker(0);
    twin.move_to(PORT + 40 + 36);
    refused(twin, "another node has this name");
    let mut other = cluster.broker(1);
    other.set("HULSE_BROKER__REPLICATION__ACK_QUORUM", "3");
    refused(other, "ack_quorum = 2");
    cluster.stop();
}

/// Waits until a process says so.
fn says(process: &Process, words: &str) {
    let began = std::time::Instant::now();
    while !process.log().contains(words) {
        let waited = began.elapsed();
        assert!(
            waited < Duration::from_secs(20),
            "{words}: {}",
            process.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn bookie_of_another_cell_in_the_place_of_a_dead_one_gets_nothing() {
    let ports = Ports::take();
    let Some(mut cluster) = Cluster::start(ports.first, 3) else {
        return;
    };
    cluster.add_broker();
    let runtime = runtime();
    let at = cluster.broker_address(0);
    let client = Client::builder(&at).build().unwrap();
    let load = runtime.block_on(Load::begin(&client, "elsewhere", 3));
    runtime.block_on(load.goes_on("the beginning"));
    cluster.bookies[0].kill();
    // Of the same name and at the same address, but of another cell.
    let mut strange = cluster.bookie_at(&cluster.data(9), 0, "b1");
    strange.set("HULSE_METADATA__PREFIX", "other/");
    let formatted = strange.make("format");
    assert!(formatted.status.success(), "{formatted:?}");
    strange.start();
    runtime.block_on(load.goes_on("a bookie of another cell is there"));
    std::thread::sleep(Duration::from_millis(1_000));
    let page = http_get(&cluster.bookie_http(0), "/metrics").unwrap();
    let taken = page
        .lines()
        .find(|line| line.starts_with("hulse_bookie_adds_total "));
    assert!(taken.is_some_and(|line| line.ends_with(" 0")), "{taken:?}");
    assert!(strange.stop().success(), "{}", strange.log());
    cluster.bookies[0].start();
    runtime.block_on(load.goes_on("its own is back"));
    let (truth, followed) = runtime.block_on(load.end());
    let found = runtime.block_on(read_all(&client, "elsewhere"));
    truth.check(&found, "a bookie of another cell");
    truth.check(&followed, "what was followed");

    // A broker that is told of a cell without bookies says so: a prefix may be misspelt.
    let mut lost = cluster.broker(1);
    lost.set("HULSE_METADATA__PREFIX", "misspelt/");
    lost.start();
    says(&lost, "no bookie was ever registered in this cell");
    assert!(lost.stop().success());
    cluster.stop();
}

#[test]
fn node_waits_for_etcd_and_can_be_ended_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let mut waiting = Process::new(
        HULSE,
        &[
            "bookie",
            "--data",
            &folder.path().join("data").display().to_string(),
            "--metadata",
            "http://127.0.0.1:17959",
        ],
        folder.path().join("log"),
        ("127.0.0.1:17961".to_owned(), "/readyz"),
    );
    waiting.set("HULSE_LISTEN__BOOKIE", "127.0.0.1:17960");
    waiting.set("HULSE_LISTEN__HTTP", "127.0.0.1:17961");
    waiting.spawn();
    says(&waiting, "waiting for the metadata store");
    assert!(waiting.stop().success(), "{}", waiting.log());
}
