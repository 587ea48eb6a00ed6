//! Random troubles on a cluster of processes under load: kills, stops, frozen processes, cuts in one direction or both, an etcd that goes
//! away, flipped bits on a stopped bookie. Nothing acknowledged may be lost, nothing may be there twice, and everything goes on.
//!
//! `HULSE_SEED=N` repeats the choices of a run; when things happen within a round is up to the machine.

use std::path::Path;
use std::time::Duration;

use hulse_sdk::Client;
use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::super::report::{report, rounds};
use super::load::{Load, runtime};
use super::processes::{Cluster, Node};
use super::truth::{Fate, read_all};

const PORT: u16 = 18_440;
const TOPIC: &str = "troubled";
const BOOKIES: usize = 3;
const PARTITIONS: u32 = 4;
/// The one bookie whose files are flipped: of what another one missed, it has one of two copies.
const FLIPPED: usize = 2;

/// What happens in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Kill(Node),
    Stop(Node),
    Freeze(Node, Duration),
    Cut(Node, Node, Duration),
    CutOneWay(Node, Node, Duration),
    Flip,
}

fn any_node(random: &mut ChaCha8Rng) -> Node {
    match random.random_range(0..=BOOKIES + 1) {
        0 => Node::Broker(0),
        1 => Node::Etcd,
        bookie => Node::Bookie(bookie - 2),
    }
}

/// Two that talk to each other.
fn any_pair(random: &mut ChaCha8Rng) -> (Node, Node) {
    let bookie = Node::Bookie(random.random_range(0..BOOKIES));
    let pair = match random.random_range(0..3) {
        0 => (Node::Broker(0), Node::Etcd),
        1 => (bookie, Node::Etcd),
        _ => (Node::Broker(0), bookie),
    };
    match random.random_bool(0.5) {
        true => (pair.1, pair.0),
        false => pair,
    }
}

fn any_trouble(random: &mut ChaCha8Rng) -> Trouble {
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
            let node = Node::Bookie(FLIPPED);
            match random.random_bool(0.5) {
                true => cluster.process(node).kill(),
                false => assert!(cluster.process(node).stop().success()),
            }
            flip(&cluster.data(FLIPPED).join("bookie"), random);
            cluster.process(node).start();
        }
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

fn seed() -> u64 {
    let given = std::env::var("HULSE_SEED").ok();
    let given = given.and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| u64::from(std::process::id()) ^ 0x5eed)
}

#[test]
fn nothing_is_lost_or_doubled_by_random_troubles() {
    let Some(mut cluster) = Cluster::start_linked(PORT, BOOKIES) else {
        return;
    };
    cluster.add_broker();
    let (seed, all) = (seed(), rounds(5, 100));
    println!("seed {seed}: HULSE_SEED={seed} makes the same choices");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let runtime = runtime();
    let client = Client::builder(cluster.broker_address(0)).build().unwrap();
    let load = runtime.block_on(Load::begin(&client, TOPIC, PARTITIONS));
    runtime.block_on(load.goes_on("the beginning"));
    for round in 0..all {
        let trouble = any_trouble(&mut random);
        println!("round {round}: {trouble:?}");
        happen(&mut cluster, trouble, &mut random);
        runtime.block_on(load.goes_on(&format!("round {round} of seed {seed}: {trouble:?}")));
    }
    let (truth, followed) = runtime.block_on(load.end());
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
