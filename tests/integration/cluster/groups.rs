//! Stream groups over two brokers: whichever broker a member asks, it is led to the group's coordinator; and when that one's broker is
//! killed, the members go on with what they have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hulse_sdk::{Client, Record, Start, StreamConsumer};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::super::report::report;
use super::owners::{client_at, runtime};
use super::processes::Cluster;

const PORT: u16 = 20_050;
/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_secs(90);
const PARTITIONS: u32 = 6;
const GROUP: &str = "g";
/// The topic whose partitions are the coordinators.
const SHARDS: &str = "hulse/internal/groups";

/// Where the group's coordinator is: the shard of a name is its FNV-1a.
async fn coordinator(client: &Client) -> String {
    let shards = client.admin().describe_topic(SHARDS).await.unwrap();
    let hash = GROUP.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let shard = hash % shards.partition.len() as u64;
    let owner = shards.partition[shard as usize].owner.clone();
    owner.expect("somebody has it")
}

/// How often each record came, by its number.
type Seen = Arc<Mutex<BTreeMap<u64, u32>>>;

async fn join(client: &Client) -> StreamConsumer {
    let builder = client.stream_consumer(["jobs"]).group(GROUP);
    let builder = builder.start(Start::Earliest);
    timeout(PATIENCE, builder.build()).await.unwrap().unwrap()
}

/// Commits what it takes, until it is closed.
fn work(consumer: &StreamConsumer, seen: &Seen) -> JoinHandle<()> {
    let (consumer, seen) = (consumer.clone(), Arc::clone(seen));
    tokio::spawn(async move {
        let handled = consumer.handle(50, |records| {
            let mut seen = seen.lock().unwrap();
            for record in &records {
                let value = record.value.as_ref().unwrap();
                let number = std::str::from_utf8(value).unwrap().parse().unwrap();
                *seen.entry(number).or_default() += 1;
            }
            async { Ok::<_, std::convert::Infallible>(()) }
        });
        handled.await.unwrap();
    })
}

/// Sends numbers, each with a key of its own, so that every partition gets some.
async fn send(client: &Client, numbers: std::ops::Range<u64>) {
    let producer = client.producer("jobs").build().await.unwrap();
    for number in numbers {
        let number = number.to_string();
        let record = Record::new(number.clone()).key(number);
        drop(producer.send(record).await.unwrap());
    }
    producer.close().await.unwrap();
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !holds() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

/// Each has half of the partitions, and none is both's.
async fn share(members: &[StreamConsumer; 2]) {
    until("they share", || {
        let all = members.iter().flat_map(StreamConsumer::partitions);
        let all: BTreeSet<_> = all.collect();
        let half = |member: &StreamConsumer| member.partitions().len() == PARTITIONS as usize / 2;
        all.len() == PARTITIONS as usize && members.iter().all(half)
    })
    .await;
}

#[test]
fn members_find_their_coordinator_from_any_broker_and_go_on_when_its_broker_is_killed() {
    let Some(mut cluster) = Cluster::start(PORT, 3) else {
        return;
    };
    cluster.add_broker();
    cluster.add_broker();
    runtime().block_on(go_on(&mut cluster));
    cluster.stop();
}

async fn go_on(cluster: &mut Cluster) {
    let at = [0, 1].map(|broker| cluster.broker_address(broker));
    // Each is told of one broker only; one of them asks the wrong one.
    let clients = at.each_ref().map(|at| client_at(at));
    let admin = clients[0].admin();
    admin.create_topic("jobs", PARTITIONS).await.unwrap();
    let seen = Seen::default();
    let members = [join(&clients[0]).await, join(&clients[1]).await];
    let working = members.each_ref().map(|member| work(member, &seen));
    share(&members).await;
    send(&clients[0], 0..1_000).await;
    let count = || seen.lock().unwrap().len();
    until("all of it", || count() == 1_000).await;
    let first = coordinator(&clients[0]).await;
    let victim = at.iter().position(|at| *at == first).expect("one of them");
    let other = 1 - victim;
    cluster.brokers[victim].kill();
    send(&clients[other], 1_000..2_000).await;
    until("all of it without the broker", || count() == 2_000).await;
    let second = coordinator(&clients[other]).await;
    assert_eq!(second, at[other], "another broker coordinates");
    // The group is as it was: nobody has lost anything, and nobody has joined anew.
    share(&members).await;
    for member in &members {
        let stats = member.stats();
        assert_eq!(stats.joins, 1, "{stats:?}");
    }
    cluster.brokers[victim].start();
    // And a member that asks the broker that has come back is led to the other one.
    timeout(PATIENCE, members[1].close())
        .await
        .unwrap()
        .unwrap();
    let third = join(&client_at(&at[victim])).await;
    let third_works = work(&third, &seen);
    let members = [members[0].clone(), third];
    share(&members).await;
    send(&clients[other], 2_000..2_500).await;
    until("the rest", || count() == 2_500).await;
    for member in &members {
        timeout(PATIENCE, member.close()).await.unwrap().unwrap();
    }
    for task in working.into_iter().chain([third_works]) {
        task.await.unwrap();
    }
    let seen = seen.lock().unwrap();
    let twice = seen.values().filter(|times| **times > 1).count();
    report(&format!(
        "records of a group whose coordinator was killed: {}, of these {twice} delivered again",
        seen.len()
    ));
}
