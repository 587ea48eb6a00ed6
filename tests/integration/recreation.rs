//! A topic is deleted and made again under running producers, readers and consumers: nothing of the old one is ever taken for the new
//! one's, nobody hangs, and everything that the last one acknowledged is there and is delivered (serving.md A58).

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hulse_sdk::{Client, Error, ReadRecord, Start};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::numbers::{Counting, Place, read_all, send};
use super::report::{report, rounds};
use super::server::Server;

const PORT: u16 = 17_586;
const TOPIC: &str = "again";
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two records.
const PAUSE: Duration = Duration::from_millis(1);

/// What the tasks share.
struct Run {
    address: String,
    over: AtomicBool,
    /// The number that is sent next.
    next: AtomicU64,
    /// What became of those that are settled.
    acknowledged: Mutex<BTreeMap<u64, Place>>,
    /// Why tickets, readers and consumers failed, and how often.
    reasons: Mutex<BTreeMap<String, u64>>,
    /// What the reader and the consumer got since they began last, by number.
    read: Mutex<BTreeSet<u64>>,
    consumed: Mutex<BTreeSet<u64>>,
}

impl Run {
    fn client(&self) -> Client {
        Client::builder(&self.address).build().unwrap()
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn failed(&self, who: &str, error: &Error) {
        let reason = error
            .reason()
            .map_or_else(|| error.to_string(), |reason| reason.as_str().to_owned());
        let mut reasons = self.reasons.lock().unwrap();
        *reasons.entry(format!("{who}: {reason}")).or_default() += 1;
    }

    fn acknowledged_now(&self) -> BTreeSet<u64> {
        self.acknowledged.lock().unwrap().keys().copied().collect()
    }
}

/// Sends numbers until the run is over; a producer that is finished is made anew, as an application would do it.
async fn produce(run: Arc<Run>) {
    let (settle, mut tickets) = mpsc::unbounded_channel();
    let settling = tokio::spawn({
        let run = run.clone();
        async move {
            while let Some((number, ticket)) = tickets.recv().await {
                let ticket: hulse_sdk::Ticket = ticket;
                match timeout(PATIENCE, ticket).await.expect("a record hangs") {
                    Ok(receipt) => {
                        let place = (receipt.partition, receipt.offset.unwrap().0);
                        run.acknowledged.lock().unwrap().insert(number, place);
                    }
                    Err(error) => run.failed("record", &error),
                }
            }
        }
    });
    while !run.is_over() {
        let building = run.client().producer(TOPIC).build();
        let producer = match timeout(PATIENCE, building).await.expect("a producer hangs") {
            Ok(producer) => producer,
            Err(error) => {
                run.failed("producer", &error);
                sleep(PAUSE).await;
                continue;
            }
        };
        while !run.is_over() {
            let number = run.next.fetch_add(1, Ordering::SeqCst);
            match timeout(PATIENCE, send(&producer, number, 8, None))
                .await
                .expect("a send hangs")
            {
                Ok(ticket) => settle.send((number, ticket)).unwrap(),
                Err(error) => {
                    run.failed("send", &error);
                    break;
                }
            }
            sleep(PAUSE).await;
        }
        let _each_ticket_tells = timeout(PATIENCE, producer.close())
            .await
            .expect("a close hangs");
    }
    drop(settle);
    settling.await.unwrap();
}

/// Takes a record in: within one life offsets have no hole, so that no beginning of a new topic is passed over.
fn take(seen: &Mutex<BTreeSet<u64>>, before: &mut BTreeMap<u32, u64>, record: &ReadRecord) {
    let text = String::from_utf8(record.value.clone().unwrap().to_vec()).unwrap();
    let expected = before.get(&record.partition).map_or(0, |offset| offset + 1);
    assert_eq!(record.offset.0, expected, "a hole before {text}");
    before.insert(record.partition, record.offset.0);
    seen.lock().unwrap().insert(text.parse().unwrap());
}

async fn read(run: Arc<Run>) {
    while !run.is_over() {
        let builder = run.client().reader(TOPIC).start(Start::Earliest);
        let mut reader = match timeout(PATIENCE, builder.build())
            .await
            .expect("a reader hangs")
        {
            Ok(reader) => reader,
            Err(error) => {
                run.failed("reader", &error);
                sleep(PAUSE).await;
                continue;
            }
        };
        run.read.lock().unwrap().clear();
        let mut before = BTreeMap::new();
        loop {
            match reader.next().await {
                Ok(record) => take(
                    &run.read,
                    &mut before,
                    &record.expect("a follower has no end"),
                ),
                Err(error) => {
                    run.failed("reader", &error);
                    break;
                }
            }
        }
    }
}

async fn consume(run: Arc<Run>) {
    while !run.is_over() {
        let client = run.client();
        let builder = client.consumer(TOPIC).subscription("s").takeover(true);
        let builder = builder.start(Start::Earliest);
        let consumer = match timeout(PATIENCE, builder.build())
            .await
            .expect("a consumer hangs")
        {
            Ok(consumer) => consumer,
            Err(error) => {
                run.failed("consumer", &error);
                sleep(PAUSE).await;
                continue;
            }
        };
        run.consumed.lock().unwrap().clear();
        loop {
            match consumer.receive().await {
                Ok(record) => {
                    let record = record.expect("it is not closed");
                    let text = String::from_utf8(record.value.clone().unwrap().to_vec()).unwrap();
                    run.consumed.lock().unwrap().insert(text.parse().unwrap());
                    drop(consumer.ack(&record));
                }
                Err(error) => {
                    run.failed("consumer", &error);
                    break;
                }
            }
        }
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topic_made_again_under_running_clients_has_nothing_of_the_old_one() {
    let server = Server::start_with(PORT, &[("HULSE_BROKER__DEFAULT_PARTITIONS", "2")]);
    let run = Arc::new(Run {
        address: server.address(),
        over: AtomicBool::new(false),
        next: AtomicU64::new(0),
        acknowledged: Mutex::default(),
        reasons: Mutex::default(),
        read: Mutex::default(),
        consumed: Mutex::default(),
    });
    let admin = run.client().admin();
    admin.create_topic(TOPIC, 2).await.unwrap();
    let producing = tokio::spawn(produce(run.clone()));
    let watching = [
        tokio::spawn(read(run.clone())),
        tokio::spawn(consume(run.clone())),
    ];
    let (mut sure, mut old) = (0, BTreeSet::new());
    for round in 0..rounds(4, 40) {
        let acknowledged = run.acknowledged_now().len();
        until("records flow", || {
            run.acknowledged_now().len() > acknowledged + 200
        })
        .await;
        timeout(PATIENCE, admin.delete_topic(TOPIC))
            .await
            .unwrap()
            .unwrap();
        // Producers that run wait for it; either we or a new one makes it again.
        old = run.acknowledged_now();
        if round % 2 == 0 {
            admin.create_topic(TOPIC, 2).await.unwrap();
        } else {
            let new = run.client().producer(TOPIC).build().await.unwrap();
            new.close().await.unwrap();
        }
        sure = run.next.load(Ordering::SeqCst);
    }
    let flowing = run.acknowledged_now().len();
    until("records flow", || {
        run.acknowledged_now().len() > flowing + 200
    })
    .await;
    run.over.store(true, Ordering::Relaxed);
    producing.await.unwrap();
    judge(&run, &old, sure).await;
    for task in watching {
        assert!(!task.is_finished(), "a reader or consumer died");
        task.abort();
    }
    assert!(!server.log().contains("panicked"), "{}", server.log());
    for (reason, times) in run.reasons.lock().unwrap().iter() {
        report(&format!("recreated: {reason}: {times}"));
    }
}

/// The last topic has nothing that one before it acknowledged by then, all that it acknowledged from `sure` on, and readers have got it.
async fn judge(run: &Run, old: &BTreeSet<u64>, sure: u64) {
    let acknowledged = run.acknowledged.lock().unwrap().clone();
    let found = read_all(&run.client(), TOPIC).await;
    let places: BTreeMap<u64, Place> = found
        .iter()
        .map(|(place, number)| (*number, *place))
        .collect();
    assert_eq!(places.len(), found.len(), "DUP");
    let ghosts: Vec<_> = places
        .keys()
        .filter(|number| old.contains(number))
        .collect();
    assert!(
        ghosts.is_empty(),
        "{ghosts:?} were acknowledged by the topic before"
    );
    for (number, place) in acknowledged.range(sure..) {
        assert_eq!(places.get(number), Some(place), "LOST: {number}");
    }
    let wanted: BTreeSet<u64> = places.into_keys().collect();
    until("the reader has all", || {
        run.read.lock().unwrap().is_superset(&wanted)
    })
    .await;
    until("the consumer has all", || {
        run.consumed.lock().unwrap().is_superset(&wanted)
    })
    .await;
}

/// Kafka's consumers know no identity of a topic at this version: one that follows begins anew where its offset is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_of_kafka_python_reads_the_topic_that_was_made_again() {
    let Some(python) = std::env::var_os("HULSE_TEST_PYTHON") else {
        report(
            "NOT RUN: kafka-python on a topic made again: HULSE_TEST_PYTHON is not set, tests/run sets it",
        );
        return;
    };
    let kafka = format!("127.0.0.1:{}", PORT + 4);
    let server = Server::start_with(PORT + 2, &[("HULSE_LISTEN__KAFKA", &kafka)]);
    let client = Client::builder(server.address()).build().unwrap();
    let mut first = Counting::begin(&client, TOPIC).await;
    first.send_many(50, 8).await;
    first.finish().await;
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/integration/kafka_consumer.py"
    );
    let output = tempfile::NamedTempFile::new().unwrap();
    let mut consumer = Command::new(python)
        .args([script, &kafka, TOPIC])
        .stdin(Stdio::piped())
        .stdout(output.reopen().unwrap())
        .spawn()
        .unwrap();
    let lines = || std::fs::read_to_string(output.path()).unwrap();
    let line = |offset: u64, number: u64| format!("{offset} {number:08}\n");
    let old: String = (0..50).map(|number| line(number, number)).collect();
    until("the first topic is read", || lines() == old).await;
    client.admin().delete_topic(TOPIC).await.unwrap();
    let mut second = Counting::begin(&client, TOPIC).await;
    second.next = 1_000;
    second.send_many(10, 8).await;
    second.finish().await;
    let new: String = (0..10).map(|offset| line(offset, 1_000 + offset)).collect();
    until("the second topic is read", || {
        lines() == format!("{old}{new}")
    })
    .await;
    drop(consumer.stdin.take());
    assert!(consumer.wait().unwrap().success());
}
