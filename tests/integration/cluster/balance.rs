//! Partitions are spread over brokers by load, by one elected balancer, while producers go on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hulse_sdk::{Client, Producer, Record};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::super::report::report;
use super::super::server::run;
use super::owners::{check, client_at, producer, runtime};
use super::processes::Cluster;

const PORT: u16 = 19_000;
const PARTITIONS: u32 = 24;
const TOPIC: &str = "spread";
const PERIOD: Duration = Duration::from_secs(6);
/// A balancer that was killed has a successor by then: its lease, and the time between two tries.
const SUCCESSOR_WITHIN: Duration = Duration::from_secs(20);
/// A record of each partition this often.
const PACE: Duration = Duration::from_millis(20);

fn json(at: &str, arguments: &[&str]) -> Value {
    let output = run(&[&["--server", at, "-j"], arguments].concat(), "");
    assert!(output.status.success(), "{arguments:?} {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The partitions of each broker.
fn owners(client: &Client) -> impl Future<Output = BTreeMap<String, Vec<u32>>> {
    let admin = client.admin();
    async move {
        let described = admin.describe_topic(TOPIC).await.unwrap();
        let mut owners: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (index, partition) in (0..).zip(described.partition) {
            owners
                .entry(partition.owner.unwrap())
                .or_default()
                .push(index);
        }
        owners
    }
}

/// Sends to all partitions until it is told to end; how long each record waited for its receipt.
async fn send_on(producer: Producer, end: Arc<AtomicBool>) -> Vec<Duration> {
    let mut tick = tokio::time::interval(PACE);
    let mut waiting = JoinSet::new();
    let mut waits = Vec::new();
    while !end.load(Ordering::Relaxed) {
        tick.tick().await;
        for partition in 0..PARTITIONS {
            let sent = Instant::now();
            let record = Record::new(vec![b'x'; 1_000]).partition(partition);
            let ticket = producer.send(record).await.unwrap();
            waiting.spawn(async move {
                ticket.await.expect("no produce fails");
                sent.elapsed()
            });
        }
        while let Some(ended) = waiting.try_join_next() {
            waits.push(ended.unwrap());
        }
    }
    while let Some(ended) = waiting.join_next().await {
        waits.push(ended.unwrap());
    }
    waits
}

/// Waits until each of so many brokers has its share of the partitions, within a fifth of the mean; how long that took.
fn until_shared(runtime: &Runtime, cluster: &Cluster, client: &Client, brokers: usize) -> Duration {
    let began = Instant::now();
    let mean = PARTITIONS as usize / brokers;
    loop {
        let owners = runtime.block_on(owners(client));
        let even = |of: &Vec<u32>| of.len().abs_diff(mean) * 5 <= mean;
        if owners.len() == brokers && owners.values().all(even) {
            return began.elapsed();
        }
        let waited = began.elapsed();
        let status = || json(&cluster.broker_address(0), &["cluster", "status"]);
        assert!(waited < 5 * PERIOD, "{owners:?} {}", status());
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The balancer, once there is one that is not `before`.
fn balancer(at: &str, before: Option<&str>) -> (String, Duration) {
    let began = Instant::now();
    loop {
        let status = json(at, &["cluster", "status"]);
        if let Some(name) = status["balancer"].as_str()
            && before != Some(name)
        {
            return (name.to_owned(), began.elapsed());
        }
        assert!(began.elapsed() < SUCCESSOR_WITHIN, "{status}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// One cluster at a time: all have the same ports.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves of the one partition whose pause is measured.
const MOVES: u32 = 40;

/// Sends one record after the other until it is told to end; when each was sent and answered.
async fn send_one_by_one(producer: Producer, end: Arc<AtomicBool>) -> Vec<(Instant, Instant)> {
    let mut answered = Vec::new();
    while !end.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let record = Record::new(vec![b'x'; 1_000]).partition(0);
        let ticket = producer.send(record).await.unwrap();
        ticket.await.expect("no produce fails");
        answered.push((sent, Instant::now()));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    answered
}

/// The time of one write that is made durable, beside what is measured.
fn sync(file: &mut File) -> Duration {
    let began = Instant::now();
    file.write_all(&[0; 4096]).unwrap();
    file.sync_data().unwrap();
    began.elapsed()
}

#[test]
fn producer_waits_a_moment_only_while_its_partition_changes_hands() {
    let _turn = turn();
    let settings = [("HULSE_BALANCE__INTERVAL", "off")];
    let Some(mut cluster) = Cluster::start_with(PORT, 3, &settings) else {
        return;
    };
    cluster.add_broker();
    cluster.add_broker();
    let runtime = runtime();
    let client = client_at(&cluster.broker_address(0));
    let admin = client.admin();
    runtime.block_on(admin.create_topic("handed", 1)).unwrap();
    let sending = runtime.block_on(producer(&client, "handed"));
    let end = Arc::new(AtomicBool::new(false));
    let sent = runtime.spawn(send_one_by_one(sending.clone(), Arc::clone(&end)));
    std::thread::sleep(Duration::from_secs(1));
    let mut control = tempfile::tempfile().unwrap();
    let (mut moves, mut syncs) = (Vec::new(), Vec::new());
    for number in 0..MOVES {
        let to = ["broker-1", "broker-2"][number as usize % 2];
        let began = Instant::now();
        let moved = admin.move_partition("handed", 0, to, false);
        runtime.block_on(moved).unwrap();
        syncs.push(sync(&mut control));
        std::thread::sleep(Duration::from_millis(100));
        moves.push((began, Instant::now()));
    }
    end.store(true, Ordering::Relaxed);
    let answered = runtime.block_on(sent).unwrap();
    runtime.block_on(sending.close()).unwrap();
    runtime.block_on(check(&client, "handed", answered.len() as u64));
    // The longest wait of a record that was under way during each move.
    let pause = |(began, ended): &(Instant, Instant)| {
        let during = answered.iter();
        let during = during.filter(|(sent, told)| told >= began && sent <= ended);
        during.map(|(sent, told)| *told - *sent).max().unwrap()
    };
    let mut pauses: Vec<Duration> = moves.iter().map(pause).collect();
    let mut all: Vec<Duration> = answered.iter().map(|(sent, told)| *told - *sent).collect();
    for times in [&mut pauses, &mut all, &mut syncs] {
        times.sort();
    }
    let at = |times: &[Duration], percent: usize| times[(times.len() - 1) * percent / 100];
    report(&format!(
        "hand-over: of {MOVES} moves under a producer the pause was {:.1?} (p50), {:.1?} (p90), {:.1?} (longest); a record beside them took \
         {:.1?} (p50), a sync {:.1?} (p50), {:.1?} (longest)",
        at(&pauses, 50),
        at(&pauses, 90),
        at(&pauses, 100),
        at(&all, 50),
        at(&syncs, 50),
        at(&syncs, 100)
    ));
    assert!(at(&pauses, 90) < Duration::from_secs(2), "{pauses:?}");
    cluster.stop();
}

#[test]
fn broker_that_is_added_under_load_gets_its_share_whoever_balances_and_pinned_partitions_stay() {
    let _turn = turn();
    let settings = [
        ("HULSE_BALANCE__INTERVAL", "6s"),
        ("HULSE_BALANCE__COOLDOWN", "15s"),
    ];
    let Some(mut cluster) = Cluster::start_with(PORT, 3, &settings) else {
        return;
    };
    cluster.add_broker();
    let at = cluster.broker_address(0);
    let alone = json(&at, &["brokers", "balance"]);
    assert_eq!(alone, Value::Array(Vec::new()), "one broker moves nothing");
    assert!(json(&at, &["cluster", "status"])["balancer"].is_null());
    cluster.add_broker();
    let runtime = runtime();
    let client = client_at(&at);
    let admin = client.admin();
    runtime
        .block_on(admin.create_topic(TOPIC, PARTITIONS))
        .unwrap();
    let sending = runtime.block_on(producer(&client, TOPIC));
    let end = Arc::new(AtomicBool::new(false));
    let sent = runtime.spawn(send_on(sending.clone(), Arc::clone(&end)));
    // Two that do not go away whoever comes.
    for partition in [3, 4] {
        let moved = admin.move_partition(TOPIC, partition, "broker-1", true);
        runtime.block_on(moved).unwrap();
    }
    until_shared(&runtime, &cluster, &client, 2);

    cluster.add_broker();
    let took = until_shared(&runtime, &cluster, &client, 3);
    assert!(took < 2 * PERIOD + Duration::from_secs(4), "{took:?}");
    let list = json(&at, &["brokers", "list"]);
    for broker in list.as_array().unwrap() {
        assert!(
            broker["load_bytes_per_s"].as_u64().unwrap() > 10_000,
            "{list}"
        );
    }

    // Another one balances when this one is killed, and gives it its share when it comes back.
    let (first, _) = balancer(&at, None);
    let victim = (0..3)
        .find(|index| first == format!("broker-{}", index + 1))
        .unwrap();
    let other = cluster.broker_address((victim + 1) % 3);
    let others = client_at(&other);
    cluster.brokers[victim].kill();
    let (second, succeeded) = balancer(&other, Some(&first));
    cluster.brokers[victim].start();
    let back = until_shared(&runtime, &cluster, &others, 3);
    let pinned = runtime.block_on(owners(&others));
    let home = pinned.get(&cluster.broker_address(0)).unwrap();
    if victim != 0 {
        assert!(home.contains(&3) && home.contains(&4), "{pinned:?}");
    }
    end.store(true, Ordering::Relaxed);
    let mut waits = runtime.block_on(sent).unwrap();
    waits.sort();
    runtime.block_on(sending.close()).unwrap();
    runtime.block_on(check(&others, TOPIC, waits.len() as u64));
    let status = json(&other, &["cluster", "status"]);
    let percentile = |of: usize| waits[(waits.len() - 1) * of / 100];
    report(&format!(
        "balance: a third broker had its share of {PARTITIONS} partitions after {took:.1?} (period {PERIOD:?}); {first} was killed, {second} \
         balanced after {succeeded:.1?}, {first} had its share again after {back:.1?}; of {} records p50 {:?}, p99 {:?}, longest {:?}; {}",
        waits.len(),
        percentile(50),
        percentile(99),
        percentile(100),
        status["balance"]
    ));
    cluster.stop();
}
