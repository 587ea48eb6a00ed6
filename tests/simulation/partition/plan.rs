//! One run: draws its shape, lets it go wrong, heals the world, reads everything back.

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::list_all;
use hulse_proto::bookie::{Address, ReadClass, ReadRequest};
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::mutant::Mutant;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;
use serving_broker::PartitionHandle;
use tests_harness::chaos::{Chaos, Victims};
use tests_harness::metadata::owner_epoch;
use tests_harness::reader::{follow, read_all};
use tests_harness::trimmer::trim;
use tests_harness::{
    BrokerSizes, Cluster, Manner, Process, Producer, Run, Shape, SimBroker, Upkeep, World,
    WorldSetup, runtime, trace,
};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::consumers::Consumers;

/// E, Qw, Qa, each as often as it is listed.
const SHAPES: [(u32, u32, u32); 9] = [
    (3, 3, 2),
    (3, 3, 2),
    (3, 3, 2),
    (3, 3, 2),
    (1, 1, 1),
    (2, 2, 2),
    (3, 3, 3),
    (4, 4, 3),
    (3, 3, 1),
];
/// Virtual time under fire.
const FIRE: Duration = Duration::from_secs(8);
/// Producers are done this long after the world healed.
const HEALED: Duration = Duration::from_secs(120);
/// Runs in which somebody trims.
const TRIM_SHARE: f64 = 0.25;
/// Tries to open the partition in a healed world.
const OPEN_TRIES: u32 = 20;

/// One seed.
pub fn run(seed: u64, whole: bool) -> Run {
    run_with(seed, whole, None)
}

/// One seed, with a mutant.
pub fn run_with(seed: u64, whole_trace: bool, mutant: Option<Mutant>) -> Run {
    run_as(seed, whole_trace, mutant, Company::Nobody)
}

/// One seed, with consumers.
pub fn run_consumed(seed: u64, whole: bool) -> Run {
    run_as(seed, whole, None, Company::Consumers)
}

/// One seed, with consumers and a mutant.
pub fn run_consumed_with(seed: u64, whole: bool, mutant: Option<Mutant>) -> Run {
    run_as(seed, whole, mutant, Company::Consumers)
}

/// One seed, with consumers that share.
pub fn run_shared(seed: u64, whole: bool) -> Run {
    run_as(seed, whole, None, Company::Sharers)
}

/// One seed, with consumers that share and a mutant.
pub fn run_shared_with(seed: u64, whole: bool, mutant: Option<Mutant>) -> Run {
    run_as(seed, whole, mutant, Company::Sharers)
}

/// Who is there beside producers and readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    Nobody,
    Consumers,
    Sharers,
}

fn run_as(seed: u64, whole_trace: bool, mutant: Option<Mutant>, company: Company) -> Run {
    let mut rng = tests_harness::Seeds(seed).stream("plan");
    let Shape { quorums, bookies } = Shape::draw(&mut rng, &SHAPES);
    runtime().block_on(async move {
        let setup = WorldSetup {
            seed,
            whole_trace,
            quorums,
            bookies,
            mutant,
        };
        let world = Arc::new(World::new(setup));
        Box::pin(play(&world, rng, company)).await
    })
}

