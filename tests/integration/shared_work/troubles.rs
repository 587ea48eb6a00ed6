//! Public troubles as cases: SU-01, SU-02, SU-05, SU-07, OR-01.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hulse_sdk::{Client, QueueConsumer, Record};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::super::cli::done;
use super::super::server::{Server, restarted};
use super::super::subscriptions::{PATIENCE, backlog, client, send_batch};
use super::{PORT, described, next, share, until, value};

/// What was handed out, by key.
#[derive(Default)]
struct Seen {
    /// Grows with each start of the server: what was held before is void.
    life: u32,
    /// Key, and who works on how many of its records, in which life.
    held: BTreeMap<String, (String, u32, u32)>,
    last: BTreeMap<String, u64>,
    offsets: BTreeSet<(u32, u64)>,
}

type Shared = Arc<Mutex<Seen>>;

fn lock(seen: &Shared) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap()
}

/// Works on the records of keys, and checks that a key is at one consumer and that records which nobody had come in order.
async fn work(consumer: QueueConsumer, seen: Shared, stop: CancellationToken, mut rng: ChaCha8Rng) {
    let name = consumer.name().to_owned();
    loop {
        let message = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            next = consumer.next() => next.unwrap().unwrap(),
        };
        let key = String::from_utf8(message.key.clone().unwrap().to_vec()).unwrap();
        let life = {
            let mut seen = lock(&seen);
            let life = seen.life;
            let held = seen
                .held
                .entry(key.clone())
                .or_insert((name.clone(), 0, life));
            if held.2 != life {
                *held = (name.clone(), 0, life);
            }
            assert_eq!(held.0, name, "{key} is at two consumers");
            held.1 += 1;
            if seen.offsets.insert((message.partition, message.offset.0)) {
                let last = seen.last.insert(key.clone(), message.offset.0);
                assert!(
                    last.is_none_or(|last| last < message.offset.0),
                    "{key} out of order"
                );
            }
            life
        };
        if rng.random_bool(0.1) {
            sleep(Duration::from_millis(rng.random_range(10..60))).await;
        }
        {
            // Before the ack: who gets the key next may hear of it before this one hears that it is durable.
            let mut seen = lock(&seen);
            let held = seen.held.get_mut(&key).unwrap();
            if held.2 == life {
                held.1 -= 1;
                if held.1 == 0 {
                    seen.held.remove(&key);
                }
            }
        }
        drop(consumer.ack(&message));
    }
    // What it was given and has not begun with goes on to the others.
    consumer.close().await.unwrap();
}

/// Sends keyed numbers, about so many a second.
fn sending(client: &Client, records: u64, keys: u64, pause: Duration) -> JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move {
        let producer = client.producer("jobs").build().await.unwrap();
        for number in 0..records {
            let record = Record::new(number.to_string()).key(format!("k{}", number % keys));
            drop(producer.send(record).await.unwrap());
            sleep(pause).await;
        }
        producer.close().await.unwrap();
    })
}

