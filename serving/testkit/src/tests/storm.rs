//! F2 test 18: connections that break behind each of their first frames. Credits neither leak nor double, and no record is lost between
//! the old session and the new one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hulse_sdk::{Client, QueueConsumer, Start, SubscriptionConsumer};
use tokio_util::sync::CancellationToken;

use super::support::{PATIENCE, attached, cursor, number, send, share, until};
use crate::{Links, TestBroker, Way};

/// Frames behind which a connection breaks, each way.
const FRAMES: u64 = 40;
/// A connection that has not come so far by then is broken all the same.
const ROUND_MAX: Duration = Duration::from_millis(60);
/// Records before the storm and in it, and after it.
const RECORDS: u64 = 600;
/// What `share` lets wait.
const ROOM: u64 = 20;
/// Credit that doubled would be used by then.
const SETTLED: Duration = Duration::from_millis(300);

/// Breaks connections behind frame 1, 2, 3, … of each direction.
async fn storm(links: &Links) {
    for frames in 1..=FRAMES {
        for way in [Way::Up, Way::Down] {
            let before = links.cut_by_frames();
            links.cut_next(way, frames);
            links.cut_next(way, frames);
            links.cut();
            let broken = async {
                while links.cut_by_frames() < before + 2 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            // Some connections say less.
            let _ = tokio::time::timeout(ROUND_MAX, broken).await;
        }
    }
    while links.to_be_cut() > 0 {
        links.cut();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    links.cut();
    assert!(links.cut_by_frames() > FRAMES, "{}", links.cut_by_frames());
}

/// What has its receipt. None of it may come again.
type Acked = Arc<Mutex<BTreeSet<u64>>>;

async fn work(consumer: QueueConsumer, acked: Acked, stop: CancellationToken) {
    loop {
        let message = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            next = consumer.next() => next.unwrap().unwrap(),
        };
        let found = number(message.value.as_deref());
        assert!(
            !acked.lock().unwrap().contains(&found),
            "{found} was acked before"
        );
        if consumer.ack(&message).await.is_ok() {
            acked.lock().unwrap().insert(found);
        }
    }
}

async fn work_alone(consumer: SubscriptionConsumer, acked: Acked, stop: CancellationToken) {
    loop {
        let record = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            next = consumer.receive() => next.unwrap().unwrap(),
        };
        let found = number(record.value.as_deref());
        assert!(
            !acked.lock().unwrap().contains(&found),
            "{found} was acked before"
        );
        if consumer.ack(&record).await.is_ok() {
            acked.lock().unwrap().insert(found);
        }
    }
}

/// Sends through the storm, waits until all is acked.
async fn through_the_storm(cluster: &TestBroker, client: &Client, acked: &Acked) {
    let producer = client.producer("t").build().await.unwrap();
    let sending = async {
        send(&producer, 0..RECORDS, 7).await;
        producer.close().await.unwrap();
    };
    tokio::join!(sending, storm(cluster.links()));
    until("all is acked", async || {
        acked.lock().unwrap().len() as u64 == RECORDS
    })
    .await;
    let stored = cursor(client, "t").await.high_watermark.0;
    assert_eq!(stored, RECORDS, "nothing is stored twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_consumer_is_cut_at_every_frame_and_its_credit_is_whole() {
    let cluster = TestBroker::start().await.unwrap();
    let client = cluster.client();
    client.admin().create_topic("t", 1).await.unwrap();
    let consumer = share(&client, "t", "one", false).await;
    let (acked, stop) = (Acked::default(), CancellationToken::new());
    let working = tokio::spawn(work(consumer.clone(), acked.clone(), stop.clone()));
    through_the_storm(&cluster, &client, &acked).await;
    stop.cancel();
    working.await.unwrap();
    // Nobody takes anything now: the broker sends as much as may wait, and not one record more.
    let producer = client.producer("t").build().await.unwrap();
    send(&producer, RECORDS..RECORDS + 3 * ROOM, 7).await;
    let unacked = async || match attached(&client, "t").await {
        Some(consumer) => consumer.unacked_records,
        None => 0,
    };
    until("as much as may wait is sent", async || {
        unacked().await == ROOM
    })
    .await;
    tokio::time::sleep(SETTLED).await;
    assert_eq!(unacked().await, ROOM);
    let taken = consumer.receive(1_000, PATIENCE).await.unwrap();
    assert_eq!(taken.len() as u64, ROOM);
    until("what was taken gives its room back", async || {
        unacked().await == 2 * ROOM
    })
    .await;
    drop(taken);
    consumer.close().await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_consumer_is_cut_at_every_frame_and_its_credit_is_whole() {
    let cluster = TestBroker::start().await.unwrap();
    let client = cluster.client();
    client.admin().create_topic("t", 1).await.unwrap();
    let builder = client.consumer("t").subscription("s").takeover(true);
    let builder = builder
        .start(Start::Earliest)
        .receive_queue_records(ROOM as u32);
    let consumer = builder.build().await.unwrap();
    let (acked, stop) = (Acked::default(), CancellationToken::new());
    let working = tokio::spawn(work_alone(consumer.clone(), acked.clone(), stop.clone()));
    through_the_storm(&cluster, &client, &acked).await;
    stop.cancel();
    working.await.unwrap();
    let producer = client.producer("t").build().await.unwrap();
    send(&producer, RECORDS..RECORDS + 3 * ROOM, 7).await;
    let sent = async || match attached(&client, "t").await {
        Some(consumer) => consumer.sent_to.0,
        None => 0,
    };
    until("as much as may wait is sent", async || {
        sent().await == RECORDS + ROOM
    })
    .await;
    tokio::time::sleep(SETTLED).await;
    assert_eq!(sent().await, RECORDS + ROOM);
    for _ in 0..ROOM {
        let record = consumer.receive().await.unwrap().unwrap();
        drop(consumer.ack(&record));
    }
    // Room is given back by halves.
    until("what was taken gives its room back", async || {
        sent().await >= RECORDS + ROOM + ROOM / 2
    })
    .await;
    tokio::time::sleep(SETTLED).await;
    assert!(sent().await <= RECORDS + 2 * ROOM);
    for _ in ROOM..3 * ROOM {
        let record = consumer.receive().await.unwrap().unwrap();
        drop(consumer.ack(&record));
    }
    drop(consumer.close().await.unwrap());
    cluster.stop().await;
}
