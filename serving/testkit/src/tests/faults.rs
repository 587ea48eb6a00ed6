//! Each fault does what it says, and no more.

use std::time::Duration;

use hulse_sdk::Record;
use tokio::time::{Instant, timeout};

use super::support::{PATIENCE, send};
use crate::{StartError, TestBroker};

/// Nothing that works takes so long.
const A_WHILE: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_is_fenced_in_one_partition_and_no_other() {
    let cluster = TestBroker::start().await.unwrap();
    let client = cluster.client();
    client.admin().create_topic("t", 2).await.unwrap();
    let producer = client.producer("t").build().await.unwrap();
    let to = async |partition| {
        let record = Record::new("x").partition(partition);
        producer.send(record).await?.await
    };
    to(0).await.unwrap();
    to(1).await.unwrap();
    let identity = producer.identity().await.unwrap().unwrap();
    cluster.fence_producer("t", 1, identity).await.unwrap();
    to(0).await.unwrap();
    let refused = to(1).await.unwrap_err();
    assert!(refused.is_fenced(), "{refused}");
    assert!(!refused.possibly_written(), "{refused}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_is_not_acknowledged_while_storage_does_not_answer() {
    let cluster = TestBroker::start().await.unwrap();
    let client = cluster.client();
    let producer = client.producer("t").build().await.unwrap();
    send(&producer, 0..1, 1).await;
    cluster.hold_storage(true);
    let mut ticket = producer.send(Record::new("held")).await.unwrap();
    assert!(timeout(A_WHILE, &mut ticket).await.is_err());
    cluster.hold_storage(false);
    let receipt = timeout(PATIENCE, ticket).await.unwrap().unwrap();
    assert_eq!(receipt.offset.unwrap().0, 1);
    producer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_storage_refuses_with_a_reason_and_takes_records_again() {
    let cluster = TestBroker::start().await.unwrap();
    let client = cluster.client();
    let short = client.producer("t").delivery_timeout(2 * A_WHILE);
    let short = short.build().await.unwrap();
    let producer = client.producer("t").build().await.unwrap();
    send(&producer, 0..1, 1).await;
    cluster.fill_storage(true);
    let refused = short.send(Record::new("x")).await.unwrap().await;
    assert!(refused.is_err(), "{refused:?}");
    let waiting = producer.send(Record::new("y")).await.unwrap();
    cluster.fill_storage(false);
    timeout(PATIENCE, waiting).await.unwrap().unwrap();
    producer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_stall_break_and_are_refused_and_all_goes_on_afterwards() {
    let cluster = TestBroker::start().await.unwrap();
    let (client, links) = (cluster.client(), cluster.links().clone());
    let producer = client.producer("t").build().await.unwrap();
    send(&producer, 0..1, 1).await;
    links.stall(true);
    let mut ticket = producer.send(Record::new("stalled")).await.unwrap();
    assert!(timeout(A_WHILE, &mut ticket).await.is_err());
    links.stall(false);
    timeout(PATIENCE, ticket).await.unwrap().unwrap();
    links.refuse(true);
    links.cut();
    let mut ticket = producer.send(Record::new("refused")).await.unwrap();
    assert!(timeout(A_WHILE, &mut ticket).await.is_err());
    let made = links.made();
    links.refuse(false);
    timeout(PATIENCE, ticket).await.unwrap().unwrap();
    assert!(links.made() > made);
    links.delay(A_WHILE);
    let began = Instant::now();
    send(&producer, 2..3, 1).await;
    assert!(began.elapsed() >= 2 * A_WHILE, "each way takes so long");
    links.delay(Duration::ZERO);
    producer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn date_is_as_it_was_set_and_goes_on() {
    const DATE: i64 = 1_000_000_000_000;
    let cluster = TestBroker::builder().date(DATE).start().await.unwrap();
    let client = cluster.client();
    let producer = client.producer("t").build().await.unwrap();
    let store = async || {
        producer
            .send(Record::new("x"))
            .await
            .unwrap()
            .await
            .unwrap()
    };
    let first = store().await.append_time;
    assert!((DATE..DATE + 60_000).contains(&first), "{first}");
    tokio::time::sleep(A_WHILE).await;
    assert!(store().await.append_time >= first + 100);
    assert!(cluster.clock().now_ms() >= first);
    let none = TestBroker::builder().brokers(0).start().await;
    assert!(matches!(none, Err(StartError::Brokers { asked: 0 })));
}
