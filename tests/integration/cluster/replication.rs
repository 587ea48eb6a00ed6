//! How many copies a topic's records have: asked for by topic, refused where it cannot be, changed while records come, worth what it says
//! when disks are gone for good, waited for when all disks are full, and made again also where nobody writes.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hulse_sdk::{Admin, Bookies, Client, Ledger, NewTopic, Reason, Record, Replication, Start};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::super::server::{http_get, run};
use super::processes::Cluster;
use super::records::runtime;

const PORT: u16 = 19_050;

/// One test at a time: all have the same ports.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Far above what a change takes to reach every owner.
const ROLLED_WITHIN: Duration = Duration::from_secs(30);

fn client(cluster: &Cluster, broker: usize) -> Client {
    let client = Client::builder(cluster.broker_address(broker));
    client.build().unwrap()
}

/// Sends numbered records; every one must get its receipt.
async fn produce(client: &Client, topic: &str, range: std::ops::Range<u32>) {
    let producer = client.producer(topic).build().await.unwrap();
    let mut tickets = Vec::new();
    for number in range {
        tickets.push(
            producer
                .send(Record::new(format!("{number:0500}")))
                .await
                .unwrap(),
        );
    }
    for ticket in tickets {
        ticket.await.unwrap();
    }
    producer.close().await.unwrap();
}

async fn read(client: &Client, topic: &str) -> Vec<u32> {
    let reader = client.reader(topic).start(Start::Earliest).follow(false);
    let mut reader = reader.build().await.unwrap();
    let mut numbers = Vec::new();
    while let Some(record) = reader.next().await.unwrap() {
        let text = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
        numbers.push(text.parse().unwrap());
    }
    numbers
}

fn told(at: &str, arguments: &[&str], code: i32) -> String {
    let output = run(&[&["--server", at], arguments].concat(), "");
    let told = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
    told
}

