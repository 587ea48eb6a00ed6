//! Metadata that go away (ARCHITECTURE D6): what is open goes on, also when a bookie dies meanwhile; the rest waits with a typed reason,
//! and all of it heals.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hulse_sdk::{Client, Reason};

use super::super::report::rounds;
use super::load::{Load, runtime};
use super::processes::{Cluster, Node};
use super::truth::{Fate, read_all};

const PORT: u16 = 18_468;
const TOPIC: &str = "without-etcd";

/// One test at a time: both have the same ports.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn open_partitions_go_on_without_etcd_and_with_one_bookie_less() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut cluster) = Cluster::start_linked(PORT, 3) else {
        return;
    };
    cluster.add_broker();
    let runtime = runtime();
    let client = Client::builder(cluster.broker_address(0)).build().unwrap();
    let load = runtime.block_on(Load::begin(&client, TOPIC, 4));
    runtime.block_on(load.goes_on("the beginning"));
    let away = Duration::from_secs(rounds(20, 600) as u64);
    let began = Instant::now();
    cluster.etcd.process.kill();
    while began.elapsed() < away / 2 {
        runtime.block_on(load.goes_on("the end of etcd"));
    }
    cluster.bookies[1].kill();
    while began.elapsed() < away {
        runtime.block_on(load.goes_on("the end of etcd and of a bookie"));
    }
    // What needs metadata waits, and says for what.
    let hasty = Client::builder(cluster.broker_address(0));
    let hasty = hasty
        .request_timeout(Duration::from_secs(12))
        .build()
        .unwrap();
    let refused = runtime.block_on(hasty.admin().create_topic("not-now", 1));
    let told = refused.unwrap_err().to_string().to_lowercase();
    assert!(told.contains("metadata"), "{told}");

    cluster.process(Node::Etcd).start();
    cluster.bookies[1].start();
    runtime.block_on(load.goes_on("everything is back"));
    let made = runtime.block_on(client.admin().create_topic("now", 1));
    made.unwrap();
    let (truth, followed) = runtime.block_on(load.end());
    let found = runtime.block_on(read_all(&client, TOPIC));
    truth.check(&found, "without etcd");
    truth.check(&followed, "what was followed without etcd");
    let lost = truth.count(|fate| !matches!(fate, Fate::Acked(_)));
    assert_eq!(lost, 0, "no produce fails");
    assert_eq!(followed.len(), found.len(), "no delivery is missed");
    cluster.stop();
}

#[test]
fn fewer_bookies_than_a_record_needs_are_told_and_records_wait_for_them() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut cluster) = Cluster::start_linked(PORT, 3) else {
        return;
    };
    // A broker that starts while a bookie is down serves.
    cluster.bookies[2].kill();
    cluster.add_broker();
    let runtime = runtime();
    let at = cluster.broker_address(0);
    let client = Client::builder(&at).build().unwrap();
    let load = runtime.block_on(Load::begin(&client, TOPIC, 2));
    runtime.block_on(load.goes_on("a start with one bookie less"));
    let (code, told) = health(&at, "b3");
    assert_eq!(code, Some(1), "{told}");
    for words in ["DOCTOR-30", "b3", "hulse bookies lost b3"] {
        assert!(told.contains(words), "{told}");
    }

    // One is not enough: nothing is answered, and a new topic says why.
    cluster.bookies[1].kill();
    let (_, told) = health(&at, "DOCTOR-31");
    assert!(told.contains("1 do, and each record needs 2"), "{told}");
    let hasty = Client::builder(&at).request_timeout(Duration::from_secs(4));
    let hasty = hasty.build().unwrap();
    let refused = runtime.block_on(async {
        hasty.admin().create_topic("few", 1).await.unwrap();
        let producer = hasty.producer("few");
        let producer = producer.delivery_timeout(Duration::from_secs(4));
        let producer = producer.build().await?;
        producer.send(hulse_sdk::Record::new("x")).await?.await
    });
    let refused = refused.unwrap_err();
    let told = refused.to_string();
    let typed = refused.reason() == Some(Reason::NotEnoughBookies)
        || told.contains(Reason::NotEnoughBookies.as_str());
    assert!(typed, "{refused:?}");

    cluster.bookies[1].start();
    cluster.bookies[2].start();
    runtime.block_on(load.goes_on("all bookies are back"));
    let (truth, followed) = runtime.block_on(load.end());
    let found = runtime.block_on(read_all(&client, TOPIC));
    truth.check(&found, "with too few bookies");
    truth.check(&followed, "what was followed with too few bookies");
    assert_eq!(truth.count(|fate| fate == Fate::Failed), 0);
    cluster.stop();
}

/// `hulse cluster health`, once it says these words: leases end in their time.
fn health(at: &str, words: &str) -> (Option<i32>, String) {
    let began = Instant::now();
    loop {
        let output = super::super::server::run(&["--server", at, "cluster", "health"], "");
        let told = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        if told.contains(words) || began.elapsed() > Duration::from_secs(20) {
            return (output.status.code(), told);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
