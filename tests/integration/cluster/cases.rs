//! Public troubles of other platforms, as far as they are about several processes: LD-02, LD-06, LD-09, LD-11 and ST-03 of the cases.
//! Times are shorter than there unless HULSE_LONG=1.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hulse_sdk::{Client, Record, SubscriptionConsumer};

use super::super::proxy::Proxy;
use super::super::report::rounds;
use super::super::server::http_get;
use super::load::{Load, runtime};
use super::processes::{Cluster, Node};
use super::truth::{Fate, Id, Numbered, Place, Truth, id_of, read_all};

const PORT: u16 = 18_496;
const PORT_OF_ONE_COPY: u16 = 18_560;
const PORT_OF_THREE_COPIES: u16 = 18_961;

/// One case at a time of those on the same ports.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// LD-02: after restarts under load, a new full read has everything that the live one saw, and everything that was acknowledged; with so
/// many copies, and so many on disk before an answer.
fn full_read_after_restarts(port: u16, copies: &str, ack: &str) {
    let settings = [
        ("HULSE_BROKER__REPLICATION__ENSEMBLE", copies),
        ("HULSE_BROKER__REPLICATION__WRITE_QUORUM", copies),
        ("HULSE_BROKER__REPLICATION__ACK_QUORUM", ack),
    ];
    let Some(mut cluster) = Cluster::start_linked_with(port, 3, &settings) else {
        return;
    };
    cluster.add_broker();
    let runtime = runtime();
    let client = Client::builder(cluster.broker_address(0)).build().unwrap();
    let load = runtime.block_on(Load::begin(&client, "restarted", 12));
    let over = Arc::new(AtomicBool::new(false));
    let live = consume(client.clone(), "restarted", Arc::clone(&over));
    let live = runtime.spawn(live);
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
    over.store(true, Ordering::Relaxed);
    let a = runtime.block_on(live).unwrap();
    let b = runtime.block_on(read_all(&client, "restarted"));
    truth.check(
        &b,
        &format!("LD-02 with {copies} copies, {ack} before an answer"),
    );
    let known: std::collections::BTreeSet<_> = b.iter().collect();
    let strange: Vec<_> = a.iter().filter(|seen| !known.contains(seen)).collect();
    assert!(strange.is_empty(), "seen and gone: {strange:?}");
    dense(&b);
    cluster.stop();
}

#[test]
fn full_read_after_restarts_has_everything_with_two_copies() {
    let _turn = turn();
    full_read_after_restarts(PORT, "2", "2");
}

#[test]
fn full_read_after_restarts_has_everything_with_one_copy() {
    full_read_after_restarts(PORT_OF_ONE_COPY, "1", "1");
}

