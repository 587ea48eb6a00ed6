//! The directory of a cluster over metadata in memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bookie_metadata::testing::FaultyStore;
use bookie_metadata::{MemoryStore, MetadataStore as _, Op, Txn};
use hulse_proto::id::{CellId, Incarnation, NodeName};
use hulse_proto::ledger::Member;
use hulse_proto::wire::{Message as _, metadata as wire};
use tokio::time::sleep;
use uuid::Uuid;

use super::{BookieDirectory as _, Dial, RegisteredBookies};
use crate::testing::MemoryBookie;

const INCARNATION: Incarnation = Incarnation(Uuid::from_u128(5));

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn member(text: &str) -> Member {
    Member {
        bookie: name(text),
        incarnation: INCARNATION,
    }
}

async fn put(store: &FaultyStore<MemoryStore>, op: Op) {
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![op],
    };
    store.txn(txn).await.unwrap();
}

async fn register(store: &FaultyStore<MemoryStore>, name: &str) {
    let bookie = wire::Bookie {
        incarnation: INCARNATION.to_bytes(),
        state: wire::bookie::State::Active as i32,
        ..wire::Bookie::default()
    };
    put(
        store,
        Op::put(format!("bookie/{name}"), bookie.encode_to_vec()),
    )
    .await;
}

async fn run(store: &FaultyStore<MemoryStore>, name: &str, endpoint: &str) {
    let node = wire::Node {
        endpoint: endpoint.to_owned(),
        mode: "normal".to_owned(),
        ..wire::Node::default()
    };
    put(
        store,
        Op::put(format!("node/bookie/{name}"), node.encode_to_vec()),
    )
    .await;
}

/// A dial that writes down whom it made.
fn dial() -> (Dial, Arc<Mutex<Vec<String>>>) {
    let dialled = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&dialled);
    let dial = move |name: &NodeName, endpoint: &str| {
        list.lock().unwrap().push(format!("{name} {endpoint}"));
        let cell = CellId(Uuid::from_u128(1));
        MemoryBookie::start(cell, name.as_str(), INCARNATION, None) as _
    };
    (Box::new(dial), dialled)
}

#[tokio::test(start_paused = true)]
async fn bookies_are_found_at_the_start_by_the_watch_and_when_they_are_placed() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    run(&store, "a", "a:1").await;
    let (dial, dialled) = dial();
    let directory = RegisteredBookies::start(Arc::new(store.clone()), dial)
        .await
        .unwrap();
    assert!(directory.calls(&member("a")).is_some());
    assert!(directory.calls(&member("b")).is_none());
    run(&store, "b", "b:1").await;
    sleep(Duration::from_millis(10)).await;
    assert!(directory.calls(&member("b")).is_some());
    register(&store, "c").await;
    register(&store, "d").await;
    run(&store, "c", "c:1").await;
    // No turn for the watch.
    let candidates = directory.candidates().await.unwrap();
    let seen = candidates
        .iter()
        .map(|one| (one.member.bookie.as_str(), one.live));
    assert_eq!(seen.collect::<Vec<_>>(), [("c", true), ("d", false)]);
    assert!(directory.calls(&member("c")).is_some());
    assert!(directory.calls(&member("d")).is_none());
    run(&store, "a", "a:2").await;
    run(&store, "a", "a:2").await;
    sleep(Duration::from_millis(10)).await;
    let dialled = dialled.lock().unwrap();
    assert_eq!(*dialled, ["a a:1", "b b:1", "c c:1", "a a:2"]);
}

#[tokio::test(start_paused = true)]
async fn address_outlives_the_lease_and_the_silence_of_metadata() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    run(&store, "a", "a:1").await;
    let (dial, dialled) = dial();
    let directory = RegisteredBookies::start(Arc::new(store.clone()), dial)
        .await
        .unwrap();
    let gone = Op::Delete {
        key: "node/bookie/a".to_owned(),
    };
    put(&store, gone).await;
    store.silence();
    sleep(Duration::from_secs(60)).await;
    assert!(directory.calls(&member("a")).is_some());
    store.speak();
    run(&store, "b", "b:1").await;
    sleep(Duration::from_secs(10)).await;
    assert!(directory.calls(&member("b")).is_some(), "{dialled:?}");
}

#[tokio::test(start_paused = true)]
async fn directory_of_silent_metadata_does_not_start() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    store.silence();
    let (dial, _) = dial();
    let started = RegisteredBookies::start(Arc::new(store.clone()), dial);
    let started = tokio::time::timeout(Duration::from_secs(60), started).await;
    assert!(!matches!(started, Ok(Ok(_))));
}
