//! Cases LD-04, LD-06, LD-07 and OR-03 of a producer's promises, against the real server.

use std::time::Duration;

use bytes::Bytes;
use hulse_proto::batch::{BatchBuilder, ProducerStamp, RecordRef};
use hulse_sdk::{Client, Compression, ProducerId, ProducerIdentity, Reason, raw};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::numbers::{check, read_all, send, settle};
use super::proxy::Proxy;
use super::report::{report, rounds};
use super::server::Server;

const PORT: u16 = 17_440;

fn client(address: &str) -> Client {
    Client::builder(address).build().unwrap()
}

/// A batch that holds these numbers, stamped or not.
fn batch(numbers: std::ops::Range<u64>, stamp: Option<ProducerStamp>) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None).unwrap();
    for number in numbers {
        let value = format!("{number:08}");
        let record = RecordRef {
            timestamp: 1,
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        };
        builder.push(&record).unwrap();
    }
    builder.build(stamp)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_batches_are_refused_whole_and_the_producer_goes_on_where_it_was() {
    let server = Server::start(PORT);
    let client = client(&server.address());
    client.admin().create_topic("overlap", 1).await.unwrap();
    let first = client.producer("overlap").build().await.unwrap();
    let identity = first.identity().await.unwrap().unwrap();
    let stamped = |from: u64, to: u64| {
        let sequence = i32::try_from(from - 1).unwrap();
        batch(
            from..to,
            Some(ProducerStamp {
                id: identity.id,
                epoch: identity.epoch,
                base_sequence: sequence,
            }),
        )
    };
    raw::send(&first, 0, stamped(1, 4), 3)
        .unwrap()
        .await
        .unwrap();
    first.close().await.unwrap();
    for (from, to, reason) in [
        (2, 6, Reason::SequenceOverlap),
        (5, 7, Reason::OutOfOrderSequence),
        (1, 5, Reason::SequenceOverlap),
        (8, 9, Reason::OutOfOrderSequence),
    ] {
        let again = client
            .producer("overlap")
            .resume(identity)
            .build()
            .await
            .unwrap();
        let refused = raw::send(&again, 0, stamped(from, to), 1)
            .unwrap()
            .await
            .unwrap_err();
        assert_eq!(refused.reason(), Some(reason), "{refused}");
        assert!(!refused.possibly_written(), "{refused}");
        let _failure_is_reported = again.close().await;
    }
    let again = client
        .producer("overlap")
        .resume(identity)
        .build()
        .await
        .unwrap();
    assert_eq!(again.last_sequence(0).await.unwrap(), 2);
    raw::send(&again, 0, stamped(4, 10), 6)
        .unwrap()
        .await
        .unwrap();
    let found: Vec<u64> = read_all(&client, "overlap")
        .await
        .into_iter()
        .map(|(_, number)| number)
        .collect();
    assert_eq!(found, (1..10).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_and_cuts_neither_lose_nor_double_nor_reorder() {
    const RECORDS: u64 = 200_000;
    const PARTITIONS: u32 = 6;
    let proxied = format!("127.0.0.1:{}", PORT + 4);
    // The server names the proxy in its look-ups, so that every link passes it.
    let mut server = Server::start_with(PORT + 2, &[("HULSE_LISTEN__ADVERTISE", &proxied)]);
    let proxy = Proxy::start(&proxied, server.address()).await;
    let client = client(&proxy.address);
    client
        .admin()
        .create_topic("cuts", PARTITIONS)
        .await
        .unwrap();
    let producer = client.producer("cuts").build().await.unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(6);
    let mut tickets = Vec::new();
    let (mut kill_at, mut cut_at) = (Vec::new(), Vec::new());
    kill_at.extend((0..6).map(|_| random.random_range(0..RECORDS)));
    cut_at.extend((0..4).map(|_| random.random_range(0..RECORDS)));
    for number in 0..RECORDS {
        let partition = (number % u64::from(PARTITIONS)) as u32;
        tickets.push((
            number,
            send(&producer, number, 100, Some(partition)).await.unwrap(),
        ));
        if number % 400 == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if kill_at.contains(&number) {
            server = tokio::task::spawn_blocking(move || {
                server.kill();
                server.restart();
                server
            })
            .await
            .unwrap();
        }
        if cut_at.contains(&number) {
            proxy.stall(true);
            tokio::time::sleep(Duration::from_millis(50)).await;
            proxy.cut(true);
            proxy.stall(false);
            tokio::time::sleep(Duration::from_millis(300)).await;
            proxy.cut(false);
        }
    }
    producer.close().await.unwrap();
    let (acknowledged, failed) = settle(tickets).await;
    assert!(
        failed.is_empty(),
        "{} failed, e.g. {:?}",
        failed.len(),
        failed.first_key_value()
    );
    check(
        &acknowledged,
        &failed,
        &read_all(&client, "cuts").await,
        true,
    );
    report(&format!("records through kills and cuts: {RECORDS}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_the_last_five_batches_is_answered_with_its_first_offset_after_a_take_over() {
    let mut server = Server::start(PORT + 6);
    let client = client(&server.address());
    client.admin().create_topic("window", 1).await.unwrap();
    let first = client.producer("window").build().await.unwrap();
    let identity = first.identity().await.unwrap().unwrap();
    let one = |number: u64| {
        let base_sequence = i32::try_from(number).unwrap();
        batch(
            number..number + 1,
            Some(ProducerStamp {
                id: identity.id,
                epoch: identity.epoch,
                base_sequence,
            }),
        )
    };
    for number in 0..6 {
        raw::send(&first, 0, one(number), 1).unwrap().await.unwrap();
    }
    first.close().await.unwrap();
    server.kill();
    server.restart();
    for number in 1..6 {
        let again = client
            .producer("window")
            .resume(identity)
            .build()
            .await
            .unwrap();
        let receipt = raw::send(&again, 0, one(number), 1).unwrap().await.unwrap();
        assert_eq!(
            (receipt.offset.unwrap().0, receipt.duplicate),
            (number, true)
        );
        again.close().await.unwrap();
    }
    let again = client
        .producer("window")
        .resume(identity)
        .build()
        .await
        .unwrap();
    let refused = raw::send(&again, 0, one(0), 1).unwrap().await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::SequenceOverlap));
    assert_eq!(read_all(&client, "window").await.len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_that_slept_longer_than_its_state_goes_on() {
    let mut server = Server::start_with(PORT + 8, &[("HULSE_BROKER__PRODUCER_EXPIRY", "2s")]);
    let client = client(&server.address());
    client.admin().create_topic("sleepy", 1).await.unwrap();
    let producer = client.producer("sleepy").build().await.unwrap();
    let mut tickets = Vec::new();
    for group in 0..3 {
        if group > 0 {
            // The expiry is the thing under test: time itself must pass.
            tokio::time::sleep(Duration::from_secs(3)).await;
            let waker = client.producer("sleepy").build().await.unwrap();
            send(&waker, 1_000 + group, 8, None)
                .await
                .unwrap()
                .await
                .unwrap();
            waker.close().await.unwrap();
        }
        if group == 2 {
            server.kill();
            server.restart();
        }
        for number in group * 10..group * 10 + 10 {
            tickets.push((number, send(&producer, number, 8, None).await.unwrap()));
        }
    }
    let (acknowledged, failed) = settle(tickets).await;
    assert!(failed.is_empty(), "{failed:?}");
    let mut found = read_all(&client, "sleepy").await;
    found.retain(|(_, number)| *number < 1_000);
    let numbers: Vec<u64> = found.iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, (0..30).collect::<Vec<_>>());
    assert_eq!(acknowledged.len(), 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_batches_of_uneven_size_keep_the_order_of_sending() {
    let server = Server::start(PORT + 10);
    let client = client(&server.address());
    for round in 0..rounds(5, 20) {
        let topic = format!("pipelined-{round}");
        // No broker has loaded it: the first batches wait for the partition to be opened.
        client.admin().create_topic(&topic, 1).await.unwrap();
        let producer = client
            .producer(&topic)
            .idempotent(false)
            .build()
            .await
            .unwrap();
        let (mut tickets, mut number) = (Vec::new(), 0);
        while number < 10_000 {
            let size = if tickets.len() % 2 == 0 { 9 } else { 1 };
            tickets.push(
                raw::send(
                    &producer,
                    0,
                    batch(number..number + size, None),
                    size as u32,
                )
                .unwrap(),
            );
            number += size;
        }
        for ticket in tickets {
            ticket.await.unwrap();
        }
        let found: Vec<u64> = read_all(&client, &topic)
            .await
            .into_iter()
            .map(|(_, number)| number)
            .collect();
        assert_eq!(found, (0..number).collect::<Vec<_>>());
    }
    let identity = ProducerIdentity {
        id: ProducerId(-1),
        epoch: 0,
    };
    assert!(
        client
            .producer("pipelined-0")
            .resume(identity)
            .build()
            .await
            .is_err()
    );
}
