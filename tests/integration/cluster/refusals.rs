//! Which bookies and brokers may not start, and what they say.

use std::time::Duration;

use super::super::server::{HULSE, copy};
use super::processes::{Cluster, Process};

const PORT: u16 = 17_880;

/// Starts a process that must end by itself; what it said.
fn refused(mut process: Process, words: &str) {
    process.spawn();
    let status = process.ended();
    assert_eq!(status.code(), Some(5), "{}", process.log());
    assert!(process.log().contains(words), "{words}: {}", process.log());
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
    let runtime = super::load::runtime();
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
    let began = std::time::Instant::now();
    while !waiting.log().contains("waiting for the metadata store") {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{}",
            waiting.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(waiting.stop().success(), "{}", waiting.log());
}
