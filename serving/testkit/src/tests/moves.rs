//! Partitions move, and brokers are lost, under those who use them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use hulse_sdk::{QueueConsumer, Start};
use tokio_util::sync::CancellationToken;

use super::support::{cursor, number, send, share, until};
use crate::TestBroker;

const RECORDS: u64 = 600;
const MOVES: u64 = 8;
const KEYS: u64 = 13;

/// What consumers saw.
#[derive(Default)]
struct Seen {
    handed: BTreeSet<u64>,
    acked: BTreeSet<u64>,
    /// The last number of each key that came for the first time.
    last: BTreeMap<Vec<u8>, u64>,
    keyed: bool,
}

impl Seen {
    fn hand(&mut self, found: u64, key: &[u8]) {
        assert!(!self.acked.contains(&found), "{found} was acked before");
        if self.handed.insert(found) && self.keyed {
            let last = self.last.insert(key.to_vec(), found);
            // K2 (serving.md B4.2): what comes for the first time comes in order.
            assert!(
                last.is_none_or(|last| last < found),
                "{found} after {last:?}"
            );
        }
    }
}

/// Acks each record once.
async fn work(consumer: QueueConsumer, seen: Arc<Mutex<Seen>>, stop: CancellationToken) {
    loop {
        let message = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            next = consumer.next() => next.unwrap().unwrap(),
        };
        let (found, key) = (
            number(message.value.as_deref()),
            message.key.clone().unwrap(),
        );
        seen.lock().unwrap().hand(found, &key);
        if consumer.ack(&message).await.is_ok() {
            seen.lock().unwrap().acked.insert(found);
        }
    }
    consumer.close().await.unwrap();
}

async fn partition_moves_to_and_fro(keyed: bool) {
    let cluster = TestBroker::builder().brokers(2).start().await.unwrap();
    let client = cluster.client();
    client.admin().create_topic("t", 1).await.unwrap();
    let seen = Seen {
        keyed,
        ..Seen::default()
    };
    let (seen, stop) = (Arc::new(Mutex::new(seen)), CancellationToken::new());
    let mut working = Vec::new();
    for name in ["one", "two"] {
        let consumer = share(&client, "t", name, keyed).await;
        working.push(tokio::spawn(work(consumer, seen.clone(), stop.clone())));
    }
    let producer = client.producer("t").build().await.unwrap();
    let moving = async {
        let acked = || seen.lock().unwrap().acked.len() as u64;
        for round in 0..MOVES {
            // Each one in the middle of the work.
            until("the work goes on", async || {
                acked() >= RECORDS / (MOVES + 1) * (round + 1)
            })
            .await;
            let owner = cluster.owner("t", 0).await.unwrap();
            let to = match owner == "broker-1" {
                true => "broker-2",
                false => "broker-1",
            };
            let epoch = cluster.move_partition("t", 0, to).await.unwrap();
            assert_eq!(u64::from(epoch), round + 2);
            assert_eq!(cluster.owner("t", 0).await.unwrap(), to);
        }
    };
    tokio::join!(send(&producer, 0..RECORDS, KEYS), moving);
    until("all is acked", async || {
        seen.lock().unwrap().acked.len() as u64 == RECORDS
    })
    .await;
    stop.cancel();
    for task in working {
        task.await.unwrap();
    }
    let left = cursor(&client, "t").await;
    assert_eq!((left.backlog_records, left.base.0), (0, RECORDS));
    assert_eq!(left.high_watermark.0, RECORDS, "nothing is stored twice");
    producer.close().await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_records_are_acked_once_while_their_partition_moves() {
    partition_moves_to_and_fro(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyed_records_are_acked_once_while_their_partition_moves() {
    partition_moves_to_and_fro(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_is_read_after_its_broker_was_lost() {
    let cluster = TestBroker::builder().brokers(2).start().await.unwrap();
    let client = cluster.client();
    client.admin().create_topic("t", 1).await.unwrap();
    let producer = client.producer("t").build().await.unwrap();
    send(&producer, 0..50, 1).await;
    let owner = cluster.owner("t", 0).await.unwrap();
    assert!(cluster.lose_broker(&owner).await);
    assert!(!cluster.lose_broker("broker-9").await);
    send(&producer, 50..100, 1).await;
    producer.close().await.unwrap();
    assert_ne!(cluster.owner("t", 0).await.unwrap(), owner);
    let builder = client.reader("t").start(Start::Earliest).follow(false);
    let mut reader = builder.build().await.unwrap();
    let mut found = Vec::new();
    while let Some(record) = reader.next().await.unwrap() {
        found.push(number(record.value.as_deref()));
    }
    assert_eq!(found, (0..100).collect::<Vec<_>>());
}
