//! What describe, list and the doctor say.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hulse_sdk::{Client, QueueConsumer, Record};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::cli::{done, json};
use super::super::server::Server;
use super::super::subscriptions::{client, send_batch};
use super::{PORT, described, next, share, until, value};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_record_of_a_backlog_is_told_by_its_state_and_its_holder() {
    let server = Server::start(PORT + 20);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs"], "");
    let create = [
        "subs", "create", "jobs", "s", "--type", "queue", "--from", "start",
    ];
    done(
        &server,
        &[&create[..], &["--max-attempts", "2"]].concat(),
        "",
    );
    let seen = described(&server, "jobs");
    assert_eq!(
        (&seen["backlog_records"], &seen["backlog_age_ms"]),
        (&0.into(), &0.into())
    );
    send_batch(&client, "jobs", 12).await;
    let consumer = share(&client, "jobs", "one", false).await;
    let mut held = Vec::new();
    for _ in 0..12 {
        held.push(next(&consumer).await);
    }
    held.sort_unstable_by_key(value);
    consumer.ack(&held[0]).await.unwrap();
    consumer.ack(&held[5]).await.unwrap();
    consumer
        .nack_after(&held[1], Duration::from_secs(3_600))
        .await
        .unwrap();
    consumer.nack(&held[2]).await.unwrap();
    let again = next(&consumer).await;
    assert_eq!((value(&again), again.delivery_count()), (2, 2));
    consumer.nack(&again).await.unwrap();
    let told = until(&server, "jobs", "dead", |seen| seen["dead_records"] == 1).await;
    for (field, records) in [
        ("backlog_records", 10),
        ("unacked_records", 8),
        ("delayed_records", 1),
        ("ready_records", 0),
        ("dead_letters", 0),
    ] {
        assert_eq!(told[field], records, "{field} of {told:#}");
    }
    let consumers = &told["cursor"][0]["consumer"];
    assert_eq!(consumers[0]["name"], "one");
    assert_eq!(consumers[0]["unacked_records"], 8);
    let rows = json(&server, &["subs", "list", "jobs"]);
    assert_eq!(rows[0]["unacked_records"], 8);
    assert!(rows[0]["backlog_age_ms"].as_u64().unwrap() > 0, "{rows:#}");
    table_says_so(&server);
    // Closed, what it held is anybody's.
    consumer.close().await.unwrap();
    let seen = until(&server, "jobs", "free", |seen| seen["unacked_records"] == 0).await;
    assert_eq!(seen["ready_records"], 8);
}

/// A person sees the same.
fn table_says_so(server: &Server) {
    let table = done(server, &["subs", "describe", "jobs", "s"], "");
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let row = lines
        .iter()
        .find(|cells| cells.first() == Some(&"0"))
        .unwrap();
    assert_eq!(
        (row[1], row[4], row[5], row[6]),
        ("10", "8", "1", "1"),
        "{table}"
    );
    let row = lines
        .iter()
        .find(|cells| cells.first() == Some(&"one"))
        .unwrap();
    assert_eq!((row[1], row[2]), ("0", "8"), "{table}");
}

/// Sends so many records a second until it is aborted.
fn sender(client: &Client, per_second: Arc<AtomicU64>) -> JoinHandle<()> {
    let client = client.clone();
    tokio::spawn(async move {
        let producer = client.producer("jobs").build().await.unwrap();
        loop {
            let each = 1_000 / per_second.load(Ordering::Relaxed).max(1);
            tokio::time::sleep(Duration::from_millis(each)).await;
            drop(producer.send(Record::new("1")).await.unwrap());
        }
    })
}

/// Acks so many records a second, 0: none, until it is aborted.
fn reader(consumer: &QueueConsumer, per_second: Arc<AtomicU64>) -> JoinHandle<()> {
    let consumer = consumer.clone();
    tokio::spawn(async move {
        loop {
            let message = next(&consumer).await;
            loop {
                match per_second.load(Ordering::Relaxed) {
                    0 => tokio::time::sleep(Duration::from_millis(100)).await,
                    each => {
                        tokio::time::sleep(Duration::from_millis(1_000 / each)).await;
                        break;
                    }
                }
            }
            drop(consumer.ack(&message));
        }
    })
}

