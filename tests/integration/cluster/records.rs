//! Records through a broker that keeps them with bookies elsewhere.

use std::collections::BTreeSet;
use std::time::Duration;

use hulse_sdk::{Client, Record, Start};
use tokio::runtime::{Builder, Runtime};

use super::processes::Cluster;

const PORT: u16 = 17_970;

pub(super) fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

pub(super) fn client(cluster: &Cluster) -> Client {
    Client::builder(cluster.broker_address(0)).build().unwrap()
}

/// Sends numbered records; every one must get its receipt, whatever dies meanwhile.
pub(super) async fn produce(client: Client, range: std::ops::Range<u32>) {
    let producer = client.producer("orders").build().await.unwrap();
    let mut tickets = Vec::new();
    for number in range {
        let record = Record::new(format!("order {number:0500}"));
        tickets.push(producer.send(record).await.unwrap());
    }
    for ticket in tickets {
        ticket.await.unwrap();
    }
    producer.close().await.unwrap();
}

/// The numbers of all records of the topic, in order.
pub(super) async fn consume(client: &Client) -> Vec<u32> {
    let reader = client.reader("orders").start(Start::Earliest).follow(false);
    let mut reader = reader.build().await.unwrap();
    let mut numbers = Vec::new();
    while let Some(record) = reader.next().await.unwrap() {
        let text = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
        numbers.push(text.strip_prefix("order ").unwrap().parse().unwrap());
    }
    numbers
}

pub(super) fn whole(numbers: &[u32], count: u32) {
    let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
    assert_eq!(distinct, (0..count).collect::<BTreeSet<_>>());
    assert_eq!(numbers.len(), distinct.len(), "none is there twice");
    assert!(numbers.is_sorted(), "in the order they were sent");
}

#[test]
fn nothing_is_lost_when_a_bookie_and_then_the_broker_are_killed() {
    let Some(mut cluster) = Cluster::start(PORT, 3) else {
        return;
    };
    cluster.add_broker();
    let runtime = runtime();
    runtime.block_on(produce(client(&cluster), 0..1_000));
    // A bookie dies while records are under way.
    let producing = runtime.spawn(produce(client(&cluster), 1_000..6_000));
    std::thread::sleep(Duration::from_millis(100));
    cluster.bookies[0].kill();
    runtime.block_on(producing).unwrap();
    whole(&runtime.block_on(consume(&client(&cluster))), 6_000);
    // So does the broker; the producer goes on as soon as there is one again.
    let producing = runtime.spawn(produce(client(&cluster), 6_000..9_000));
    std::thread::sleep(Duration::from_millis(50));
    cluster.brokers[0].kill();
    cluster.brokers[0].start();
    runtime.block_on(producing).unwrap();
    whole(&runtime.block_on(consume(&client(&cluster))), 9_000);
    // The bookie that was dead comes back, another one goes: two of three have every record.
    cluster.bookies[0].start();
    runtime.block_on(produce(client(&cluster), 9_000..10_000));
    cluster.bookies[1].kill();
    whole(&runtime.block_on(consume(&client(&cluster))), 10_000);
    cluster.bookies[1].start();
    cluster.stop();
}
