//! Shared subscriptions against the real server: work that is done once, over a kill, by several consumers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hulse_sdk::{Client, QueueConsumer, QueueMessage, Record, Start};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::server::{Server, restarted};
use super::subscriptions::{PATIENCE, backlog, client, send_batch};

const PORT: u16 = 19_500;

async fn share(client: &Client, topic: &str, name: &str) -> QueueConsumer {
    let builder = client.queue_consumer(topic).subscription("s").name(name);
    let builder = builder.start(Start::Earliest).receive_queue_records(200);
    timeout(PATIENCE, builder.build()).await.unwrap().unwrap()
}

async fn next(consumer: &QueueConsumer) -> QueueMessage {
    let next = timeout(PATIENCE, consumer.next()).await;
    next.unwrap().unwrap().unwrap()
}

fn place(message: &QueueMessage) -> (u32, u64) {
    (message.partition, message.offset.0)
}

/// What was handed out, and what has its receipt.
#[derive(Default)]
struct Seen {
    handed: BTreeMap<(u32, u64), u32>,
    receipted: BTreeSet<(u32, u64)>,
}

/// Acks each record by itself, waits for the receipt, and checks that no acked one comes.
async fn work(consumer: QueueConsumer, seen: Arc<Mutex<Seen>>) {
    while let Some(message) = consumer.next().await.unwrap() {
        let at = place(&message);
        {
            let mut seen = seen.lock().unwrap();
            assert!(!seen.receipted.contains(&at), "{at:?} was acked before");
            *seen.handed.entry(at).or_default() += 1;
        }
        // One that is another's by now comes again.
        if consumer.ack(&message).await.is_ok() {
            seen.lock().unwrap().receipted.insert(at);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_consumers_share_all_records_over_a_kill_and_no_acked_one_comes_again() {
    const RECORDS: u64 = 4_000;
    let server = Server::start(PORT);
    let client = client(&server.address());
    client.admin().create_topic("jobs", 3).await.unwrap();
    send_batch(&client, "jobs", RECORDS / 2).await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (one, two) = (
        share(&client, "jobs", "one").await,
        share(&client, "jobs", "two").await,
    );
    let tasks: Vec<_> = [one.clone(), two.clone()]
        .into_iter()
        .map(|consumer| tokio::spawn(work(consumer, seen.clone())))
        .collect();
    let receipted = || seen.lock().unwrap().receipted.len() as u64;
    while receipted() < RECORDS / 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut server = restarted(server).await;
    send_batch(&client, "jobs", RECORDS / 2).await;
    timeout(PATIENCE, async {
        while receipted() < RECORDS {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{} of {RECORDS} are acked", receipted()));
    assert_eq!(backlog(&client.admin(), "jobs", "s").await, 0);
    one.close().await.unwrap();
    two.close().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.handed.len() as u64, RECORDS);
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_are_returned_come_again_when_they_may_and_to_whom_is_there() {
    let server = Server::start(PORT + 2);
    let client = client(&server.address());
    client.admin().create_topic("jobs", 1).await.unwrap();
    send_batch(&client, "jobs", 3).await;
    let one = share(&client, "jobs", "one").await;
    let first = next(&one).await;
    assert_eq!((first.offset.0, first.delivery_count()), (0, 1));
    let began = tokio::time::Instant::now();
    one.nack_after(&first, Duration::from_millis(500))
        .await
        .unwrap();
    let (second, third) = (next(&one).await, next(&one).await);
    one.ack(&second).await.unwrap();
    one.release(&third).await.unwrap();
    let again = next(&one).await;
    assert_eq!((again.offset.0, again.delivery_count()), (2, 2));
    let failed = next(&one).await;
    assert_eq!((failed.offset.0, failed.delivery_count()), (0, 2));
    assert!(began.elapsed() >= Duration::from_millis(500));
    let twice = one.ack(&first).await;
    assert!(twice.is_err(), "it has an answer already");
    // What a consumer has when it closes is another's at once, and that counts for nothing.
    one.close().await.unwrap();
    let two = share(&client, "jobs", "two").await;
    let left: BTreeSet<u64> = [next(&two).await, next(&two).await]
        .map(|message| message.offset.0)
        .into();
    assert_eq!(left, BTreeSet::from([0, 2]));
    two.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_takes_records_side_by_side_and_the_command_line_takes_the_rest() {
    let server = Server::start(PORT + 4);
    let client = client(&server.address());
    client.admin().create_topic("jobs", 2).await.unwrap();
    send_batch(&client, "jobs", 100).await;
    let consumer = share(&client, "jobs", "one").await;
    let running = Arc::new(Mutex::new((0_usize, 0_usize, 0_usize)));
    let handled = running.clone();
    let handling = tokio::spawn({
        let consumer = consumer.clone();
        async move {
            let handler = |message: Arc<QueueMessage>| {
                let running = handled.clone();
                async move {
                    {
                        let mut all = running.lock().unwrap();
                        all.0 += 1;
                        all.1 = all.1.max(all.0);
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    let mut all = running.lock().unwrap();
                    all.0 -= 1;
                    all.2 += 1;
                    match message.delivery_count() {
                        1 if message.offset.0.is_multiple_of(10) => {
                            Err("the first time never works")
                        }
                        _ => Ok(()),
                    }
                }
            };
            consumer.handle(8, handler).await
        }
    });
    timeout(PATIENCE, async {
        while backlog(&client.admin(), "jobs", "s").await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    consumer.close().await.unwrap();
    handling.await.unwrap().unwrap();
    let (_, most, handled) = *running.lock().unwrap();
    assert!((2..=8).contains(&most), "{most} at a time");
    assert_eq!(handled, 110, "each tenth twice");
    send_batch(&client, "jobs", 20).await;
    let consumed = server.hulse(&["consume", "jobs", "-s", "s", "--type", "queue", "-e"], "");
    let text = String::from_utf8_lossy(&consumed.stdout).into_owned();
    let lines: BTreeSet<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(lines, (0..20).collect::<BTreeSet<u64>>());
    assert_eq!(backlog(&client.admin(), "jobs", "s").await, 0);
}

/// Each tenth can never be processed.
fn is_poison(message: &QueueMessage) -> bool {
    let value = message.value.as_ref().unwrap();
    let number: u64 = std::str::from_utf8(value).unwrap().parse().unwrap();
    number.is_multiple_of(10)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_is_a_dead_letter_once_over_a_kill_and_no_other_record_is() {
    let server = Server::start(PORT + 6);
    let client = client(&server.address());
    client.admin().create_topic("jobs", 2).await.unwrap();
    let made = server.hulse(
        &[
            "subs",
            "create",
            "jobs",
            "s",
            "--type",
            "queue",
            "--from",
            "start",
            "--max-attempts",
            "3",
            "--dead-letter-topic",
            "graves",
        ],
        "",
    );
    assert!(made.status.success(), "{made:?}");
    send_batch(&client, "jobs", 200).await;
    let consumer = share(&client, "jobs", "one").await;
    let handling = tokio::spawn({
        let consumer = consumer.clone();
        async move {
            let handler = |message: Arc<QueueMessage>| async move {
                match is_poison(&message) {
                    true => Err("poison"),
                    false => Ok(()),
                }
            };
            consumer.handle(4, handler).await
        }
    });
    tokio::time::sleep(Duration::from_millis(150)).await;
    let mut server = restarted(server).await;
    timeout(PATIENCE, async {
        while backlog(&client.admin(), "jobs", "s").await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    consumer.close().await.unwrap();
    handling.await.unwrap().unwrap();
    let graves = server.hulse(
        &["consume", "graves", "-o", "start", "-e", "--output", "json"],
        "",
    );
    let text = String::from_utf8_lossy(&graves.stdout).into_owned();
    let letters: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let values: Vec<u64> = letters
        .iter()
        .map(|letter| letter["value"].as_str().unwrap().parse().unwrap())
        .collect();
    let once: BTreeSet<u64> = values.iter().copied().collect();
    assert_eq!(once, (0..200).step_by(10).collect::<BTreeSet<u64>>());
    assert_eq!(values.len(), once.len(), "each once");
    assert!(
        text.contains("hulse.dead-letter.offset") && text.contains("failed"),
        "{text}"
    );
    server.stop();
}

/// Who has records of which key now, and which were handed out first.
#[derive(Default)]
struct Keys {
    held: BTreeMap<String, (String, u64)>,
    last: BTreeMap<String, u64>,
    acked: u64,
}

/// Case OR-01: while consumers come and go, a key is at one of them, and its records come in order.
async fn work_by_key(consumer: QueueConsumer, keys: Arc<Mutex<Keys>>, stop: CancellationToken) {
    loop {
        let message = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            next = consumer.next() => next.unwrap().unwrap(),
        };
        let key = String::from_utf8(message.key.clone().unwrap().to_vec()).unwrap();
        let me = consumer.name().to_owned();
        {
            let mut keys = keys.lock().unwrap();
            let held = keys.held.entry(key.clone()).or_insert((me.clone(), 0));
            assert_eq!(held.0, me, "{key} is at two consumers");
            held.1 += 1;
            if message.delivery_count() == 1 {
                let last = keys.last.insert(key.clone(), message.offset.0);
                assert!(
                    last.is_none_or(|last| last < message.offset.0),
                    "{key} out of order"
                );
            }
        }
        tokio::time::sleep(Duration::from_micros(300)).await;
        {
            // Before the ack: the next consumer of the key may hear of it before this one hears that it is durable.
            let mut keys = keys.lock().unwrap();
            let held = keys.held.get_mut(&key).unwrap();
            held.1 -= 1;
            if held.1 == 0 {
                keys.held.remove(&key);
            }
        }
        if consumer.ack(&message).await.is_ok() {
            keys.lock().unwrap().acked += 1;
        }
    }
    // What it was given and has not begun with goes on to the others.
    consumer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_stay_at_one_consumer_and_in_order_while_consumers_come_and_go() {
    const RECORDS: u64 = 3_000;
    let server = Server::start(PORT + 8);
    let client = client(&server.address());
    client.admin().create_topic("jobs", 1).await.unwrap();
    let producer = client.producer("jobs").build().await.unwrap();
    for number in 0..RECORDS {
        let record = Record::new(number.to_string()).key(format!("k{}", number % 40));
        drop(producer.send(record).await.unwrap());
    }
    producer.close().await.unwrap();
    let keys = Arc::new(Mutex::new(Keys::default()));
    let begin = async |name: &str| {
        let builder = client.queue_consumer("jobs").subscription("s").name(name);
        let builder = builder.keyed(true).start(Start::Earliest);
        builder.receive_queue_records(50).build().await.unwrap()
    };
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        let consumer = begin(name).await;
        let stop = CancellationToken::new();
        let task = work_by_key(consumer, keys.clone(), stop.clone());
        all.push((stop, tokio::spawn(task)));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (stop, task) = all.remove(0);
    stop.cancel();
    task.await.unwrap();
    timeout(PATIENCE, async {
        while backlog(&client.admin(), "jobs", "s").await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    for (stop, task) in all {
        stop.cancel();
        task.await.unwrap();
    }
    assert!(keys.lock().unwrap().acked >= RECORDS - 100);
}