async fn play(world: &Arc<World>, mut rng: ChaCha12Rng, company: Company) -> Run {
    let mut chaos = Chaos::draw(world.seeds.stream("chaos"));
    chaos.arm(world);
    world.start_bookies().await;
    chaos.begin(world);
    let cluster = Cluster::start(world, sizes(&mut rng));
    let victims = Victims::default();
    for place in 0..2 {
        let process = cluster.broker(place).process.clone();
        victims
            .lock()
            .expect("no panic under this lock")
            .push(process);
    }
    let producers = start_producers(&cluster, &mut rng);
    let consumers = match company {
        Company::Nobody => None,
        Company::Consumers => Some(Consumers::start(&cluster)),
        Company::Sharers => Some(Consumers::share(&cluster)),
    };
    let pause = Duration::from_millis(rng.random_range(10..400));
    tokio::spawn(follow(cluster.clone(), pause));
    // From a stream of their own, so that kept seeds have all else as they ever had it.
    let mut trims = world.seeds.stream("trims");
    let trimming = trims
        .random_bool(TRIM_SHARE)
        .then(|| tokio::spawn(trim(cluster.clone(), trims)));
    let deletion = rng.random_bool(0.12).then(|| {
        let (cluster, wait) = (cluster.clone(), rng.random_range(500..8_000));
        tokio::spawn(async move {
            sleep(Duration::from_millis(wait)).await;
            cluster.delete().await;
        })
    });
    let upkeep = Process::new("u0");
    if rng.random_bool(0.3) {
        victims
            .lock()
            .expect("no panic under this lock")
            .push(upkeep.clone());
        tokio::spawn(Upkeep::new(world, upkeep.clone()).run());
    }
    let events = world.seeds.stream("cluster");
    tokio::spawn(cluster.clone().run(events, victims.clone(), FIRE));
    chaos.run(world, &victims, FIRE).await;
    world.heal().await;
    upkeep.kill();
    for process in victims.lock().expect("no panic under this lock").iter() {
        process.pardon();
    }
    let supervisor = tokio::spawn(cluster.clone().keep_alive());
    wait_for(world, producers).await;
    if let Some(trimming) = trimming {
        trimming.abort();
    }
    let deletion = deletion.map(|deletion| timeout(HEALED, deletion));
    let deleted = match deletion {
        Some(deletion) => Some(deletion.await.is_ok()),
        None => None,
    };
    if let Some(consumers) = &consumers {
        consumers.stop();
    }
    supervisor.abort();
    match deleted {
        Some(deleted) => judge_deletion(&cluster, deleted).await,
        None => finish_with(&cluster, consumers.as_ref()).await,
    }
}

/// Sizes of the brokers.
pub fn sizes(rng: &mut ChaCha12Rng) -> BrokerSizes {
    BrokerSizes {
        roll_bytes: *[600, 4_000, 30_000, 1 << 30]
            .choose(rng)
            .expect("four sizes"),
        roll_age: Duration::from_millis(rng.random_range(1_500..60_000)),
        tail_bytes: *[0, 2_000, 1 << 20].choose(rng).expect("three sizes"),
    }
}

/// One to three producers.
pub fn start_producers(cluster: &Arc<Cluster>, rng: &mut ChaCha12Rng) -> Vec<JoinHandle<()>> {
    let count = rng.random_range(1..4);
    let start = |number: u32| {
        let manner = Manner {
            number,
            idempotent: number == 0 || rng.random_bool(0.7),
            batches: rng.random_range(5..120),
            pause_ms: *[0, 30, 200].choose(rng).expect("three paces"),
            gives_up: rng.random_bool(0.2),
            echoes: rng.random_bool(0.3),
            strays: rng.random_bool(0.8),
        };
        tokio::spawn(Producer::new(cluster, manner).run())
    };
    (0..count).map(start).collect()
}

/// Waits until they are done, in a world that works.
pub async fn wait_for(world: &Arc<World>, producers: Vec<JoinHandle<()>>) {
    let all = futures::future::join_all(producers);
    match timeout(HEALED, all).await {
        Ok(ended) => {
            let panics = ended.iter().filter(|end| end.is_err()).count();
            world
                .violations
                .check(panics == 0, || format!("{panics} producers panicked"));
        }
        Err(_) => world.violations.add("STUCK: a producer in a healed world"),
    }
}

/// Kills both brokers, opens the partition on a third and judges what it shows.
pub async fn finish(cluster: &Arc<Cluster>) -> Run {
    finish_with(cluster, None).await
}

/// As [`finish`], and judges what the consumers were told.
pub async fn finish_with(cluster: &Arc<Cluster>, consumers: Option<&Consumers>) -> Run {
    for broker in cluster.brokers() {
        broker.process.kill();
    }
    show(cluster, consumers, 0).await;
    end(cluster)
}

