//! A broker that is cut from metadata alone, while the others are not: they take over what they are asked for, and its clients follow.

use std::time::{Duration, Instant};

use hulse_sdk::{Client, Record, Start};

use super::load::{Load, runtime};
use super::processes::{Cluster, Node};
use super::truth::{Fate, read_all};

const PORT: u16 = 18_800;
const TOPIC: &str = "cut-off";
const QUIET: &str = "quiet";
const PARTITIONS: u32 = 8;
/// Above a lease, a look-up that is asked in vain, and the time until another broker is asked.
const FOUND_WITHIN: Duration = Duration::from_secs(25);

fn client_of(cluster: &Cluster, broker: usize) -> Client {
    let client = Client::builder(cluster.broker_address(broker));
    client
        .request_timeout(Duration::from_secs(30))
        .build()
        .unwrap()
}

/// Reads to the end, so that every partition is opened; how many records.
async fn read(client: &Client, topic: &str) -> u32 {
    let reader = client.reader(topic).start(Start::Earliest).follow(false);
    let mut reader = reader.build().await.unwrap();
    let mut count = 0;
    while reader.next().await.unwrap().is_some() {
        count += 1;
    }
    count
}

/// A record to each partition, one after the other.
async fn send(client: &Client, topic: &str) {
    let producer = client.producer(topic).build().await.unwrap();
    for partition in 0..PARTITIONS {
        let ticket = producer.send(Record::new("x").partition(partition)).await;
        ticket.unwrap().await.unwrap();
    }
    producer.close().await.unwrap();
}

#[test]
fn clients_of_a_broker_without_metadata_find_the_one_that_took_over() {
    let Some(mut cluster) = Cluster::start_linked(PORT, 3) else {
        return;
    };
    cluster.add_broker();
    cluster.add_broker();
    let runtime = runtime();
    let (first, second) = (client_of(&cluster, 0), client_of(&cluster, 1));
    let load = runtime.block_on(async {
        let made = first.admin().create_topic(QUIET, PARTITIONS).await;
        made.unwrap();
        send(&first, QUIET).await;
        Load::begin(&first, TOPIC, PARTITIONS).await
    });
    runtime.block_on(load.goes_on("the beginning"));
    cluster.cut(Node::Broker(0), Node::Etcd);
    // What is open goes on: nobody asks for it elsewhere.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        runtime.block_on(load.goes_on("the cut"));
    }
    // Now somebody does.
    runtime.block_on(async {
        read(&second, TOPIC).await;
        assert_eq!(read(&second, QUIET).await, PARTITIONS);
        // Who knows of the broker alone that is cut off is led away from it, too.
        let began = Instant::now();
        send(&client_of(&cluster, 0), QUIET).await;
        assert!(began.elapsed() < FOUND_WITHIN, "{:?}", began.elapsed());
        assert_eq!(read(&second, QUIET).await, 2 * PARTITIONS);
        load.goes_on("the take-over").await;
    });
    let (truth, followed) = runtime.block_on(load.end());
    let found = runtime.block_on(read_all(&second, TOPIC));
    truth.check(&found, "a broker without metadata");
    truth.check(&followed, "what was followed at it");
    let lost = truth.count(|fate| !matches!(fate, Fate::Acked(_)));
    assert_eq!(lost, 0, "no produce fails");
    assert_eq!(followed.len(), found.len(), "no delivery is missed");
    cluster.heal();
    cluster.stop();
}
