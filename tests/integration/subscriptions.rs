//! Take-overs, and subscriptions under kills, against the real server.

use std::collections::BTreeSet;
use std::time::Duration;

use hulse_sdk::numbers::{NumberChecker, NumberStamper};
use hulse_sdk::{
    Admin, Client, Producer, Reason, ReceivedRecord, Record, Start, SubscriptionConsumer,
    SubscriptionType,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tokio::time::timeout;

use super::proxy::Proxy;
use super::report::report;
use super::server::{Server, restarted};

const PORT: u16 = 17_520;
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn client(address: &str) -> Client {
    Client::builder(address).build().unwrap()
}

pub(super) async fn attach(client: &Client, topic: &str) -> SubscriptionConsumer {
    let builder = client.consumer(topic).subscription("s");
    let builder = builder.start(Start::Earliest);
    timeout(PATIENCE, builder.build()).await.unwrap().unwrap()
}

pub(super) async fn receive(consumer: &SubscriptionConsumer) -> ReceivedRecord {
    let received = timeout(PATIENCE, consumer.receive()).await;
    received.unwrap().unwrap().unwrap()
}

/// Sends records in one batch.
pub(super) async fn send_batch(client: &Client, topic: &str, records: u64) {
    let linger = Duration::from_millis(50);
    let producer = client.producer(topic).linger(linger).build().await.unwrap();
    let mut tickets = Vec::new();
    for number in 0..records {
        tickets.push(
            producer
                .send(Record::new(number.to_string()))
                .await
                .unwrap(),
        );
    }
    producer.close().await.unwrap();
    for ticket in tickets {
        ticket.await.unwrap();
    }
}

/// Sends numbers with pauses, so that sending lasts while things break.
async fn send_slowly(producer: Producer, records: u64) {
    for number in 0..records {
        drop(
            producer
                .send(Record::new(number.to_string()))
                .await
                .unwrap(),
        );
        if number % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    producer.close().await.unwrap();
}

pub(super) async fn backlog(admin: &Admin, topic: &str, name: &str) -> u64 {
    let (_, cursors) = admin
        .describe_subscription(name, topic, false)
        .await
        .unwrap();
    cursors
        .iter()
        .map(|cursor| cursor.state.as_ref().unwrap().backlog_records)
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_consumer_is_refused_unless_it_takes_over() {
    let server = Server::start(PORT + 10);
    let client = client(&server.address());
    client.admin().create_topic("one", 3).await.unwrap();
    send_batch(&client, "one", 5).await;
    let first = attach(&client, "one").await;
    let held = receive(&first).await;
    let refused = client
        .consumer("one")
        .subscription("s")
        .build()
        .await
        .unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::ConsumerExists), "{refused}");
    let other = client.consumer("one").subscription("s");
    let other = other
        .subscription_type(SubscriptionType::Failover)
        .build()
        .await
        .unwrap_err();
    assert_eq!(other.reason(), Some(Reason::SubscriptionExists), "{other}");
    let second = client
        .consumer("one")
        .subscription("s")
        .takeover(true)
        .build()
        .await
        .unwrap();
    let fenced = loop {
        if let Err(error) = timeout(PATIENCE, first.receive()).await.unwrap() {
            break error;
        }
    };
    assert!(fenced.is_fenced(), "{fenced}");
    assert!(first.ack(&held).await.unwrap_err().is_fenced());
    for _ in 0..5 {
        let record = receive(&second).await;
        second.ack(&record).await.unwrap();
    }
    let _ = first.close().await.unwrap();
    assert!(second.close().await.unwrap().is_empty());
    // The place is free again at once.
    assert!(
        attach(&client, "one")
            .await
            .close()
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_takes_the_partitions_of_a_consumer_that_goes() {
    const RECORDS: u64 = 2_000;
    let server = Server::start(PORT + 12);
    let client = client(&server.address());
    client.admin().create_topic("shared", 4).await.unwrap();
    let build = |name: &str| {
        let builder = client.consumer("shared").subscription("f").name(name);
        builder
            .subscription_type(SubscriptionType::Failover)
            .start(Start::Earliest)
            .build()
    };
    let first = build("a").await.unwrap();
    let second = build("b").await.unwrap();
    let producer = client.producer("shared").build().await.unwrap();
    for number in 0..RECORDS {
        let record = Record::new(number.to_string()).partition((number % 4) as u32);
        drop(producer.send(record).await.unwrap());
    }
    producer.close().await.unwrap();
    let (mut certain, mut seen) = (BTreeSet::new(), BTreeSet::new());
    // The first gets what it gets, acknowledges half of it, and is gone without a word.
    while let Ok(received) = timeout(PATIENCE, first.receive()).await {
        let record = received.unwrap().unwrap();
        seen.insert((record.partition, record.offset));
        if seen.len() % 2 == 0 {
            first.ack(&record).await.unwrap();
            certain.insert((record.partition, record.offset));
        }
        if seen.len() == 300 {
            break;
        }
    }
    assert!(seen.len() >= 300, "{}", seen.len());
    drop(first);
    while certain.len() < RECORDS as usize {
        let record = receive(&second).await;
        let place = (record.partition, record.offset);
        assert!(!certain.contains(&place), "{place:?} again");
        second.ack(&record).await.unwrap();
        certain.insert(place);
    }
    assert_eq!(second.active_partitions(), [0, 1, 2, 3]);
    assert!(second.close().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_and_cuts_neither_lose_a_record_nor_repeat_an_acknowledged_one() {
    const RECORDS: u64 = 20_000;
    let proxied = format!("127.0.0.1:{}", PORT + 16);
    let mut server = Server::start_with(PORT + 14, &[("HULSE_LISTEN__ADVERTISE", &proxied)]);
    let proxy = Proxy::start(&proxied, server.address()).await;
    let checker = NumberChecker::new();
    let client = Client::builder(&proxy.address)
        .interceptor(NumberStamper::new())
        .interceptor(checker.clone())
        .build()
        .unwrap();
    client.admin().create_topic("kills", 3).await.unwrap();
    let producer = client.producer("kills").build().await.unwrap();
    let sending = tokio::spawn(send_slowly(producer, RECORDS));
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut consumer = attach(&client, "kills").await;
    let mut certain = BTreeSet::new();
    let mut waiting = Vec::new();
    let (mut kills, mut lives) = (0, 1);
    while certain.len() < RECORDS as usize {
        if let Ok(received) = timeout(Duration::from_millis(100), consumer.receive()).await {
            let record = received.unwrap().unwrap();
            let place = (record.partition, record.offset);
            assert!(
                !certain.contains(&place),
                "{place:?} was acknowledged for certain"
            );
            waiting.push((place, consumer.ack(&record)));
            if waiting.len() < 200 {
                continue;
            }
        }
        for (place, acknowledgement) in waiting.drain(..) {
            timeout(PATIENCE, acknowledgement).await.unwrap().unwrap();
            certain.insert(place);
        }
        match random.random_range(0..12) {
            0 if kills < 5 => {
                kills += 1;
                server = restarted(server).await;
            }
            1 => proxy.cut(false),
            2 => {
                lives += 1;
                drop(consumer);
                let builder = client.consumer("kills").subscription("s").takeover(true);
                consumer = timeout(PATIENCE, builder.build()).await.unwrap().unwrap();
            }
            _ => {}
        }
    }
    sending.await.unwrap();
    assert!(consumer.close().await.unwrap().is_empty());
    assert_eq!(backlog(&client.admin(), "kills", "s").await, 0);
    let numbers = checker.report();
    assert!(numbers.is_clean(), "{numbers:?}");
    report(&format!(
        "records consumed through {kills} kills of the broker and {lives} lives of the consumer: {RECORDS}, of these {} delivered again",
        numbers.redelivered
    ));
}