fn described(at: &str, topic: &str) -> Value {
    let output = run(&["--server", at, "-j", "topics", "describe", topic], "");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn ledgers(runtime: &Runtime, admin: &Admin, topic: &str) -> Vec<Ledger> {
    runtime.block_on(admin.list_ledgers(topic)).unwrap()
}

/// Waits until the ledgers of a topic are so.
fn until(
    runtime: &Runtime,
    admin: &Admin,
    topic: &str,
    what: &str,
    holds: impl Fn(&[Ledger]) -> bool,
) {
    let began = Instant::now();
    loop {
        let found = ledgers(runtime, admin, topic);
        if holds(&found) {
            return;
        }
        assert!(began.elapsed() < ROLLED_WITHIN, "{what}: {found:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn wipe(cluster: &mut Cluster, bookie: usize) {
    cluster.bookies[bookie].kill();
    std::fs::remove_dir_all(cluster.data(bookie)).unwrap();
}

/// The numbers, from 0, of the bookies that every one of these ledgers is on.
fn common(ledgers: &[Ledger]) -> Vec<usize> {
    let mut sets = ledgers.iter().map(|ledger| {
        let bookies = ledger.bookies.iter();
        bookies.cloned().collect::<BTreeSet<String>>()
    });
    let first = sets.next().unwrap_or_default();
    let all = sets.fold(first, |all, these| &all & &these);
    let number = |name: &String| name[1..].parse::<usize>().unwrap() - 1;
    all.iter().map(number).collect()
}

#[test]
fn copies_that_were_waited_for_are_what_disks_may_be_lost() {
    let _turn = turn();
    let settings = [("HULSE_BROKER__LEDGER_ROLL_SIZE", "1MiB")];
    let Some(mut cluster) = Cluster::start_with(PORT, 5, &settings) else {
        return;
    };
    cluster.add_broker();
    let runtime = runtime();
    let sdk = client(&cluster, 0);
    let admin = sdk.admin();
    let waits_for = |ack| NewTopic {
        partitions: 1,
        replication: Some(Replication {
            ack_quorum: Some(ack),
            ..Replication::factor(3)
        }),
        ..NewTopic::default()
    };
    for (topic, ack) in [("all", 3), ("most", 2)] {
        let made = runtime.block_on(admin.create_topic_with(topic, waits_for(ack)));
        assert_eq!(made.unwrap().effective_replication.ack_quorum, Some(ack));
        runtime.block_on(produce(&sdk, topic, 0..3_000));
    }
    // While records come the two bookies go that hold most of what was waited for everywhere, one after the other, before anything
    // is repaired.
    let held = common(&ledgers(&runtime, &admin, "all"));
    let fallback = [0, 1, 2, 3, 4].into_iter();
    let mut doomed = held.into_iter().chain(fallback).collect::<Vec<_>>();
    doomed.dedup();
    let (first, second) = (
        doomed[0],
        doomed[1..]
            .iter()
            .copied()
            .find(|at| *at != doomed[0])
            .unwrap(),
    );
    let producing = {
        let sdk = client(&cluster, 0);
        runtime.spawn(async move { produce(&sdk, "all", 3_000..6_000).await })
    };
    std::thread::sleep(Duration::from_millis(100));
    wipe(&mut cluster, first);
    let all: Vec<u32> = (0..3_000).collect();
    assert_eq!(runtime.block_on(read(&sdk, "most")), all, "one of two");
    wipe(&mut cluster, second);
    runtime.block_on(producing).unwrap();
    let all: Vec<u32> = (0..6_000).collect();
    assert_eq!(runtime.block_on(read(&sdk, "all")), all, "two of three");
    // Also by a broker that knows nothing but what is stored.
    cluster.brokers[0].kill();
    cluster.brokers[0].start();
    assert_eq!(
        runtime.block_on(read(&sdk, "all")),
        all,
        "after a take-over"
    );
    runtime.block_on(produce(&sdk, "all", 6_000..6_100));
}

/// Of a cluster of three bookies.
fn impossible_copies_are_refused(at: &str) {
    let refused = told(at, &["topics", "create", "five", "-r", "5"], 1);
    for words in ["HULSE-1010", "3 are registered", "hulse bookie"] {
        assert!(refused.contains(words), "{refused}");
    }
    let refused = told(at, &["topics", "create", "four", "--ack-quorum", "4"], 1);
    assert!(refused.contains("no record ever would"), "{refused}");
    let refused = told(
        at,
        &[
            "topics",
            "create",
            "x",
            "--ensemble",
            "2",
            "--write-quorum",
            "3",
        ],
        1,
    );
    assert!(refused.contains("HULSE-1010"), "{refused}");
}

#[test]
fn copies_are_asked_for_refused_and_changed_by_topic() {
    let _turn = turn();
    let Some(mut cluster) = Cluster::start(PORT, 3) else {
        return;
    };
    cluster.add_broker();
    cluster.add_broker();
    let at = cluster.broker_address(0);
    let runtime = runtime();
    let sdk = client(&cluster, 0);
    let admin = sdk.admin();
    impossible_copies_are_refused(&at);

    let made = told(&at, &["topics", "create", "grows", "-p", "2", "-r", "1"], 0);
    assert!(made.contains("1 copy"), "{made}");
    runtime.block_on(produce(&sdk, "grows", 0..500));
    let one = |all: &[Ledger]| all.iter().all(|ledger| ledger.bookies.len() == 1);
    assert!(one(&ledgers(&runtime, &admin, "grows")));
    let shown = described(&at, "grows");
    assert_eq!(
        (&shown["write_quorum"], &shown["ack_quorum"]),
        (&1.into(), &1.into())
    );

    // Open ledgers are rolled, whoever owns them and also where nobody writes; what is closed stays as it is, and is told.
    let words = told(
        &at,
        &["topics", "update", "grows", "-r", "3", "--ack-quorum", "3"],
        0,
    );
    assert!(words.contains("waits for all 3 copies"), "{words}");
    until(
        &runtime,
        &admin,
        "grows",
        "open ledgers have three copies",
        |all| {
            let mut open = all.iter().filter(|ledger| ledger.state == "open");
            let logs = all
                .iter()
                .filter(|ledger| ledger.kind == "log" && ledger.state == "open");
            logs.count() >= 1 && open.all(|ledger| ledger.bookies.len() == 3)
        },
    );
    runtime.block_on(produce(&sdk, "grows", 500..1_000));
    let shown = described(&at, "grows");
    assert_eq!(
        (&shown["write_quorum"], &shown["ack_quorum"]),
        (&3.into(), &3.into())
    );
    assert!(
        shown["ledgers_made_with_fewer_copies"].as_u64() >= Some(1),
        "{shown}"
    );
    let words = told(&at, &["topics", "describe", "grows"], 0);
    assert!(words.contains("were made with fewer copies"), "{words}");
    let refused = told(&at, &["topics", "update", "grows", "-r", "9"], 1);
    assert!(refused.contains("3 are registered"), "{refused}");

    told(&at, &["topics", "update", "grows", "-r", "default"], 0);
    let shown = described(&at, "grows");
    assert_eq!(
        (&shown["write_quorum"], &shown["ack_quorum"]),
        (&3.into(), &2.into())
    );
    let found = runtime.block_on(read(&client(&cluster, 1), "grows"));
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 1_000);
    assert_eq!(found.len(), 1_000);
    cluster.stop();
}

/// Starts every bookie again with so much room that is to stay free.
fn keep_free(cluster: &mut Cluster, reserve: &str) {
    for bookie in &mut cluster.bookies {
        assert!(bookie.stop().success());
        bookie.set("HULSE_BOOKIE__DISK_RESERVE", reserve);
        bookie.start();
    }
}

#[test]
fn full_disks_of_all_bookies_are_told_and_records_wait_for_room() {
    let _turn = turn();
    let Some(mut cluster) = Cluster::start(PORT, 3) else {
        return;
    };
    cluster.add_broker();
    let at = cluster.broker_address(0);
    let runtime = runtime();
    let sdk = client(&cluster, 0);
    runtime.block_on(produce(&sdk, "orders", 0..500));
    keep_free(&mut cluster, "500TiB");
    let began = Instant::now();
    loop {
        let output = run(&["--server", &at, "cluster", "health"], "");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        if told.contains("3 are full") {
            assert_eq!(output.status.code(), Some(1), "{told}");
            assert!(
                told.contains("DOCTOR-31") && told.contains("enlarge"),
                "{told}"
            );
            break;
        }
        assert!(began.elapsed() < ROLLED_WITHIN, "{told}");
        std::thread::sleep(Duration::from_millis(200));
    }
    // Whoever gives up hears why; what is there is read.
    let refused = runtime.block_on(async {
        let producer = client(&cluster, 0).producer("orders");
        let producer = producer.delivery_timeout(Duration::from_secs(5));
        let producer = producer.build().await?;
        producer.send(Record::new("500")).await?.await
    });
    let refused = refused.unwrap_err();
    let typed = refused.reason() == Some(Reason::StorageFull)
        || refused.to_string().contains(Reason::StorageFull.as_str());
    assert!(typed, "{refused:?}");
    let all: Vec<u32> = (0..500).collect();
    assert_eq!(runtime.block_on(read(&sdk, "orders")), all);
    // Whoever waits is served once there is room.
    let waiting = {
        let sdk = client(&cluster, 0);
        runtime.spawn(async move { produce(&sdk, "orders", 500..600).await })
    };
    std::thread::sleep(Duration::from_secs(2));
    assert!(!waiting.is_finished());
    keep_free(&mut cluster, "1MiB");
    runtime.block_on(waiting).unwrap();
    let all: Vec<u32> = (0..600).collect();
    assert_eq!(runtime.block_on(read(&sdk, "orders")), all);
    cluster.stop();
}

/// Waits until every ledger has all its copies and none names this bookie any more.
fn until_left(runtime: &Runtime, admin: &Admin, bookie: usize) {
    let name = format!("b{}", bookie + 1);
    let left = |found: &Bookies| {
        let bookie = found.bookies.iter().find(|one| one.name == name);
        let named = bookie.and_then(|one| one.holds).map(|(ledgers, _)| ledgers);
        let upkeep = found.upkeep.as_ref();
        named == Some(0) && upkeep.is_some_and(|upkeep| upkeep.lacking_ledgers == 0)
    };
    let began = Instant::now();
    loop {
        let found = runtime.block_on(admin.list_bookies()).unwrap();
        if left(&found) {
            return;
        }
        assert!(
            began.elapsed() < Duration::from_secs(90),
            "{name}: {found:#?}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn ledgers_that_nobody_writes_to_get_their_copies_again() {
    let _turn = turn();
    let quick = [
        ("HULSE_UPKEEP__LOST_AFTER", "2s"),
        ("HULSE_UPKEEP__AUDIT_INTERVAL", "1s"),
    ];
    let Some(mut cluster) = Cluster::start_with(PORT, 5, &quick) else {
        return;
    };
    cluster.add_broker();
    let runtime = runtime();
    let sdk = client(&cluster, 0);
    let admin = sdk.admin();
    runtime.block_on(produce(&sdk, "orders", 0..500));
    // Their owner is dead, and no client asks for the partition.
    let open = ledgers(&runtime, &admin, "orders");
    let lost = common(&open)[0];
    cluster.brokers[0].kill();
    wipe(&mut cluster, lost);
    cluster.brokers[0].start();
    until_left(&runtime, &admin, lost);
    let all: Vec<u32> = (0..500).collect();
    assert_eq!(runtime.block_on(read(&sdk, "orders")), all);
    // Their owner lives, and nobody sends anything.
    runtime.block_on(produce(&sdk, "orders", 500..600));
    let found = ledgers(&runtime, &admin, "orders");
    let open: Vec<Ledger> = found
        .into_iter()
        .filter(|ledger| ledger.state == "open")
        .collect();
    let away = common(&open)[0];
    cluster.bookies[away].kill();
    until_left(&runtime, &admin, away);
    let all: Vec<u32> = (0..600).collect();
    assert_eq!(runtime.block_on(read(&sdk, "orders")), all);
    // One of those that are left plans, and tells how far it is.
    let began = Instant::now();
    let planning = loop {
        let lives = (0..5).filter(|bookie| ![lost, away].contains(bookie));
        let pages = lives.filter_map(|bookie| http_get(&cluster.bookie_http(bookie), "/metrics"));
        let plans = |page: &String| page.lines().any(|line| line == "hulse_upkeep_planning 1");
        let planning: Vec<String> = pages.filter(plans).collect();
        match &planning[..] {
            [one] if one.contains("hulse_upkeep_lacking_ledgers 0") => break one.clone(),
            _ => assert!(began.elapsed() < ROLLED_WITHIN, "{planning:?}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    for told in ["last_pass_duration_seconds ", "passes_total "] {
        let told = format!("hulse_upkeep_{told}");
        assert!(planning.contains(&told), "{told}");
    }
}
