//! Random troubles on a cluster of processes under load: kills, stops, frozen processes, cuts in one direction or both, an etcd that goes
//! away, flipped bits on a stopped bookie, a disk that is gone and replaced. Nothing acknowledged may be lost, nothing may be there twice,
//! and everything goes on.
//!
//! `HULSE_SEED=N` repeats the choices of a run, of `HULSE_TEST_ROUNDS` rounds; when things happen within a round is up to the machine.

use std::path::Path;
use std::time::{Duration, Instant};

use hulse_sdk::{Admin, Client};
use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::super::report::{report, rounds};
use super::load::{Load, runtime};
use super::processes::{Cluster, Node};
use super::truth::{Fate, read_all};

const PORT: u16 = 18_930;
const TOPIC: &str = "troubled";
const BOOKIES: usize = 3;
const BROKERS: usize = 2;
const PARTITIONS: u32 = 4;
/// The one bookie whose files are flipped, or gone: of what another one missed, it has one of two copies.
const HARMED: usize = 2;
/// One of so many rounds loses a disk.
const WIPED_EVERY: u64 = 5;
/// Ledgers are closed now and then, and missing copies looked for.
const SETTINGS: [(&str, &str); 2] = [
    ("HULSE_BROKER__LEDGER_ROLL_SIZE", "2MiB"),
    ("HULSE_UPKEEP__AUDIT_INTERVAL", "2s"),
];
/// Far above what it takes until a lease ends, or a pass of upkeep.
const REPLACED_WITHIN: Duration = Duration::from_secs(60);

/// What happens in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Kill(Node),
    Stop(Node),
    Freeze(Node, Duration),
    Cut(Node, Node, Duration),
    CutOneWay(Node, Node, Duration),
    Flip,
    Wipe,
}

fn any_node(random: &mut ChaCha8Rng) -> Node {
    match random.random_range(0..=BROKERS + BOOKIES) {
        0 => Node::Etcd,
        broker if broker <= BROKERS => Node::Broker(broker - 1),
        bookie => Node::Bookie(bookie - 1 - BROKERS),
    }
}

/// Two that talk to each other.
fn any_pair(random: &mut ChaCha8Rng) -> (Node, Node) {
    let bookie = Node::Bookie(random.random_range(0..BOOKIES));
    let broker = random.random_range(0..BROKERS);
    let pair = match random.random_range(0..4) {
        0 => (Node::Broker(broker), Node::Etcd),
        1 => (bookie, Node::Etcd),
        2 => (Node::Broker(broker), Node::Broker((broker + 1) % BROKERS)),
        _ => (Node::Broker(broker), bookie),
    };
    match random.random_bool(0.5) {
        true => (pair.1, pair.0),
        false => pair,
    }
}

fn any_trouble(round: u64, random: &mut ChaCha8Rng) -> Trouble {
    if round % WIPED_EVERY == WIPED_EVERY / 2 {
        return Trouble::Wipe;
    }
    // Shorter and longer than a lease, and than the silence after which a connection is given up.
    let time = Duration::from_millis(random.random_range(300..6_000));
    let (from, to) = any_pair(random);
    match random.random_range(0..12) {
        0..=3 => Trouble::Kill(any_node(random)),
        4 => Trouble::Stop(any_node(random)),
        5..=6 => Trouble::Freeze(any_node(random), time),
        7..=8 => Trouble::Cut(from, to, time),
        9..=10 => Trouble::CutOneWay(from, to, time),
        _ => Trouble::Flip,
    }
}

/// Makes it happen, and ends it.
fn happen(cluster: &mut Cluster, trouble: Trouble, random: &mut ChaCha8Rng) {
    match trouble {
        Trouble::Kill(node) => {
            cluster.process(node).kill();
            std::thread::sleep(Duration::from_millis(random.random_range(0..1_500)));
            cluster.process(node).start();
        }
        Trouble::Stop(node) => {
            let status = cluster.process(node).stop();
            let log = cluster.process(node).log();
            // etcd ends by the signal.
            assert!(
                status.success() || node == Node::Etcd,
                "{node:?} {status}\n{log}"
            );
            cluster.process(node).start();
        }
        Trouble::Freeze(node, time) => {
            cluster.process(node).signal("-STOP");
            std::thread::sleep(time);
            cluster.process(node).signal("-CONT");
            revive(cluster, node);
        }
        Trouble::Cut(one, other, time) => {
            cluster.cut(one, other);
            std::thread::sleep(time);
            cluster.heal();
        }
        Trouble::CutOneWay(from, to, time) => {
            cluster.cut_one_way(from, to);
            std::thread::sleep(time);
            cluster.heal();
        }
        Trouble::Flip => {
            let node = Node::Bookie(HARMED);
            match random.random_bool(0.5) {
                true => cluster.process(node).kill(),
                false => assert!(cluster.process(node).stop().success()),
            }
            flip(&cluster.data(HARMED).join("bookie"), random);
            cluster.process(node).start();
        }
        Trouble::Wipe => {
            cluster.bookies[HARMED].kill();
            std::fs::remove_dir_all(cluster.data(HARMED)).unwrap();
            replace(cluster, HARMED);
            cluster.bookies[HARMED].start();
        }
    }
}

