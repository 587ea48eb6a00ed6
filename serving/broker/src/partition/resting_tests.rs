//! Partitions that rest: without a task, and as good as others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bookie_client::testing::{FixedClock, MemoryBookie, StaticDirectory};
use bookie_client::{ClientConfig, LedgerClient};
use bookie_metadata::{MemoryStore, MetadataStore};
use hulse_proto::id::{CellId, Incarnation, NodeName, Offset, PartitionId, TopicId};
use hulse_proto::ledger::{LedgerState, Quorums};
use hulse_proto::time::{TimestampMs, WallClock};
use tokio::time::sleep;
use uuid::Uuid;

use super::tests::batch;
use crate::{BrokerConfig, Lease, Partitions, PartitionsConfig};

/// After this whatever has nothing to do rests.
const LONG: Duration = Duration::from_secs(5);
const ROLL_AGE: Duration = Duration::from_secs(60);

/// A clock that panics when it is told to, once.
#[derive(Default)]
struct Brittle(AtomicBool);

impl WallClock for Brittle {
    fn now_ms(&self) -> TimestampMs {
        assert!(!self.0.swap(false, Ordering::Relaxed), "on purpose");
        1_000
    }
}

/// A broker and its bookie, which has tasks of its own as long as it is there.
fn broker() -> (Partitions, Arc<MemoryBookie>) {
    broker_by(Arc::new(FixedClock(1_000)))
}

/// The same, whose partitions tell the time by this clock.
fn broker_by(owners: Arc<dyn WallClock>) -> (Partitions, Arc<MemoryBookie>) {
    let clock = Arc::new(FixedClock(1_000));
    let store: Arc<dyn MetadataStore> = Arc::new(MemoryStore::new());
    let cell = CellId(Uuid::from_u128(1));
    let incarnation = Incarnation(Uuid::from_u128(2));
    let bookie = MemoryBookie::start(cell, "a", incarnation, Some(store.clone()));
    let directory = Arc::new(StaticDirectory::of(std::slice::from_ref(&bookie)));
    let config = ClientConfig::new(Quorums {
        ensemble: 1,
        write: 1,
        ack: 1,
    });
    let parts = PartitionsConfig {
        metadata: store.clone(),
        client: LedgerClient::new(cell, config, store, directory, clock, [3; 32]),
        clock: owners,
        boot: Uuid::from_u128(4),
        lease: Lease::none(),
    };
    let mut config = BrokerConfig::new(NodeName::new("b").unwrap(), "nowhere:1");
    config.ledger_roll_age = ROLL_AGE;
    (Partitions::new(&config, parts), bookie)
}

fn partition(index: u32) -> PartitionId {
    let topic = TopicId(Uuid::from_u128(5));
    PartitionId { topic, index }
}

fn tasks() -> usize {
    let metrics = tokio::runtime::Handle::current().metrics();
    metrics.num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn partitions_with_nothing_to_do_have_one_task_together_and_go_on_when_asked() {
    let (partitions, _bookie) = broker();
    sleep(LONG).await;
    let before = tasks();
    let mut handles = Vec::new();
    for index in 0..100 {
        handles.push(partitions.open(partition(index)).await.unwrap());
    }
    for round in 0..3 {
        for handle in &handles {
            let stored = handle.produce(batch(7, 0, round, 1)).await.unwrap();
            assert_eq!(stored.base_offset, Offset(round as u64));
        }
        assert!(tasks() > before + 100);
        sleep(LONG).await;
        assert_eq!(tasks(), before + 1);
    }
    let again = handles[5].produce(batch(7, 0, 2, 1)).await.unwrap();
    assert!(again.duplicate);
    assert_eq!(
        handles[6].producer(hulse_proto::id::ProducerId(7)).await,
        Ok(Some((0, 2)))
    );
    sleep(LONG).await;
    drop((partitions, handles));
    sleep(LONG).await;
    assert_eq!(tasks(), before, "nothing looks after what is gone");
}

#[tokio::test(start_paused = true)]
async fn watcher_of_a_partition_that_rests_sees_what_comes_and_the_end() {
    let (partitions, _bookie) = broker();
    let handle = partitions.open(partition(0)).await.unwrap();
    let mut watch = handle.watch();
    sleep(LONG).await;
    handle.produce(batch(7, 0, 0, 1)).await.unwrap();
    assert!(watch.changed().await.is_ok());
    assert_eq!(watch.borrow_and_update().high_watermark, Offset(1));
    sleep(LONG).await;
    partitions.close_all().await;
    assert!(watch.changed().await.is_err());
    assert!(handle.ended().is_some());
    let ledgers = partitions.ledgers(partition(0)).await.unwrap();
    let state = ledgers[0].metadata.as_ref().map(|metadata| metadata.state);
    assert_eq!(
        state,
        Some(LedgerState::Closed),
        "a stop leaves nothing to recover"
    );
}

#[tokio::test(start_paused = true)]
async fn partition_that_rests_rolls_its_ledger_by_age() {
    let (partitions, _bookie) = broker();
    let handle = partitions.open(partition(0)).await.unwrap();
    handle.produce(batch(7, 0, 0, 1)).await.unwrap();
    sleep(LONG).await;
    assert_eq!(partitions.ledgers(partition(0)).await.unwrap().len(), 1);
    sleep(ROLL_AGE + LONG).await;
    let ledgers = partitions.ledgers(partition(0)).await.unwrap();
    let states = ledgers
        .iter()
        .map(|view| view.metadata.as_ref().map(|metadata| metadata.state));
    let wanted = [LedgerState::Closed, LedgerState::Open].map(Some);
    assert_eq!(states.collect::<Vec<_>>(), wanted);
    let stored = handle.produce(batch(7, 0, 1, 1)).await.unwrap();
    assert_eq!(stored.base_offset, Offset(1));
}

#[tokio::test(start_paused = true)]
async fn partition_that_panics_at_rest_says_that_it_ended_and_others_are_looked_after() {
    let clock = Arc::new(Brittle::default());
    let (partitions, _bookie) = broker_by(clock.clone());
    let mut handles = Vec::new();
    for index in 0..3 {
        let handle = partitions.open(partition(index)).await.unwrap();
        handle.produce(batch(7, 0, 0, 1)).await.unwrap();
        handles.push((handle.watch(), handle));
    }
    sleep(LONG).await;
    clock.0.store(true, Ordering::Relaxed);
    sleep(LONG).await;
    let (ended, others): (Vec<_>, Vec<_>) = handles
        .into_iter()
        .partition(|(_, handle)| handle.ended().is_some());
    let [(mut watch, handle)] = ended.try_into().ok().unwrap();
    let heard = async { while watch.changed().await.is_ok() {} };
    assert!(tokio::time::timeout(LONG, heard).await.is_ok());
    // The next request opens it again.
    let again = partitions.open(handle.id()).await.unwrap();
    let stored = again.produce(batch(7, 0, 1, 1)).await.unwrap();
    assert_eq!(stored.base_offset, Offset(1));
    sleep(ROLL_AGE + LONG).await;
    for (_, other) in &others {
        assert_eq!(partitions.ledgers(other.id()).await.unwrap().len(), 2);
        assert!(other.ended().is_none());
    }
}