/// Waits until the doctor says this, and answers it.
async fn told(server: &Server, code: &str) -> Value {
    let began = Instant::now();
    loop {
        let found = server.findings();
        if let Some(finding) = found.iter().find(|finding| finding["code"] == code) {
            return finding.clone();
        }
        assert!(
            began.elapsed() < Duration::from_secs(90),
            "no {code}: {found:?}"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn words(finding: &Value) -> String {
    format!(
        "{} {} {}",
        finding["what"], finding["why"], finding["object"]
    )
}

/// A topic whose sender and reader go at the same speed, for long enough to be known by that.
async fn steady(server: &Server) -> (Arc<AtomicU64>, Arc<AtomicU64>, QueueConsumer) {
    let client = client(&server.address());
    done(server, &["topics", "create", "jobs"], "");
    let create = [
        "subs", "create", "jobs", "s", "--type", "queue", "--from", "start",
    ];
    done(server, &create, "");
    let consumer = share(&client, "jobs", "one", false).await;
    let (send, read) = (Arc::new(AtomicU64::new(20)), Arc::new(AtomicU64::new(500)));
    drop(sender(&client, send.clone()));
    drop(reader(&consumer, read.clone()));
    let known = |seen: &Value| {
        let cursor = &seen["cursor"][0];
        cursor["in_before_per_s"]
            .as_f64()
            .is_some_and(|it| it > 5.0)
            && cursor["out_before_per_s"]
                .as_f64()
                .is_some_and(|it| it > 5.0)
    };
    until(server, "jobs", "known", known).await;
    let found = server.findings();
    let grows = found
        .iter()
        .filter(|one| one["code"].as_str().unwrap().starts_with("DOCTOR-2"));
    assert_eq!(grows.count(), 0, "nothing grows: {found:?}");
    (send, read, consumer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_tells_that_more_is_sent_than_before() {
    let server = Server::start(PORT + 22);
    let (send, read, consumer) = steady(&server).await;
    read.store(20, Ordering::Relaxed);
    send.store(300, Ordering::Relaxed);
    let told = words(&told(&server, "DOCTOR-20").await);
    assert!(
        told.contains("more is sent") && told.contains("public/default/s of"),
        "{told}"
    );
    let rates = described(&server, "jobs");
    assert!(
        rates["in_per_s"].as_f64() > rates["out_per_s"].as_f64(),
        "{rates:#}"
    );
    assert!(rates["drain_ms"].is_null(), "it grows: {rates:#}");
    consumer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_tells_that_consumers_are_slower_than_before() {
    let server = Server::start(PORT + 24);
    let (_, read, consumer) = steady(&server).await;
    read.store(2, Ordering::Relaxed);
    let told = words(&told(&server, "DOCTOR-21").await);
    assert!(
        told.contains("slower than before") && told.contains("public/default/s of"),
        "{told}"
    );
    consumer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_the_record_that_nobody_can_process() {
    let server = Server::start(PORT + 26);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs"], "");
    let create = [
        "subs", "create", "jobs", "s", "--type", "queue", "--from", "start",
    ];
    done(
        &server,
        &[&create[..], &["--max-attempts", "0"]].concat(),
        "",
    );
    send_batch(&client, "jobs", 10).await;
    let consumer = share(&client, "jobs", "one", false).await;
    for _ in 0..9 + 4 {
        let message = next(&consumer).await;
        match value(&message) {
            6 => consumer.nack(&message).await.unwrap(),
            _ => consumer.ack(&message).await.unwrap(),
        }
    }
    let told = words(&told(&server, "DOCTOR-22").await);
    assert!(
        told.contains("again and again") && told.contains("offset 6"),
        "{told}"
    );
    consumer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_the_consumer_that_holds_the_records() {
    let server = Server::start(PORT + 28);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs"], "");
    let create = [
        "subs", "create", "jobs", "s", "--type", "queue", "--from", "start",
    ];
    done(&server, &create, "");
    send_batch(&client, "jobs", 50).await;
    let hoarder = share(&client, "jobs", "hoarder", false).await;
    let held = next(&hoarder).await;
    let idle = share(&client, "jobs", "idle", false).await;
    let told = words(&told(&server, "DOCTOR-23").await);
    assert!(
        told.contains("consumer hoarder of public/default/s"),
        "{told}"
    );
    assert!(!told.contains("idle"), "{told}");
    drop(held);
    hoarder.close().await.unwrap();
    // It is gone: the others have them.
    let got = next(&idle).await;
    idle.ack(&got).await.unwrap();
    idle.close().await.unwrap();
}
