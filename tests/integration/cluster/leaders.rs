//! The leader of a three-member etcd dies or sleeps while topics are made and deleted, ledgers rolled and records produced: what is open
//! goes on, and whatever was in the middle of a transaction is found out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hulse_sdk::{Admin, Client, ErrorKind, Reason};

use super::super::report::rounds;
use super::load::{Load, runtime};
use super::ports::Ports;
use super::processes::Cluster;
use super::truth::{Fate, read_all};

const TOPIC: &str = "led";
/// Longer than an election.
const LEADER_WITHIN: Duration = Duration::from_secs(20);
/// A deletion that was answered ends by itself, also when it is found unfinished.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// What a run asks for at least, however slow the disk of etcd is, within `ENOUGH_WITHIN`.
const ENOUGH: usize = 24;
const ENOUGH_WITHIN: Duration = Duration::from_secs(120);
/// Ledgers are rolled all the time: two transactions each.
const SETTINGS: [(&str, &str); 1] = [("HULSE_BROKER__LEDGER_ROLL_SIZE", "1MiB")];

/// What is known of a topic that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Yes,
    No,
    /// Its deletion was answered: it is gone, or goes by itself.
    Deleted,
    Unknown,
}

/// Makes topics, and deletes every other one, until it is over and there are enough: what became of each.
async fn administer(client: Client, over: Arc<AtomicBool>) -> BTreeMap<String, Made> {
    let admin = client.admin();
    let mut topics = BTreeMap::new();
    let began = Instant::now();
    for number in 0.. {
        if over.load(Ordering::Relaxed) && (number >= ENOUGH || began.elapsed() > ENOUGH_WITHIN) {
            break;
        }
        let name = format!("made-{number}");
        let mut made = fate(
            admin.create_topic(&name, 1).await.map(drop),
            Made::Yes,
            Made::No,
        );
        if number % 2 == 1 && made == Made::Yes {
            made = fate(admin.delete_topic(&name).await, Made::Deleted, Made::Yes);
        }
        topics.insert(name, made);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    topics
}

/// What is known after an answer: done, not done, or neither.
fn fate(done: Result<(), hulse_sdk::Error>, after: Made, before: Made) -> Made {
    match done {
        Ok(()) => after,
        Err(error) if error.possibly_written() => Made::Unknown,
        Err(error) => {
            println!("not done: {error}");
            let typed =
                error.kind() == ErrorKind::Unavailable || error.kind() == ErrorKind::OutcomeUnknown;
            assert!(typed, "{error:?}");
            before
        }
    }
}

fn leader(cluster: &Cluster, but: Option<usize>) -> usize {
    let began = Instant::now();
    loop {
        match cluster.etcd.leader() {
            Some(leader) if Some(leader) != but => return leader,
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
        assert!(began.elapsed() < LEADER_WITHIN, "etcd has no leader");
    }
}

#[test]
fn open_partitions_go_on_when_the_leader_of_etcd_changes_inside_transactions() {
    let ports = Ports::take();
    let Some(mut cluster) = Cluster::start_on_three(ports.first, 3, &SETTINGS) else {
        return;
    };
    cluster.add_broker();
    cluster.add_broker();
    let runtime = runtime();
    let client = Client::builder(cluster.broker_address(0)).build().unwrap();
    let load = runtime.block_on(Load::begin(&client, TOPIC, 4));
    let over = Arc::new(AtomicBool::new(false));
    let administering = runtime.spawn(administer(client.clone(), Arc::clone(&over)));
    runtime.block_on(load.goes_on("the beginning"));
    for round in 0..rounds(2, 12) {
        let leads = leader(&cluster, None);
        let member = cluster.etcd.member(leads);
        match round % 2 {
            0 => member.kill(),
            // What it was asked for before, it does when it wakes.
            _ => member.signal("-STOP"),
        }
        runtime.block_on(load.goes_on(&format!("round {round}: member {leads} led")));
        // A sleeping one may still say that it leads, but it says nothing.
        if round % 2 == 0 {
            leader(&cluster, Some(leads));
            cluster.etcd.member(leads).start();
        } else {
            std::thread::sleep(Duration::from_millis(rounds(2_000, 6_000) as u64));
            cluster.etcd.member(leads).signal("-CONT");
        }
        runtime.block_on(load.goes_on(&format!("round {round}: member {leads} is back")));
    }
    over.store(true, Ordering::Relaxed);
    let topics = runtime.block_on(administering).unwrap();
    let (truth, followed) = runtime.block_on(load.end());
    let found = runtime.block_on(read_all(&client, TOPIC));
    truth.check(&found, "etcd's leader changes");
    truth.check(&followed, "what was followed while etcd's leader changed");
    let not = truth.count(|fate| !matches!(fate, Fate::Acked(_)));
    assert_eq!(not, 0, "no produce fails on partitions that are open");
    runtime.block_on(resolved(&client, &topics));
    cluster.stop();
}

/// What was answered is so; what was not is one or the other, and can be made so.
async fn resolved(client: &Client, topics: &BTreeMap<String, Made>) {
    let admin = client.admin();
    let began = Instant::now();
    for (name, made) in topics {
        match made {
            Made::Yes => drop(admin.describe_topic(name).await.unwrap()),
            Made::No => is_not_there(&admin, name).await.unwrap(),
            Made::Deleted => {
                while let Err(there) = is_not_there(&admin, name).await {
                    assert!(began.elapsed() < GONE_WITHIN, "{there}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            Made::Unknown => match admin.create_topic(name, 1).await {
                Ok(_) => {}
                Err(error) => assert_eq!(error.reason(), Some(Reason::TopicExists), "{error}"),
            },
        }
    }
    let unknown = topics.values().filter(|made| **made == Made::Unknown);
    let unknown = unknown.count();
    println!("{} topics, {unknown} of unknown fate", topics.len());
    assert!(topics.len() >= ENOUGH, "{topics:?}");
}

/// What is there instead.
async fn is_not_there(admin: &Admin, name: &str) -> Result<(), String> {
    match admin.describe_topic(name).await {
        Err(error) if error.reason() == Some(Reason::TopicNotFound) => Ok(()),
        other => Err(format!("{name}: {other:?}")),
    }
}
