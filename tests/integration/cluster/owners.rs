//! Several brokers share the partitions: whichever is asked, records go to the owner, and an owner that dies has a successor.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hulse_sdk::numbers::{NumberChecker, NumberStamper};
use hulse_sdk::{Client, Producer, Record, Start};
use tokio::runtime::{Builder, Runtime};

use super::processes::Cluster;

const PORT: u16 = 18_200;
const PARTITIONS: u32 = 12;

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Three bookies and so many brokers; `None` without etcd.
fn cluster(port: u16, brokers: usize) -> Option<Cluster> {
    let mut cluster = Cluster::start(port, 3)?;
    for _ in 0..brokers {
        cluster.add_broker();
    }
    Some(cluster)
}

/// A client that is told of one broker only.
fn client_of(cluster: &Cluster, broker: usize) -> Client {
    let client = Client::builder(cluster.broker_address(broker));
    client
        .request_timeout(Duration::from_secs(20))
        .build()
        .unwrap()
}

async fn topic(client: &Client, name: &str) {
    client.admin().create_topic(name, PARTITIONS).await.unwrap();
}

async fn producer(client: &Client, topic: &str) -> Producer {
    let producer = client.producer(topic).interceptor(NumberStamper::new());
    producer.build().await.unwrap()
}

/// Every record gets its receipt; the longest wait for one.
async fn send(producer: &Producer, count: u32) -> Duration {
    let mut tickets = Vec::new();
    for number in 0..count {
        let record = Record::new(vec![b'x'; 200]).partition(number % PARTITIONS);
        tickets.push((Instant::now(), producer.send(record).await.unwrap()));
    }
    let mut longest = Duration::ZERO;
    for (sent, ticket) in tickets {
        ticket.await.unwrap();
        longest = longest.max(sent.elapsed());
    }
    longest
}

/// Reads all of a topic: every number once and in its order.
async fn check(client: &Client, topic: &str, count: u64) {
    let checker = NumberChecker::new();
    let reader = client.reader(topic).start(Start::Earliest).follow(false);
    let mut reader = reader.interceptor(checker.clone()).build().await.unwrap();
    while reader.next().await.unwrap().is_some() {}
    let report = checker.report();
    assert!(report.is_clean() && report.records == count, "{report:?}");
}

async fn owners(client: &Client, topic: &str) -> BTreeSet<String> {
    let described = client.admin().describe_topic(topic).await.unwrap();
    let owners = described.partition.into_iter().map(|of| of.owner.unwrap());
    owners.collect()
}

#[test]
fn any_broker_leads_to_the_owners_of_all_partitions() {
    let Some(cluster) = cluster(PORT, 2) else {
        return;
    };
    runtime().block_on(async {
        let (first, second) = (client_of(&cluster, 0), client_of(&cluster, 1));
        topic(&second, "shared").await;
        let producer = producer(&second, "shared").await;
        send(&producer, 1_200).await;
        producer.close().await.unwrap();
        check(&first, "shared", 1_200).await;
        let both: BTreeSet<String> = (0..2).map(|of| cluster.broker_address(of)).collect();
        assert_eq!(owners(&first, "shared").await, both);
        assert_eq!(owners(&second, "shared").await, both);
        // Whoever does not own it deletes it all the same, and it is gone for both.
        first.admin().delete_topic("shared").await.unwrap();
        assert!(second.admin().describe_topic("shared").await.is_err());
        topic(&second, "shared").await;
        check(&first, "shared", 0).await;
    });
    cluster.stop();
}

#[test]
fn partitions_of_a_killed_broker_are_served_by_the_others_and_nothing_is_lost() {
    let Some(mut cluster) = cluster(PORT + 40, 2) else {
        return;
    };
    let runtime = runtime();
    let client = client_of(&cluster, 0);
    runtime.block_on(topic(&client, "orders"));
    let producer = runtime.block_on(producer(&client, "orders"));
    let mut count = 0;
    // The one that the client was told of dies too: it has learnt of the other.
    for victim in [1, 0] {
        runtime.block_on(send(&producer, 1_200));
        let sending = {
            let producer = producer.clone();
            runtime.spawn(async move { send(&producer, 12_000).await })
        };
        std::thread::sleep(Duration::from_millis(50));
        cluster.brokers[victim].kill();
        let longest = runtime.block_on(sending).unwrap();
        assert!(longest < Duration::from_secs(12), "{longest:?}");
        count += 13_200;
        let other = client_of(&cluster, 1 - victim);
        runtime.block_on(check(&other, "orders", count));
        let owners = runtime.block_on(owners(&other, "orders"));
        assert_eq!(owners, BTreeSet::from([cluster.broker_address(1 - victim)]));
        cluster.brokers[victim].start();
    }
    runtime.block_on(producer.close()).unwrap();
    cluster.stop();
}
