//! Cases LD-01 and SU-07 against the real server: the first record behind a new subscription, and acks inside batches.

use std::collections::BTreeSet;
use std::time::Duration;

use hulse_sdk::{
    Admin, Client, CursorSelection, NewSubscription, Offset, ReceivedRecord, Start,
    SubscriptionConsumer,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tokio::time::timeout;

use super::proxy::Proxy;
use super::report::rounds;
use super::server::{Server, restarted};
use super::subscriptions::{PATIENCE, attach, backlog, client, receive, send_batch};

const PORT: u16 = 17_680;

/// Nothing more comes for a while.
async fn assert_silent(consumer: &SubscriptionConsumer) {
    let more = timeout(Duration::from_millis(300), consumer.receive()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_record_behind_a_new_subscription_is_delivered_after_a_hard_death() {
    let mut server = Server::start(PORT);
    let client = client(&server.address());
    let admin = client.admin();
    let all = ["latest", "by-offset", "by-seek", "by-time"];
    let alone = all.iter().map(std::slice::from_ref);
    let variants: Vec<&[&str]> = alone.chain([&all[..]]).collect();
    for round in 0..rounds(5, 100) {
        let names = variants[round % variants.len()];
        let topic = format!("first-{round}");
        admin.create_topic(&topic, 1).await.unwrap();
        send_batch(&client, &topic, 3).await;
        for name in names {
            let mut new = NewSubscription::new(*name, &topic);
            if *name == "by-offset" {
                new.start = Start::Offset(Offset(3));
            }
            assert!(admin.create_subscription(new).await.unwrap().1);
        }
        if names.contains(&"by-seek") {
            seek(&admin, &topic, "by-seek", Start::Earliest).await;
            seek(&admin, &topic, "by-seek", Start::Latest).await;
        }
        let dated = date_behind(&client, &topic).await;
        if names.contains(&"by-time") {
            seek(&admin, &topic, "by-time", Start::Earliest).await;
            seek(&admin, &topic, "by-time", Start::Time(dated - 1)).await;
        }
        for name in names {
            assert_eq!(backlog(&admin, &topic, name).await, 1, "{name} before");
        }
        server = match round % 2 {
            0 => restarted(server).await,
            _ => stopped_and_started(server).await,
        };
        for name in names {
            assert_eq!(backlog(&admin, &topic, name).await, 1, "{name} after");
            let consumer = client
                .consumer(&topic)
                .subscription(*name)
                .build()
                .await
                .unwrap();
            let record = receive(&consumer).await;
            assert_eq!(record.offset, Offset(3), "{name}, round {round}");
            consumer.ack(&record).await.unwrap();
            assert_silent(&consumer).await;
            assert!(consumer.close().await.unwrap().is_empty());
            assert_eq!(backlog(&admin, &topic, name).await, 0);
        }
        admin.delete_topic(&topic).await.unwrap();
    }
}

async fn seek(admin: &Admin, topic: &str, name: &str, to: Start) {
    let which = CursorSelection::new(name).topic(topic);
    let moved = admin.seek_subscription(&which, to, false).await.unwrap();
    assert!(moved[0].fault.is_none(), "{moved:?}");
}

/// Sends the record that must not be lost, later than all before it; its date.
async fn date_behind(client: &Client, topic: &str) -> i64 {
    // The clock must have moved on, or the records before it have the same date.
    tokio::time::sleep(Duration::from_millis(3)).await;
    send_batch(client, topic, 1).await;
    let reader = client.reader(topic).start(Start::Offset(Offset(3)));
    let mut reader = reader.build().await.unwrap();
    reader.next().await.unwrap().unwrap().timestamp
}

async fn stopped_and_started(mut server: Server) -> Server {
    let started = tokio::task::spawn_blocking(move || {
        assert!(server.stop().success());
        server.restart();
        server
    });
    started.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cumulative_ack_inside_a_batch_goes_on_at_the_next_record() {
    let server = Server::start(PORT + 2);
    let client = client(&server.address());
    for acked in [1, 4, 10] {
        let topic = format!("inside-{acked}");
        client.admin().create_topic(&topic, 1).await.unwrap();
        send_batch(&client, &topic, 10).await;
        send_batch(&client, &topic, 2).await;
        let consumer = attach(&client, &topic).await;
        for offset in 0..10 {
            let record = receive(&consumer).await;
            assert_eq!(record.offset, Offset(offset));
            if offset + 1 == acked {
                consumer.ack_cumulative(&record).await.unwrap();
            }
        }
        let open = consumer.close().await.unwrap();
        assert_eq!(open.len(), 10 - acked, "{open}");
        let again = attach(&client, &topic).await;
        assert_eq!(receive(&again).await.offset, Offset(acked));
        let _ = again.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn individual_acks_inside_a_batch_survive_the_death_of_the_owner() {
    let server = Server::start(PORT + 4);
    let client = client(&server.address());
    client.admin().create_topic("single", 1).await.unwrap();
    send_batch(&client, "single", 10).await;
    let consumer = attach(&client, "single").await;
    for offset in 0..10 {
        let record = receive(&consumer).await;
        if [2, 4, 6].contains(&offset) {
            consumer.ack(&record).await.unwrap();
        }
    }
    let server = restarted(server).await;
    // The same consumer goes on by itself.
    let expected = [0, 1, 3, 5, 7, 8, 9];
    for offset in expected {
        let record = receive(&consumer).await;
        assert_eq!((record.offset, record.redelivery), (Offset(offset), true));
        drop(consumer.ack(&record));
    }
    assert_silent(&consumer).await;
    assert!(consumer.close().await.unwrap().is_empty());
    assert_eq!(backlog(&client.admin(), "single", "s").await, 0);
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ack_that_was_handed_over_right_before_a_cut_is_neither_lost_nor_believed() {
    let proxied = format!("127.0.0.1:{}", PORT + 8);
    let server = Server::start_with(PORT + 6, &[("HULSE_LISTEN__ADVERTISE", &proxied)]);
    let proxy = Proxy::start(&proxied, server.address()).await;
    let client = client(&proxy.address);
    client.admin().create_topic("cut", 1).await.unwrap();
    send_batch(&client, "cut", 20).await;
    let consumer = attach(&client, "cut").await;
    let mut last = receive(&consumer).await;
    for _ in 0..9 {
        last = receive(&consumer).await;
    }
    proxy.stall(true);
    let acknowledgement = consumer.ack_cumulative(&last);
    tokio::time::sleep(Duration::from_millis(50)).await;
    proxy.cut(true);
    proxy.stall(false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.cut(false);
    timeout(PATIENCE, acknowledgement).await.unwrap().unwrap();
    for offset in 10..20 {
        let record = receive(&consumer).await;
        assert_eq!((record.offset, record.redelivery), (Offset(offset), false));
        consumer.ack(&record).await.unwrap();
    }
    assert!(consumer.close().await.unwrap().is_empty());
    assert_eq!(backlog(&client.admin(), "cut", "s").await, 0);
}

/// What a consumer has acknowledged for certain, by its own book.
#[derive(Default)]
struct Book {
    base: u64,
    acked: BTreeSet<u64>,
}

impl Book {
    fn is_acked(&self, offset: u64) -> bool {
        offset < self.base || self.acked.contains(&offset)
    }

    /// Acknowledges the record or all up to it, or does not.
    async fn acknowledge(
        &mut self,
        consumer: &SubscriptionConsumer,
        record: &ReceivedRecord,
        random: &mut ChaCha8Rng,
    ) {
        let acknowledgement = match random.random_range(0..12) {
            0 => {
                self.base = record.offset.0 + 1;
                consumer.ack_cumulative(record)
            }
            1..5 => {
                self.acked.insert(record.offset.0);
                consumer.ack(record)
            }
            _ => return,
        };
        timeout(PATIENCE, acknowledgement).await.unwrap().unwrap();
    }

    fn left(&self, end: u64) -> Vec<u64> {
        (0..end).filter(|offset| !self.is_acked(*offset)).collect()
    }
}

/// Acks of both kinds, anywhere inside batches of any size, over lives that end in every way: each next life gets exactly the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_life_of_a_consumer_gets_exactly_what_no_receipt_names() {
    let proxied = format!("127.0.0.1:{}", PORT + 12);
    let mut server = Server::start_with(PORT + 10, &[("HULSE_LISTEN__ADVERTISE", &proxied)]);
    let proxy = Proxy::start(&proxied, server.address()).await;
    let client = client(&proxy.address);
    let admin = client.admin();
    admin.create_topic("lives", 1).await.unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(4931);
    let (mut book, mut end) = (Book::default(), 0);
    for life in 0..rounds(12, 200) {
        for _ in 0..random.random_range(0..3) {
            let records = random.random_range(1..20);
            send_batch(&client, "lives", records).await;
            end += records;
        }
        let consumer = attach(&client, "lives").await;
        for offset in book.left(end) {
            let record = receive(&consumer).await;
            assert_eq!(
                (record.offset, record.redelivery),
                (Offset(offset), false),
                "life {life}"
            );
            book.acknowledge(&consumer, &record, &mut random).await;
        }
        assert_silent(&consumer).await;
        assert_eq!(
            backlog(&admin, "lives", "s").await,
            book.left(end).len() as u64
        );
        match random.random_range(0..4) {
            0 => {
                let open = consumer.close().await.unwrap();
                assert_eq!(open.len(), book.left(end).len() as u64, "{open}");
            }
            1 => drop(consumer),
            2 => {
                proxy.cut(false);
                drop(consumer);
            }
            _ => {
                server = restarted(server).await;
                drop(consumer);
            }
        }
    }
    let consumer = attach(&client, "lives").await;
    let mut last = None;
    for offset in book.left(end) {
        let record = receive(&consumer).await;
        assert_eq!(record.offset, Offset(offset));
        last = Some(record);
    }
    if let Some(last) = last {
        consumer.ack_cumulative(&last).await.unwrap();
    }
    assert!(consumer.close().await.unwrap().is_empty());
    assert_eq!(backlog(&admin, "lives", "s").await, 0);
    drop(server);
}
