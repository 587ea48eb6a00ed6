//! Public troubles of other platforms, as far as they are about several processes: LD-02, LD-06, LD-09 and LD-11 of the cases. Times are
//! shorter than there unless HULSE_LONG=1.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hulse_sdk::{Client, Record, SubscriptionConsumer};

use super::super::proxy::Proxy;
use super::super::report::rounds;
use super::super::server::http_get;
use super::load::{Load, runtime};
use super::processes::Cluster;
use super::truth::{Fate, Id, Numbered, Place, Truth, id_of, read_all};

const PORT: u16 = 18_496;

/// One case at a time: each has several processes, on the same ports.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies of each record, and how many are on disk before an answer.
const QUORUMS: [(u32, u32); 3] = [(2, 2), (1, 1), (3, 2)];

/// LD-02: after restarts under load, a new full read has everything that the live one saw, and everything that was acknowledged.
#[test]
fn full_read_after_rolling_restarts_has_everything() {
    let _turn = turn();
    for quorums in QUORUMS {
        let (copies, ack) = (quorums.0.to_string(), quorums.1.to_string());
        let settings = [
            ("HULSE_BROKER__REPLICATION__ENSEMBLE", copies.as_str()),
            ("HULSE_BROKER__REPLICATION__WRITE_QUORUM", &copies),
            ("HULSE_BROKER__REPLICATION__ACK_QUORUM", &ack),
        ];
        let Some(mut cluster) = Cluster::start_linked_with(PORT, 3, &settings) else {
            return;
        };
        cluster.add_broker();
        let runtime = runtime();
        let client = Client::builder(cluster.broker_address(0)).build().unwrap();
        let load = runtime.block_on(Load::begin(&client, "restarted", 12));
        let live = runtime.spawn(consume(client.clone(), "restarted", "a"));
        for round in 0..rounds(2, 6) {
            runtime.block_on(load.goes_on("a restart"));
            match round % 2 {
                0 => assert!(cluster.brokers[0].stop().success()),
                _ => cluster.brokers[0].kill(),
            }
            cluster.brokers[0].start();
        }
        runtime.block_on(load.goes_on("the restarts"));
        let (truth, _) = runtime.block_on(load.end());
        let a = runtime.block_on(live).unwrap();
        let b = runtime.block_on(read_all(&client, "restarted"));
        truth.check(&b, &format!("LD-02 with {quorums:?}"));
        let known: std::collections::BTreeSet<_> = b.iter().collect();
        let strange: Vec<_> = a.iter().filter(|seen| !known.contains(seen)).collect();
        assert!(strange.is_empty(), "seen and gone: {strange:?}");
        dense(&b);
        cluster.stop();
    }
}

/// No offset of a partition is missing in the middle.
fn dense(found: &[(Place, Id)]) {
    let mut next = std::collections::BTreeMap::<u32, u64>::new();
    for ((partition, offset), _) in found {
        let next = next.entry(*partition).or_default();
        assert_eq!(offset, next, "a hole in partition {partition}");
        *next += 1;
    }
}

/// Consumes and acknowledges until nothing comes any more.
async fn consume(client: Client, topic: &str, name: &str) -> Vec<(Place, Id)> {
    let consumer = client.consumer(topic).subscription(name);
    let consumer = consumer.start(hulse_sdk::Start::Earliest);
    let consumer: SubscriptionConsumer = consumer.build().await.unwrap();
    let mut seen = Vec::new();
    while let Ok(record) = tokio::time::timeout(Duration::from_secs(8), consumer.receive()).await {
        let record = record.unwrap().expect("it is not closed");
        let value = record.value.clone().unwrap_or_default();
        seen.push(((record.partition, record.offset.0), id_of(&value)));
        // An acknowledgement that a broken session takes with it is made again.
        let _sent_again_after_a_break = consumer.ack(&record).await;
    }
    seen
}