#[test]
fn full_read_after_restarts_has_everything_with_three_copies() {
    full_read_after_restarts(PORT_OF_THREE_COPIES, "3", "2");
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

/// Consumes and acknowledges until it is over and nothing comes any more.
async fn consume(client: Client, topic: &str, over: Arc<AtomicBool>) -> Vec<(Place, Id)> {
    let consumer = client.consumer(topic).subscription("a");
    let consumer = consumer.start(hulse_sdk::Start::Earliest);
    let consumer: SubscriptionConsumer = consumer.build().await.unwrap();
    // Awaiting each would cost a sync of the disk for each record.
    let (mut seen, mut acks) = (Vec::new(), Vec::new());
    loop {
        let next = tokio::time::timeout(Duration::from_secs(2), consumer.receive()).await;
        let Ok(record) = next else {
            if over.load(Ordering::Relaxed) {
                break;
            }
            continue;
        };
        let record = record.unwrap().expect("it is not closed");
        let value = record.value.clone().unwrap_or_default();
        seen.push(((record.partition, record.offset.0), id_of(&value)));
        acks.push(consumer.ack(&record));
    }
    for ack in acks {
        // One that a broken session took with it was made again when its record came again.
        let _made_again_after_a_break = ack.await;
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
    let truth = Arc::new(Truth::default());
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

/// How a broker loses its partition without hearing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zombie {
    /// It sleeps for longer than its lease.
    Frozen,
    /// etcd does not hear from it; it goes on serving.
    Cut,
    /// The same, fences reach one bookie late, another one answers late, and etcd restarts while both are owners for themselves.
    CutAndSlowlyFenced,
}

/// Sends a hundred records a second until it is over.
async fn produce(client: Client, truth: Arc<Truth>, number: u32, over: Arc<AtomicBool>) {
    let producer = client.producer("zombie").build().await.unwrap();
    let mut numbered = Numbered::new(&truth, producer, number);
    while !over.load(Ordering::Relaxed) {
        numbered.send(200).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    numbered.settled().await;
}

/// Waits until the second broker owns the partition and answers the producer that found it there.
async fn taken_over(second: &Client, endpoint: &str, truth: &Truth) {
    let began = Instant::now();
    let mut before = None;
    loop {
        let described = second.admin().describe_topic("zombie").await;
        let owner = described
            .ok()
            .and_then(|topic| topic.partition[0].owner.clone());
        if owner.as_deref() == Some(endpoint) {
            let answered = truth.answered_to(1);
            if answered > *before.get_or_insert(answered) + 40 {
                return;
            }
        }
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "nobody took it over: {owner:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// ST-03: a broker that lost its partition without hearing of it acknowledges nothing that is not in the log, and nothing twice.
#[test]
fn broker_that_lost_its_partition_unheard_acknowledges_nothing_that_is_not_there() {
    let _turn = turn();
    let Some(mut cluster) = Cluster::start_linked(PORT, 3) else {
        return;
    };
    cluster.add_broker();
    cluster.add_broker();
    let runtime = runtime();
    let endpoint = cluster.broker_address(1);
    let [first, second] = [0, 1].map(|broker| {
        Client::builder(cluster.broker_address(broker))
            .build()
            .unwrap()
    });
    let admin = second.admin();
    runtime.block_on(admin.create_topic("zombie", 1)).unwrap();
    let (truth, over) = (Arc::new(Truth::default()), Arc::new(AtomicBool::new(false)));
    let producing = [(&first, 0), (&second, 1)].map(|(client, number)| {
        let (truth, over) = (Arc::clone(&truth), Arc::clone(&over));
        runtime.spawn(produce(client.clone(), truth, number, over))
    });
    for _ in 0..rounds(1, 20) {
        for zombie in [Zombie::Frozen, Zombie::Cut, Zombie::CutAndSlowlyFenced] {
            let moved = admin.move_partition("zombie", 0, "broker-1", false);
            runtime.block_on(moved).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            if zombie == Zombie::Frozen {
                cluster.brokers[0].signal("-STOP");
            } else {
                cluster.cut(Node::Broker(0), Node::Etcd);
            }
            if zombie == Zombie::CutAndSlowlyFenced {
                cluster.cut_one_way(Node::Broker(1), Node::Bookie(0));
                cluster.cut_one_way(Node::Bookie(1), Node::Broker(1));
                std::thread::sleep(Duration::from_secs(5));
                cluster.heal();
                cluster.cut(Node::Broker(0), Node::Etcd);
            }
            runtime.block_on(taken_over(&second, &endpoint, &truth));
            if zombie == Zombie::CutAndSlowlyFenced {
                cluster.etcd.process.kill();
                cluster.etcd.process.start();
            }
            match zombie {
                Zombie::Frozen => cluster.brokers[0].signal("-CONT"),
                Zombie::Cut | Zombie::CutAndSlowlyFenced => cluster.heal(),
            }
            std::thread::sleep(Duration::from_millis(rounds(1_000, 10_000) as u64));
        }
    }
    over.store(true, Ordering::Relaxed);
    for producing in producing {
        runtime.block_on(producing).unwrap();
    }
    let found = runtime.block_on(read_all(&first, "zombie"));
    truth.check(&found, "ST-03");
    dense(&found);
    assert_eq!(found, runtime.block_on(read_all(&second, "zombie")));
    // Whoever takes it over finds all of it by what metadata say.
    for broker in &mut cluster.brokers {
        broker.kill();
    }
    for broker in &mut cluster.brokers {
        broker.start();
    }
    assert_eq!(found, runtime.block_on(read_all(&second, "zombie")));
    cluster.stop();
}
