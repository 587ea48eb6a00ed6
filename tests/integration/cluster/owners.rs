//! Several brokers share the partitions: whichever is asked, records go to the owner, and an owner that dies has a successor.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hulse_sdk::numbers::{NumberChecker, NumberStamper};
use hulse_sdk::{Admin, Client, CursorSelection, NewSubscription, Producer, Record, Start, TrimTo};
use tokio::runtime::{Builder, Runtime};

use super::processes::Cluster;

const PORT: u16 = 18_200;
const PARTITIONS: u32 = 12;

pub(super) fn runtime() -> Runtime {
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

fn client_of(cluster: &Cluster, broker: usize) -> Client {
    client_at(&cluster.broker_address(broker))
}

/// A client that is told of one broker only.
pub(super) fn client_at(broker: &str) -> Client {
    let client = Client::builder(broker);
    client
        .request_timeout(Duration::from_secs(20))
        .build()
        .unwrap()
}

pub(super) async fn topic(client: &Client, name: &str) {
    client.admin().create_topic(name, PARTITIONS).await.unwrap();
}

pub(super) async fn producer(client: &Client, topic: &str) -> Producer {
    let producer = client.producer(topic).interceptor(NumberStamper::new());
    producer.build().await.unwrap()
}

/// Every record gets its receipt; the longest wait for one.
pub(super) async fn send(producer: &Producer, count: u32) -> Duration {
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
pub(super) async fn check(client: &Client, topic: &str, count: u64) {
    let checker = NumberChecker::new();
    let reader = client.reader(topic).start(Start::Earliest).follow(false);
    let mut reader = reader.interceptor(checker.clone()).build().await.unwrap();
    while reader.next().await.unwrap().is_some() {}
    let report = checker.report();
    assert!(report.is_clean() && report.records == count, "{report:?}");
}

pub(super) async fn owners(client: &Client, topic: &str) -> BTreeSet<String> {
    let described = client.admin().describe_topic(topic).await.unwrap();
    let owners = described.partition.into_iter().map(|of| of.owner.unwrap());
    owners.collect()
}

/// Sends until it is told to end; how many, and the longest wait for a receipt.
async fn send_on(producer: Producer, end: Arc<AtomicBool>) -> (u64, Duration) {
    let (mut count, mut longest) = (0, Duration::ZERO);
    while !end.load(Ordering::Relaxed) {
        longest = longest.max(send(&producer, 240).await);
        count += 240;
    }
    (count, longest)
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

#[test]
fn partitions_change_hands_under_load_and_a_broker_that_ends_gives_its_own_away() {
    let Some(mut cluster) = cluster(PORT + 80, 2) else {
        return;
    };
    let runtime = runtime();
    let client = client_of(&cluster, 0);
    runtime.block_on(topic(&client, "moved"));
    let producer = runtime.block_on(producer(&client, "moved"));
    let end = Arc::new(AtomicBool::new(false));
    let sending = runtime.spawn(send_on(producer.clone(), Arc::clone(&end)));
    // Every one to the second broker, then to the first, by the word of either.
    let admins = [
        client_of(&cluster, 0).admin(),
        client_of(&cluster, 1).admin(),
    ];
    runtime.block_on(async {
        for (round, to) in ["broker-2", "broker-1", "broker-2"].into_iter().enumerate() {
            for partition in 0..PARTITIONS {
                let admin = &admins[(round + partition as usize) % 2];
                let pin = partition % 2 == 0;
                admin
                    .move_partition("moved", partition, to, pin)
                    .await
                    .unwrap();
            }
            let index = usize::from(to == "broker-2");
            let only = BTreeSet::from([cluster.broker_address(index)]);
            assert_eq!(owners(&client, "moved").await, only);
        }
        let nobody = admins[0]
            .move_partition("moved", 0, "broker-9", false)
            .await;
        assert!(nobody.unwrap_err().to_string().contains("broker-9"));
        let brokers = admins[0].cluster(true).await.unwrap().brokers;
        let held: Vec<_> = brokers
            .into_iter()
            .map(|of| (of.name, of.partitions))
            .collect();
        let all = u64::from(PARTITIONS);
        assert_eq!(
            held,
            [("broker-1".into(), Some(0)), ("broker-2".into(), Some(all))]
        );
    });
    // It hands over what it has before it ends.
    let status = cluster.brokers[1].stop();
    assert!(status.success(), "{}", cluster.brokers[1].log());
    let log = cluster.brokers[1].log();
    assert!(log.contains("given=12"), "{log}");
    std::thread::sleep(Duration::from_millis(200));
    end.store(true, Ordering::Relaxed);
    let (count, longest) = runtime.block_on(sending).unwrap();
    assert!(longest < Duration::from_secs(3), "{longest:?}");
    runtime.block_on(check(&client, "moved", count));
    let only = BTreeSet::from([cluster.broker_address(0)]);
    assert_eq!(runtime.block_on(owners(&client, "moved")), only);
    // One that comes back moves nothing by itself, and gets what is pinned to it when the other dies.
    cluster.brokers[1].start();
    assert_eq!(runtime.block_on(owners(&client, "moved")), only);
    runtime.block_on(producer.close()).unwrap();
    cluster.stop();
}

/// All of it is acknowledged, and can be consumed again, and acknowledged at once, at whichever broker.
async fn is_whole(admin: &Admin) {
    let (_, cursors) = admin
        .describe_subscription("work", "jobs", false)
        .await
        .unwrap();
    assert_eq!(cursors.len(), PARTITIONS as usize);
    for cursor in cursors {
        let state = cursor.state.unwrap();
        assert_eq!(
            (state.backlog_records, state.base),
            (0, state.high_watermark)
        );
    }
    let of = || CursorSelection::new("work").topic("jobs");
    let moved = admin
        .seek_subscription(&of(), Start::Earliest, false)
        .await
        .unwrap();
    let back: u64 = moved.iter().map(|of| of.new_backlog_records).sum();
    assert!(
        moved.iter().all(|of| of.fault.is_none()) && back == 2_400,
        "{moved:?}"
    );
    let cleared = admin.clear_subscription(&of(), false).await.unwrap();
    assert!(cleared.iter().all(|of| of.fault.is_none()), "{cleared:?}");
    let described = admin.describe_topic("jobs").await.unwrap();
    let ends = described
        .partition
        .iter()
        .map(|of| of.high_watermark.unwrap().0);
    assert_eq!(ends.sum::<u64>(), 2_400);
}

#[test]
fn subscription_is_one_whichever_brokers_its_partitions_and_its_users_are_at() {
    let Some(mut cluster) = cluster(PORT + 120, 2) else {
        return;
    };
    let runtime = runtime();
    let (first, second) = (client_of(&cluster, 0), client_of(&cluster, 1));
    let begin = async {
        topic(&first, "jobs").await;
        let mut new = NewSubscription::new("work", "jobs");
        new.start = Start::Earliest;
        first.admin().create_subscription(new).await.unwrap();
        let producer = producer(&second, "jobs").await;
        send(&producer, 2_400).await;
        producer.close().await.unwrap();
        let consumer = second.consumer("jobs").subscription("work");
        consumer.build().await.unwrap()
    };
    let consumer = runtime.block_on(begin);
    let mut seen = BTreeSet::new();
    for number in 0..2_400 {
        let record = runtime.block_on(consumer.receive()).unwrap().unwrap();
        if seen.insert((record.partition, record.offset)) {
            // What was acknowledged does not come again, whoever dies.
            let acked = consumer.ack(&record);
            runtime.block_on(acked).unwrap();
        } else {
            assert!(record.redelivery, "{record:?}");
        }
        if number == 1_000 {
            cluster.brokers[0].kill();
        }
    }
    while seen.len() < 2_400 {
        let record = runtime.block_on(consumer.receive()).unwrap().unwrap();
        runtime.block_on(consumer.ack(&record)).unwrap();
        seen.insert((record.partition, record.offset));
    }
    cluster.brokers[0].start();
    runtime.block_on(async {
        drop(consumer.close().await.unwrap());
        // Half of them to the broker that came back, so that each has some.
        for partition in 0..PARTITIONS / 2 {
            let admin = first.admin();
            let moved = admin.move_partition("jobs", partition, "broker-1", false);
            moved.await.unwrap();
        }
        for admin in [first.admin(), second.admin()] {
            is_whole(&admin).await;
        }
        let points: Vec<_> = (0..PARTITIONS).map(|index| (index, TrimTo::End)).collect();
        let trimmed = first.admin().trim("jobs", &points).await.unwrap();
        assert!(trimmed.iter().all(|of| of.log_start.is_ok()), "{trimmed:?}");
        second
            .admin()
            .delete_subscription("work", "jobs", false)
            .await
            .unwrap();
    });
    cluster.stop();
}
