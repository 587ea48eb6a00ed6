//! The delivery modes by name: clients and brokers are killed, and the numbers stamped at send are counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hulse_sdk::numbers::{NumberCheck, NumberReport, NumberStamper};
use hulse_sdk::{Client, DeliveryMode, Record, Start};
use tokio::runtime::{Builder, Runtime};

use super::report::report;
use super::server::Server;

const PORT: u16 = 17_560;
const RECORDS: u64 = 20_000;
/// Lives of the consumer.
const LIVES: usize = 6;
const BATCH_RECORDS: usize = 100;
/// Each death of a consumer may cost so many.
const LOST_MAX: usize = LIVES * 2 * BATCH_RECORDS;
/// Ends a wait that would not end.
const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// By place: how often it was handed over.
type HandedOver = Arc<Mutex<BTreeMap<(u32, u64), usize>>>;

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Sends numbered records in `mode` while the broker is killed twice. How many `send` took, and how many tickets failed.
fn produce(server: &mut Server, topic: &str, mode: DeliveryMode) -> (u64, u64) {
    let runtime = runtime();
    let stamper = NumberStamper::new();
    let client = Client::builder(server.address())
        .interceptor(stamper.clone())
        .build()
        .unwrap();
    let producer = runtime.block_on(async {
        client.admin().create_topic(topic, 2).await.unwrap();
        let builder = client.producer(topic).delivery_mode(mode);
        builder
            .max_bytes(100 * BATCH_RECORDS)
            .build()
            .await
            .unwrap()
    });
    for number in 0..RECORDS {
        let record = Record::new(format!("{number:080}"));
        let ticket = runtime.block_on(producer.send(record)).unwrap();
        drop(ticket);
        if number == RECORDS / 3 || number == 2 * RECORDS / 3 {
            server.kill();
            server.restart();
        }
        if number % 200 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    // With acks none a lost record is no failure.
    let closed = runtime.block_on(producer.close());
    assert!(closed.is_ok(), "{closed:?}");
    (RECORDS, stamper.failed_records())
}

/// What is stored, as its numbers tell.
fn stored(server: &Server, topic: &str) -> NumberReport {
    runtime().block_on(async {
        let client = Client::builder(server.address()).build().unwrap();
        let reader = client.reader(topic).start(Start::Earliest).follow(false);
        let mut reader = reader.build().await.unwrap();
        let mut check = NumberCheck::new();
        while let Some(record) = reader.next().await.unwrap() {
            check.check(&record);
        }
        check.report()
    })
}

/// Lives of a consumer that are each cut off in the middle; the last one reads on until it has `least` and nothing more comes. The
/// broker is killed twice.
fn consume(server: &mut Server, topic: &str, mode: DeliveryMode, least: usize) -> HandedOver {
    let handed = HandedOver::default();
    for life in 0..LIVES {
        let runtime = runtime();
        let (address, topic) = (server.address(), topic.to_owned());
        let count = Arc::clone(&handed);
        let consuming = runtime.spawn(async move {
            let client = Client::builder(address).build().unwrap();
            let builder = client
                .consumer(&topic)
                .subscription("s")
                .start(Start::Earliest);
            let builder = builder
                .delivery_mode(mode)
                .takeover(true)
                .receive_queue_records(500);
            let consumer = builder.build().await.unwrap();
            while let Some(record) = consumer.receive().await.unwrap() {
                let place = (record.partition, record.offset.0);
                *count.lock().unwrap().entry(place).or_default() += 1;
                tokio::task::yield_now().await;
                drop(consumer.ack(&record));
            }
        });
        let last = life + 1 == LIVES;
        if last {
            wait_for_silence(&handed, least);
        } else {
            std::thread::sleep(Duration::from_millis(120));
        }
        if life == 1 || life == 3 {
            server.kill();
            server.restart();
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(!consuming.is_finished(), "the consumer met an error");
        // Without a word to anybody: tasks and sockets are gone.
        runtime.shutdown_background();
    }
    handed
}

/// A slow machine may be silent for a while in the middle.
fn wait_for_silence(handed: &HandedOver, least: usize) {
    let (begun, mut before) = (Instant::now(), usize::MAX);
    let count = || handed.lock().unwrap().values().sum::<usize>();
    let misses = || handed.lock().unwrap().len() < least && begun.elapsed() < ENDS_WITHIN;
    while before != count() || misses() {
        before = count();
        std::thread::sleep(Duration::from_secs(2));
    }
}

#[test]
fn at_least_once_loses_nothing_when_clients_and_brokers_are_killed() {
    let mut server = Server::start(PORT);
    let (sent, failed) = produce(&mut server, "least", DeliveryMode::AtLeastOnce);
    let numbers = stored(&server, "least");
    assert_eq!(failed, 0);
    assert_eq!((numbers.records, numbers.streams), (sent, 2), "{numbers:?}");
    assert!(numbers.is_clean(), "{numbers:?}");
    let handed = consume(
        &mut server,
        "least",
        DeliveryMode::AtLeastOnce,
        sent as usize,
    );
    let handed = handed.lock().unwrap();
    assert_eq!(handed.len() as u64, sent, "every record was handed over");
    let again = handed.values().filter(|times| **times > 1).count();
    report(&format!(
        "at_least_once: {sent} sent, 0 lost, {again} handed over again"
    ));
}

#[test]
fn at_most_once_hands_nothing_over_twice_when_clients_and_brokers_are_killed() {
    let mut server = Server::start(PORT + 2);
    let (sent, _) = produce(&mut server, "most", DeliveryMode::AtMostOnce);
    let numbers = stored(&server, "most");
    let twice = numbers.duplicates + numbers.out_of_order;
    assert_eq!((twice, numbers.malformed), (0, 0), "{numbers:?}");
    // Two kills cost what was on its way, not everything.
    assert!(numbers.records > sent / 4, "{numbers:?}");
    let least = (numbers.records as usize).saturating_sub(LOST_MAX);
    let handed = consume(&mut server, "most", DeliveryMode::AtMostOnce, least);
    let handed = handed.lock().unwrap();
    let twice: Vec<_> = handed.iter().filter(|(_, times)| **times > 1).collect();
    assert!(
        twice.is_empty(),
        "{} twice, e.g. {:?}",
        twice.len(),
        twice[0]
    );
    // Each death of the consumer costs at most the batch that it had open.
    let lost = numbers.records as usize - handed.len();
    assert!(lost <= LOST_MAX, "{lost} lost of {}", numbers.records);
    report(&format!(
        "at_most_once: {sent} sent, {} stored, none twice; {lost} lost by {LIVES} deaths of the consumer",
        numbers.records
    ));
}