async fn begin(
    client: &Client,
    name: &str,
    seen: &Shared,
    seed: u64,
) -> (CancellationToken, JoinHandle<()>) {
    let consumer = share(client, "jobs", name, true).await;
    let stop = CancellationToken::new();
    let rng = ChaCha8Rng::seed_from_u64(seed);
    let task = tokio::spawn(work(consumer, seen.clone(), stop.clone(), rng));
    (stop, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn or_01_keys_stay_in_order_while_consumers_and_the_broker_are_restarted_in_turn() {
    const RECORDS: u64 = 3_000;
    let server = Server::start(PORT + 30);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs", "-p", "2"], "");
    let create = [
        "subs", "create", "jobs", "s", "--type", "keyed", "--from", "start",
    ];
    done(&server, &create, "");
    let seen = Shared::default();
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        all.push((name, begin(&client, name, &seen, all.len() as u64).await));
    }
    let sent = sending(&client, RECORDS, 100, Duration::from_millis(1));
    let mut server = Some(server);
    for round in 0..6_u64 {
        sleep(Duration::from_millis(500)).await;
        let (name, (stop, task)) = all.remove(0);
        stop.cancel();
        task.await.unwrap();
        if round == 2 {
            // What is held now is void: the next owner may give it to others (ARCHITECTURE D9).
            let mut old = server.take().unwrap();
            let killed = tokio::task::spawn_blocking(move || {
                old.kill();
                old
            });
            let mut old = killed.await.unwrap();
            lock(&seen).life += 1;
            let started = tokio::task::spawn_blocking(move || {
                old.restart();
                old
            });
            server = Some(started.await.unwrap());
        }
        all.push((name, begin(&client, name, &seen, 10 + round).await));
    }
    sent.await.unwrap();
    let server = server.unwrap();
    until(&server, "jobs", "empty", |seen| {
        seen["backlog_records"] == 0
    })
    .await;
    for (_, (stop, task)) in all {
        stop.cancel();
        task.await.unwrap();
    }
    assert_eq!(lock(&seen).offsets.len() as u64, RECORDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn su_01_only_the_keys_of_a_slow_consumer_wait_while_others_join_and_break() {
    const RECORDS: u64 = 1_200;
    let server = Server::start(PORT + 32);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs", "-p", "4"], "");
    let create = [
        "subs", "create", "jobs", "s", "--type", "keyed", "--from", "start",
    ];
    done(&server, &create, "");
    // One record is held for as long as the rest lasts.
    let slow = share(&client, "jobs", "slow", true).await;
    let producer = client.producer("jobs").build().await.unwrap();
    producer
        .send(Record::new("0").key("k0"))
        .await
        .unwrap()
        .await
        .unwrap();
    let held = next(&slow).await;
    let seen = Shared::default();
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        all.push(begin(&client, name, &seen, all.len() as u64).await);
    }
    // It has slots of its own, whose records it acknowledges at once.
    let stop = CancellationToken::new();
    let rng = ChaCha8Rng::seed_from_u64(99);
    let others = tokio::spawn(work(slow.clone(), seen.clone(), stop.clone(), rng));
    let sent = sending(&client, RECORDS, 10, Duration::from_millis(4));
    for round in 0..5_u64 {
        sleep(Duration::from_millis(700)).await;
        let name = format!("new-{round}");
        all.push(begin(&client, &name, &seen, 20 + round).await);
        // A connection that breaks: what it held comes back.
        let breaks = share(&client, "jobs", "breaks", true).await;
        drop(breaks.receive(1, Duration::from_millis(200)).await.unwrap());
        drop(breaks);
    }
    sent.await.unwrap();
    // Of all keys but the held one's slot everything goes on.
    let waits =
        |seen: &serde_json::Value| seen["backlog_records"].as_u64().unwrap() <= RECORDS / 10 + 1;
    until(&server, "jobs", "down to the held key", waits).await;
    slow.ack(&held).await.unwrap();
    until(&server, "jobs", "empty", |seen| {
        seen["backlog_records"] == 0
    })
    .await;
    stop.cancel();
    others.await.unwrap();
    for (stop, task) in all {
        stop.cancel();
        task.await.unwrap();
    }
}

/// Values in the dead-letter topic, in order; each says where it comes from and why.
fn letters(server: &Server) -> Vec<u64> {
    let graves = ["consume", "graves", "-o", "start", "-e", "--output", "json"];
    let mut values = Vec::new();
    for letter in done(server, &graves, "").lines() {
        for header in [
            "hulse.dead-letter.source",
            "hulse.dead-letter.offset",
            "lock_expired",
        ] {
            assert!(letter.contains(header), "{letter}");
        }
        let letter: serde_json::Value = serde_json::from_str(letter).unwrap();
        values.push(letter["value"].as_str().unwrap().parse().unwrap());
    }
    values.sort_unstable();
    values
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn su_02_poison_is_in_the_dead_letter_topic_once_and_what_nobody_saw_is_not() {
    let server = Server::start(PORT + 34);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs", "unseen"], "");
    for topic in ["jobs", "unseen"] {
        let create = [
            "subs", "create", topic, "s", "--type", "queue", "--from", "start",
        ];
        let rest = [
            "--lock",
            "15s",
            "--max-attempts",
            "2",
            "--dead-letter-topic",
            "graves",
        ];
        done(&server, &[&create[..], &rest].concat(), "");
    }
    // Nobody calls receive: what waits at the client is nobody's failure, however long it does.
    send_batch(&client, "unseen", 20).await;
    let idle = share(&client, "unseen", "idle", false).await;
    // Three consumers; a poison record is dropped without a word, twice, and everything else acknowledged.
    send_batch(&client, "jobs", 100).await;
    let is_poison = |number: u64| number.is_multiple_of(20);
    let handed = Arc::new(Mutex::new(BTreeMap::<u64, u32>::new()));
    let mut tasks = Vec::new();
    for name in ["a", "b", "c"] {
        let consumer = share(&client, "jobs", name, false).await;
        let handed = handed.clone();
        tasks.push(tokio::spawn(async move {
            while let Ok(Some(message)) = consumer.next().await {
                let number = value(&message);
                *handed.lock().unwrap().entry(number).or_default() += 1;
                match is_poison(number) {
                    true => drop(message),
                    false => drop(consumer.ack(&message)),
                }
            }
        }));
    }
    until(&server, "jobs", "empty", |seen| {
        seen["backlog_records"] == 0
    })
    .await;
    let values = letters(&server);
    assert_eq!(
        values,
        [0, 20, 40, 60, 80],
        "each once, and nothing of those that nobody saw"
    );
    let handed = handed.lock().unwrap().clone();
    assert_eq!(handed.len(), 100);
    let twice = handed.iter().filter(|(_, times)| **times == 2);
    assert_eq!(twice.count(), 5, "{handed:?}");
    assert_eq!(described(&server, "unseen")["unacked_records"], 20);
    for _ in 0..20 {
        let message = next(&idle).await;
        assert_eq!(message.delivery_count(), 1);
        idle.ack(&message).await.unwrap();
    }
    for task in tasks {
        task.abort();
    }
    idle.close().await.unwrap();
}

/// Takes records one by one, acknowledges most, returns some, and goes now and then with all that it has, until nothing comes.
async fn restless(client: Client, number: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(number);
    loop {
        let builder = client.queue_consumer("jobs").subscription("s");
        let builder = builder.name(format!("c{number}")).receive_queue_records(5);
        let consumer = timeout(PATIENCE, builder.build()).await.unwrap().unwrap();
        loop {
            let messages = consumer.receive(1, Duration::from_secs(2)).await.unwrap();
            let Some(message) = messages.into_iter().next() else {
                consumer.close().await.unwrap();
                return;
            };
            match rng.random_range(0..10) {
                0..6 => drop(consumer.ack(&message)),
                6..9 => drop(consumer.nack_after(&message, Duration::from_millis(50))),
                // It goes with everything that it has.
                _ => break,
            }
        }
        match rng.random_bool(0.5) {
            true => consumer.close().await.unwrap(),
            false => drop(consumer),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn su_05_accounts_of_unacknowledged_records_end_at_nothing() {
    const RECORDS: u64 = 600;
    let server = Server::start(PORT + 36);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs", "-p", "2"], "");
    let create = [
        "subs", "create", "jobs", "s", "--type", "queue", "--from", "start",
    ];
    done(
        &server,
        &[&create[..], &["--max-attempts", "0"]].concat(),
        "",
    );
    for _ in 0..RECORDS / 6 {
        send_batch(&client, "jobs", 6).await;
    }
    let restless = (0..4).map(|number| tokio::spawn(restless(client.clone(), number)));
    let tasks: Vec<_> = restless.collect();
    let most = RECORDS;
    until(&server, "jobs", "empty", |seen| {
        for cursor in seen["cursor"].as_array().unwrap() {
            let field = |name: &str| cursor[name].as_u64().unwrap();
            let parts = [
                "ready_records",
                "unacked_records",
                "delayed_records",
                "dead_records",
            ];
            let sum: u64 = parts.iter().map(|name| field(name)).sum();
            assert!(
                field("unacked_records") <= most && sum <= field("backlog_records") + most,
                "{cursor:#}"
            );
        }
        seen["backlog_records"] == 0
    })
    .await;
    for task in tasks {
        task.await.unwrap();
    }
    let seen = described(&server, "jobs");
    for field in [
        "backlog_records",
        "unacked_records",
        "delayed_records",
        "dead_records",
        "ready_records",
    ] {
        assert_eq!(seen[field], 0, "{field} of {seen:#}");
    }
    // A new consumer is not blocked: all credit is its own.
    let consumer = share(&client, "jobs", "late", false).await;
    send_batch(&client, "jobs", 50).await;
    for _ in 0..50 {
        let message = next(&consumer).await;
        consumer.ack(&message).await.unwrap();
    }
    assert_eq!(consumer.held_up(), []);
    consumer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn su_07_records_inside_a_batch_are_acknowledged_one_by_one_over_a_kill() {
    let server = Server::start(PORT + 38);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs"], "");
    let create = [
        "subs", "create", "jobs", "s", "--type", "queue", "--from", "start",
    ];
    done(&server, &create, "");
    send_batch(&client, "jobs", 10).await;
    let consumer = share(&client, "jobs", "one", false).await;
    let mut messages = Vec::new();
    for _ in 0..10 {
        messages.push(next(&consumer).await);
    }
    for message in messages.iter().filter(|it| [2, 4, 6].contains(&value(it))) {
        consumer.ack(message).await.unwrap();
    }
    drop(messages);
    let mut server = restarted(server).await;
    assert_eq!(backlog(&client.admin(), "jobs", "s").await, 7);
    let mut again = BTreeSet::new();
    for _ in 0..7 {
        let message = next(&consumer).await;
        assert!(again.insert(value(&message)), "{} twice", value(&message));
        consumer.ack(&message).await.unwrap();
    }
    assert_eq!(again, BTreeSet::from([0, 1, 3, 5, 7, 8, 9]));
    assert_eq!(backlog(&client.admin(), "jobs", "s").await, 0);
    consumer.close().await.unwrap();
    server.stop();
}