/// Opens the partition on a broker of its own, in this life of it, and judges what it shows; the broker lives on.
pub async fn show(
    cluster: &Arc<Cluster>,
    consumers: Option<&Consumers>,
    boot: u32,
) -> Arc<SimBroker> {
    let world = &cluster.world;
    let sizes = BrokerSizes {
        roll_bytes: 1 << 30,
        roll_age: Duration::from_secs(3600),
        tail_bytes: 0,
    };
    let broker = SimBroker::start(world, "final", boot, sizes);
    let mut last = None;
    for _ in 0..OPEN_TRIES {
        match broker.partitions.open(cluster.partition).await {
            Ok(handle) => {
                cluster.see(&handle);
                judge_log(cluster, &handle).await;
                let judged = match consumers {
                    Some(consumers) => consumers.judge(cluster, &broker.partitions, &handle).await,
                    None => Ok(()),
                };
                last = judged.err();
                if last.is_none() {
                    break;
                }
            }
            Err(fault) => last = Some(fault),
        }
        sleep(Duration::from_millis(500)).await;
    }
    if let Some(fault) = last {
        world
            .violations
            .add(format!("STUCK: does not open in a healed world: {fault}"));
    }
    broker
}

/// Everything that an owner shows, against what clients were told.
pub async fn judge_log(cluster: &Cluster, handle: &PartitionHandle) {
    let violations = &cluster.world.violations;
    match read_all(cluster, handle).await {
        Ok(log) => {
            let start = handle.offsets().log_start.0;
            for violation in cluster.truth().check_from(start, &log) {
                violations.add(format!("{violation:?}"));
            }
        }
        Err(fault) => violations.add(format!("cannot be read back: {fault}")),
    }
}

/// The end of a run.
pub fn end(cluster: &Cluster) -> Run {
    let world = &cluster.world;
    cluster.check_waters();
    world.check_copies();
    let stored = cluster.truth().stored() as u64;
    world.finish(stored)
}

/// After a deletion nothing is left: no key, no entry, no answer.
async fn judge_deletion(cluster: &Arc<Cluster>, deleted: bool) -> Run {
    let world = &cluster.world;
    world.violations.check(deleted, || {
        "STUCK: the topic is not deleted in a healed world".to_owned()
    });
    // Whoever has not heard of it yet finds out by its own time-outs.
    sleep(Duration::from_secs(10)).await;
    for place in 0..2 {
        cluster.broker(place).process.kill();
    }
    // What a crash cut short is finished by the next start.
    cluster.replace(0);
    sleep(Duration::from_secs(10)).await;
    for prefix in ["ledger/", "chain/", "part/"] {
        let left = list_all(&*world.store, prefix).await.unwrap_or_default();
        let keys = left
            .iter()
            .filter(|item| !is_late(cluster, &item.key, &item.value));
        let keys: Vec<&str> = keys.map(|item| item.key.as_str()).collect();
        world.violations.check(keys.is_empty(), || {
            format!("left after the deletion: {keys:?}")
        });
    }
    for number in 1..200 {
        let held = world
            .bookies
            .iter()
            .filter(|bookie| holds(world, bookie, LedgerId(number)));
        let held = held.count();
        if held > 0 {
            trace!(world.trace, "{held} bookies still hold ledger {number}");
        }
        world.violations.check(held == 0, || {
            format!("{held} bookies still hold entries of deleted ledger {number}")
        });
    }
    let stored = cluster.truth().stored() as u64;
    world.finish(stored)
}

/// An epoch taken from nothing by a take-over that did not hear of the deletion, or whose transaction landed after it: a key that
/// nobody will look at again, and no data.
fn is_late(cluster: &Cluster, key: &str, value: &[u8]) -> bool {
    key.starts_with("part/") && (cluster.is_untold() || owner_epoch(value) == Some(1))
}

fn holds(world: &World, bookie: &tests_harness::SimBookie, ledger: LedgerId) -> bool {
    let Some(member) = bookie.member() else {
        return false;
    };
    // A tombstone can be lost with what was synced; what it hid is garbage.
    if !world.store.names(ledger.0, member.incarnation) || bookie.is_scarred() {
        return false;
    }
    let read = ReadRequest {
        to: Address {
            cell: world.cell,
            incarnation: member.incarnation,
            ledger,
        },
        first: EntryId(0),
        end: EntryId(1),
        max_bytes: 1,
        class: ReadClass::CatchUp,
    };
    bookie.look(&read).is_ok()
}
