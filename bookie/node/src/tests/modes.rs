//! Crash point 14 of storage.md §10: the process dies before or after the mode of a bookie whose disk fills, or has room again, was
//! published. What metadata say is a hint: the bookie obeys its disk, and the next start publishes what is true then (D5).

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::{LeaseId, MetadataStore, Txn};
use hulse_proto::bookie::{Address, BookieCalls, BookieError};
use hulse_proto::entry::EntryClass;
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::LedgerState;
use hulse_proto::wire::{Message, metadata as wire};
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use super::support::*;
use crate::BookieNode;
use crate::disk::Disk;
use crate::disk::memory::{MemoryDisk, Survival};

/// Longest wait for a change of the mode; the volume is looked at once a second.
const PATIENCE: Duration = Duration::from_secs(20);

async fn start(disk: &MemoryDisk, store: &Arc<MapStore>) -> Arc<BookieNode> {
    let seams = seams(Arc::new(disk.clone()), store.clone(), 1);
    BookieNode::start(config(), seams).await.unwrap()
}

async fn publish(node: &BookieNode, store: &MapStore) {
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![node.lease_op(LeaseId(1), "http://127.0.0.1:1")],
    };
    store.txn(txn).await.unwrap();
}

fn published(store: &MapStore) -> wire::Node {
    wire::Node::decode(store.value("node/bookie/bookie-1").unwrap()).unwrap()
}

async fn becomes(node: &BookieNode, mode: &str) {
    let wait = async {
        while node.mode() != mode {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let came = tokio::time::timeout(PATIENCE, wait).await;
    assert!(
        came.is_ok(),
        "the mode stays {} instead of {mode}",
        node.mode()
    );
}

async fn store_one(node: &BookieNode, number: u64) -> Result<(), BookieError> {
    let to = Address {
        cell: CELL,
        incarnation: node.member().incarnation,
        ledger: LedgerId(1),
    };
    node.add(add(to, entry(1, number, 100))).await
}

/// Kills a node around the publishing of its mode, while the disk fills or after it has room again; then starts it on the same disk.
async fn kill(fills: bool, publishes: bool) {
    let (disk, store) = (MemoryDisk::default(), Arc::new(MapStore::default()));
    let full = |disk: &MemoryDisk| disk.set_capacity(Some(disk.used()));
    let node = start(&disk, &store).await;
    store.ledger(1, LedgerState::Open, node.member());
    store_one(&node, 0).await.unwrap();
    // A start on a disk without any room lives on the blocks that are kept with the second file.
    while !disk
        .list()
        .unwrap()
        .iter()
        .any(|name| name == "start.reserve")
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if !fills {
        full(&disk);
        becomes(&node, "readonly").await;
    }
    publish(&node, &store).await;
    let before = published(&store);
    match fills {
        true => full(&disk),
        false => disk.set_capacity(None),
    }
    let mode = if fills { "readonly" } else { "normal" };
    becomes(&node, mode).await;
    if publishes {
        publish(&node, &store).await;
        assert_eq!(published(&store).mode, mode);
    } else {
        assert_ne!(published(&store).mode, mode);
    }
    // The bookie obeys its disk, whatever is published.
    let stored = store_one(&node, 1).await;
    match fills {
        true => assert!(
            matches!(stored, Err(BookieError::ReadOnly { .. })),
            "{stored:?}"
        ),
        false => stored.unwrap(),
    }
    let mut rng = ChaCha12Rng::seed_from_u64(u64::from(fills) * 2 + u64::from(publishes));
    disk.crash(Survival::Random(&mut rng));
    drop(node);
    let node = start(&disk, &store).await;
    becomes(&node, mode).await;
    publish(&node, &store).await;
    let now = published(&store);
    assert_eq!(now.mode, mode);
    assert!(now.boot_counter > before.boot_counter && now.boot_uuid != before.boot_uuid);
    assert_eq!(store_one(&node, 0).await, Ok(()), "what is held is held");
    disk.set_capacity(None);
    becomes(&node, "normal").await;
    store_one(&node, 1).await.unwrap();
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_around_the_publishing_of_a_mode_leaves_a_hint_and_no_wrong_bookie() {
    let kills = [(true, false), (true, true), (false, false), (false, true)];
    futures::future::join_all(kills.map(|(fills, publishes)| kill(fills, publishes))).await;
    report(&format!("crash point 14: {} hits", kills.len()));
}

/// What an operator says stands in the registration (C7).
fn say(store: &MapStore, state: wire::bookie::State) {
    let key = "bookie/bookie-1";
    let mut value = wire::Bookie::decode(store.value(key).unwrap()).unwrap();
    value.set_state(state);
    store.put(key, value.encode_to_vec().into());
}

async fn store_meta(node: &BookieNode, number: u64) -> Result<(), BookieError> {
    let to = Address {
        cell: CELL,
        incarnation: node.member().incarnation,
        ledger: LedgerId(1),
    };
    node.add(add(to, entry_of(EntryClass::Meta, 1, number, 100)))
        .await
}

#[tokio::test]
async fn operators_word_in_the_registration_is_obeyed_and_taken_back() {
    let (disk, store) = (MemoryDisk::default(), Arc::new(MapStore::default()));
    let node = start(&disk, &store).await;
    store.ledger(1, LedgerState::Open, node.member());
    store_one(&node, 0).await.unwrap();
    let refused = |result| matches!(result, Err(BookieError::ReadOnly { .. }));

    say(&store, wire::bookie::State::ReadOnly);
    becomes(&node, "readonly").await;
    assert!(refused(store_one(&node, 1).await));
    store_meta(&node, 1).await.unwrap();

    say(&store, wire::bookie::State::Draining);
    let mut number = 2;
    let leaving = async {
        while !refused(store_meta(&node, number).await) {
            number += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let came = tokio::time::timeout(PATIENCE, leaving).await;
    assert!(came.is_ok(), "META is taken by a bookie that is to leave");
    // Repair and recovery go on.
    let to = Address {
        cell: CELL,
        incarnation: node.member().incarnation,
        ledger: LedgerId(9),
    };
    let late = recovery_add(to, entry(9, 0, 100), 1);
    node.add(late).await.unwrap();

    say(&store, wire::bookie::State::Active);
    becomes(&node, "normal").await;
    store_one(&node, 1_000).await.unwrap();
    node.shutdown().await.unwrap();
}