/// LD-06: an idempotent producer of small batches stores nothing twice when its broker dies or its link breaks.
#[test]
fn idempotent_producer_stores_nothing_twice_over_kills_and_cuts() {
    let _turn = turn();
    let Some(mut cluster) = Cluster::start_linked(PORT, 3) else {
        return;
    };
    let listen = format!("127.0.0.1:{}", PORT + 27);
    let mut broker = cluster.broker(0);
    broker.set("HULSE_LISTEN__ADVERTISE", &listen);
    cluster.brokers.push(broker);
    cluster.brokers[0].start();
    let runtime = runtime();
    let proxy = runtime.block_on(Proxy::start(&listen, cluster.broker_address(0)));
    let client = Client::builder(&proxy.address).build().unwrap();
    let load = runtime.block_on(Load::begin(&client, "idempotent", 6));
    for _ in 0..rounds(2, 6) {
        runtime.block_on(load.goes_on("the beginning"));
        // Open requests wait for their answers, and then never get them.
        proxy.stall(true);
        std::thread::sleep(Duration::from_millis(500));
        proxy.cut(true);
        std::thread::sleep(Duration::from_secs(1));
        proxy.stall(false);
        proxy.cut(false);
        runtime.block_on(load.goes_on("a cut"));
        cluster.brokers[0].kill();
        cluster.brokers[0].start();
        runtime.block_on(load.goes_on("a kill"));
    }
    let (truth, _) = runtime.block_on(load.end());
    let found = runtime.block_on(read_all(&client, "idempotent"));
    truth.check(&found, "LD-06");
    let not = truth.count(|fate| !matches!(fate, Fate::Acked(_)));
    assert_eq!(not, 0, "the producer never sees an error");
    assert_eq!(truth.count(|_| true), found.len());
    cluster.stop();
}

/// How often a bookie has synced.
fn syncs(cluster: &Cluster, bookie: usize) -> u64 {
    let page = http_get(&cluster.bookie_http(bookie), "/metrics").unwrap();
    let name = "hulse_bookie_sync_seconds_count ";
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}: {page}"))
        .trim()
        .parse()
        .unwrap()
}

/// LD-09: between a record and its answer, as many bookies as the ack quorum have synced; and a bookie that dies, one that is frozen and
/// a broker that is killed together lose nothing.
#[test]
fn answer_comes_after_the_syncs_of_an_ack_quorum() {
    let _turn = turn();
    let Some(mut cluster) = Cluster::start_linked(PORT, 3) else {
        return;
    };
    cluster.add_broker();
    let runtime = runtime();
    let client = Client::builder(cluster.broker_address(0)).build().unwrap();
    runtime
        .block_on(client.admin().create_topic("synced", 1))
        .unwrap();
    let producer = runtime.block_on(client.producer("synced").build()).unwrap();
    let truth = std::sync::Arc::new(Truth::default());
    let mut numbered = Numbered::new(&truth, producer, 0);
    for _ in 0..rounds(20, 200) {
        let before: Vec<u64> = (0..3).map(|bookie| syncs(&cluster, bookie)).collect();
        runtime.block_on(async {
            numbered.send(1_000).await;
            numbered.settled().await;
        });
        let synced = (0..3).filter(|bookie| syncs(&cluster, *bookie) > before[*bookie]);
        assert!(
            synced.count() >= 2,
            "answered before two bookies had synced"
        );
    }
    let producing = runtime.spawn(async move {
        for _ in 0..500 {
            numbered.send(1_000).await;
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
        numbered.settled().await;
    });
    std::thread::sleep(Duration::from_millis(500));
    cluster.bookies[0].kill();
    cluster.bookies[1].signal("-STOP");
    std::thread::sleep(Duration::from_millis(rounds(1_500, 20_000) as u64));
    cluster.brokers[0].kill();
    cluster.bookies[1].signal("-CONT");
    cluster.bookies[0].start();
    cluster.brokers[0].start();
    runtime.block_on(producing).unwrap();
    let found = runtime.block_on(read_all(&client, "synced"));
    truth.check(&found, "LD-09");
    cluster.stop();
}

/// LD-11: whatever died and came back, what is read from the start has the same count and the same end.
#[test]
fn count_and_end_stay_over_failovers() {
    let _turn = turn();
    let Some(mut cluster) = Cluster::start_linked(PORT, 3) else {
        return;
    };
    cluster.add_broker();
    let runtime = runtime();
    let client = Client::builder(cluster.broker_address(0)).build().unwrap();
    runtime
        .block_on(client.admin().create_topic("counted", 1))
        .unwrap();
    let mut expected = 0_usize;
    for (round, records) in [1, 100, 0, 0].into_iter().enumerate() {
        runtime.block_on(async {
            let producer = client.producer("counted").build().await.unwrap();
            for number in 0..records {
                let record = Record::new(format!("{round} {number} "));
                producer.send(record).await.unwrap().await.unwrap();
            }
            producer.close().await.unwrap();
        });
        expected += records;
        cluster.brokers[0].kill();
        cluster.bookies[round % 3].kill();
        cluster.brokers[0].start();
        let found = runtime.block_on(read_all(&client, "counted"));
        assert_eq!(found.len(), expected, "round {round}");
        dense(&found);
        let offsets = runtime.block_on(client.admin().offsets("counted", 0, None));
        assert_eq!(offsets.unwrap().end.0, expected as u64);
        cluster.bookies[round % 3].start();
    }
    cluster.stop();
}