/// Gives the bookie a new disk, as soon as its lease has ended.
pub(super) fn replace(cluster: &Cluster, bookie: usize) {
    let began = Instant::now();
    loop {
        let replaced = cluster.replace(bookie);
        if replaced.status.success() {
            return;
        }
        let words = String::from_utf8_lossy(&replaced.stderr);
        assert!(words.contains("does not run"), "{words}");
        assert!(began.elapsed() < REPLACED_WITHIN, "{words}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Waits until no ledger lacks a copy, as the next pass but one sees it.
pub(super) async fn whole(admin: &Admin) {
    let began = Instant::now();
    let mut first = None;
    loop {
        let found = admin.list_bookies().await.unwrap();
        if let Some(upkeep) = &found.upkeep {
            // Another bookie may look after the ledgers meanwhile, and counts from its own start.
            let first = first.get_or_insert(upkeep.passes);
            let later = upkeep.passes > *first + 1;
            *first = (*first).min(upkeep.passes);
            if later && upkeep.lacking_ledgers == 0 {
                return;
            }
        }
        assert!(began.elapsed() < REPLACED_WITHIN, "copies lack: {found:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A process that slept long enough may find its name taken by nobody else: it goes on. One that ended says why.
fn revive(cluster: &mut Cluster, node: Node) {
    let process = cluster.process(node);
    process.wait_ready();
}

/// Flips a bit in what is written of one log file.
fn flip(folder: &Path, random: &mut ChaCha8Rng) {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(folder).unwrap() {
            let path = item.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|end| end == "log") => files.push(path),
                false => {}
            }
        }
    }
    files.sort();
    let path = &files[random.random_range(0..files.len())];
    let mut bytes = std::fs::read(path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    let at = random.random_range(0..=used);
    bytes[at] ^= 1 << random.random_range(0..8);
    std::fs::write(path, bytes).unwrap();
    println!("flipped a bit at {at} of {}", path.display());
}

/// A number of the environment.
fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed() -> u64 {
    // The same in each short run, so that what fails is what changed; the long one draws others.
    given("HULSE_SEED").unwrap_or_else(|| rounds(0x5eed, std::process::id() as usize) as u64)
}

#[test]
fn nothing_is_lost_or_doubled_by_random_troubles() {
    let Some(mut cluster) = Cluster::start_linked_with(PORT, BOOKIES, &SETTINGS) else {
        return;
    };
    cluster.link_brokers();
    for _ in 0..BROKERS {
        cluster.add_broker();
    }
    let (seed, all) = (
        seed(),
        given("HULSE_TEST_ROUNDS").unwrap_or(rounds(5, 100) as u64),
    );
    println!(
        "seed {seed}, {all} rounds: HULSE_SEED={seed} HULSE_TEST_ROUNDS={all} makes the same choices"
    );
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let runtime = runtime();
    let client = Client::builder(cluster.broker_address(0)).build().unwrap();
    let load = runtime.block_on(Load::begin(&client, TOPIC, PARTITIONS));
    runtime.block_on(load.goes_on("the beginning"));
    let began = Instant::now();
    for round in 0..all {
        let trouble = any_trouble(round, &mut random);
        println!("{:?} round {round}: {trouble:?}", began.elapsed());
        happen(&mut cluster, trouble, &mut random);
        runtime.block_on(load.goes_on(&format!("round {round} of seed {seed}: {trouble:?}")));
    }
    let (truth, followed) = runtime.block_on(load.end());
    runtime.block_on(whole(&client.admin()));
    let found = runtime.block_on(read_all(&client, TOPIC));
    truth.check(&found, &format!("seed {seed}"));
    truth.check(&followed, &format!("what was followed of seed {seed}"));
    let (acked, failed) = (
        truth.count(|fate| matches!(fate, Fate::Acked(_))),
        truth.count(|fate| fate == Fate::Failed),
    );
    println!(
        "{acked} acknowledged, {failed} failed, {} there",
        found.len()
    );
    report(&format!("rounds of random trouble on processes: {all}"));
    report(&format!("records: {acked}"));
    assert!(acked > 1_000, "{acked}");
    cluster.stop();
}
