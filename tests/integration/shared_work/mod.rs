//! Shared work against the real binary: what becomes of records and cursors of QUEUE and KEYED subscriptions, and what people see of it.
//!
//! `life` is redrive, pause and moves; `seen` and `idle` are what describe and the doctor say; `limits` is age, quota and slots;
//! `troubles` and `failover` are public troubles as cases; `page` is the page for users.

mod failover;
mod idle;
mod life;
mod limits;
mod page;
mod seen;
mod troubles;

use std::time::Duration;

use hulse_sdk::{Client, QueueConsumer, QueueMessage, Start};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::cli::{done, json};
use super::server::Server;
use super::subscriptions::PATIENCE;

/// The tests here have the ports from this one on, two each.
const PORT: u16 = 19_750;

/// A consumer of subscription `s`, which exists.
async fn share(client: &Client, topic: &str, name: &str, keyed: bool) -> QueueConsumer {
    let builder = client.queue_consumer(topic).subscription("s").name(name);
    let builder = builder.keyed(keyed).start(Start::Earliest);
    timeout(PATIENCE, builder.build()).await.unwrap().unwrap()
}

async fn next(consumer: &QueueConsumer) -> QueueMessage {
    let next = timeout(PATIENCE, consumer.next()).await;
    next.unwrap().unwrap().unwrap()
}

fn value(message: &QueueMessage) -> u64 {
    let value = message.value.as_ref().unwrap();
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// What `describe` says of `s`.
fn described(server: &Server, topic: &str) -> Value {
    json(server, &["subs", "describe", topic, "s"])
}

/// Waits until `describe` says so.
async fn until(server: &Server, topic: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let seen = described(server, topic);
        if holds(&seen) {
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "never {what}: {seen:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Values that a share of `s` gets until nothing is left, in order.
fn consumed(server: &Server, topic: &str, kind: &str) -> Vec<u64> {
    let words = ["consume", topic, "-s", "s", "--type", kind, "-e"];
    let mut values: Vec<u64> = done(server, &words, "")
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    values.sort_unstable();
    values
}
