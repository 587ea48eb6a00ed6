//! One run: draws its shape, lets it go wrong, heals the world, waits for the drain, reads everything back.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha12Rng;
use tests_harness::chaos::{Chaos, Victims};
use tests_harness::metadata::Poverty;
use tests_harness::reader::follow;
use tests_harness::trimmer::trim;
use tests_harness::{
    Cluster, Mover, Process, Run, Shape, Upkeep, World, WorldSetup, lives, plan_upkeep, runtime,
};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::drain::Drain;
use crate::partition::{Consumers, end, judge_log, show, sizes, start_producers, wait_for};

/// E, Qw, Qa, each as often as it is listed.
const SHAPES: [(u32, u32, u32); 9] = [
    (3, 3, 2),
    (3, 3, 2),
    (3, 3, 2),
    (3, 3, 2),
    (3, 3, 3),
    (2, 2, 2),
    (4, 4, 3),
    (3, 3, 1),
    (1, 1, 1),
];
/// Virtual time under fire.
const FIRE: Duration = Duration::from_secs(8);
/// Until brokers know of each other.
const KNOWN: Duration = Duration::from_millis(600);
/// Runs in which a bookie is drained.
const DRAIN_SHARE: f64 = 0.7;
/// Runs in which the partition is moved.
const MOVE_SHARE: f64 = 0.8;
/// Runs in which members are exchanged at random, besides what the planner finds to do.
const SWAP_SHARE: f64 = 0.5;
/// Runs with consumers.
const CONSUMER_SHARE: f64 = 0.4;
/// Runs in which somebody trims.
const TRIM_SHARE: f64 = 0.5;
/// Runs in which listings lack rows.
const SHORT_SHARE: f64 = 0.3;

/// One seed.
pub fn run(seed: u64, whole_trace: bool) -> Run {
    let mut rng = tests_harness::Seeds(seed).stream("plan");
    let Shape { quorums, bookies } = Shape::draw(&mut rng, &SHAPES);
    runtime().block_on(async move {
        let setup = WorldSetup {
            seed,
            whole_trace,
            quorums,
            bookies,
            mutant: None,
        };
        let world = Arc::new(World::new(setup));
        Box::pin(play(&world, rng)).await
    })
}

async fn play(world: &Arc<World>, mut rng: ChaCha12Rng) -> Run {
    let mut chaos = Chaos::draw(world.seeds.stream("chaos"));
    world.start_bookies().await;
    if rng.random_bool(SHORT_SHARE) {
        let poverty = Poverty {
            missing_rows: rng.random_range(0.05..0.5),
            late_ms: 0,
        };
        world.bookies.iter().for_each(|one| one.impoverish(poverty));
    }
    let cluster = Cluster::among(world, sizes(&mut rng), rng.random_range(2..4));
    let keeping = tokio::spawn(lives::keep(world.clone(), cluster.clone()));
    sleep(KNOWN).await;
    chaos.arm(world);
    chaos.begin(world);
    let planners = ["u0", "u1"].map(Process::new);
    let swapper = Process::new("u5");
    let victims = victims(&cluster, planners.iter().chain([&swapper]));
    for planner in &planners {
        plan_upkeep(world, planner);
    }
    if rng.random_bool(SWAP_SHARE) {
        tokio::spawn(Upkeep::new(world, swapper.clone()).run());
    }
    let producers = start_producers(&cluster, &mut rng);
    let consumers = rng
        .random_bool(CONSUMER_SHARE)
        .then(|| Consumers::start(&cluster));
    let pause = Duration::from_millis(rng.random_range(10..400));
    let mut clients = vec![tokio::spawn(follow(cluster.clone(), pause))];
    if rng.random_bool(TRIM_SHARE) {
        let trims = world.seeds.stream("trims");
        clients.push(tokio::spawn(trim(cluster.clone(), trims)));
    }
    let drain = rng
        .random_bool(DRAIN_SHARE)
        .then(|| Drain::plan(world, &mut rng));
    if rng.random_bool(MOVE_SHARE) {
        tokio::spawn(Mover::new(&cluster).run(FIRE));
    }
    let events = world.seeds.stream("cluster");
    let events = cluster.clone().run(events, victims.clone(), FIRE);
    clients.push(tokio::spawn(events));
    chaos.run(world, &victims, FIRE).await;
    world.heal().await;
    swapper.kill();
    for process in victims.lock().expect("no panic under this lock").iter() {
        process.pardon();
        process.resume();
    }
    clients.push(tokio::spawn(cluster.clone().keep_alive()));
    // One that nothing befalls; others may be dead.
    let last = Process::new("u9");
    plan_upkeep(world, &last);
    wait_for(world, producers).await;
    // Whoever asked a broker now would have it take the partition from those that judge.
    clients.iter().for_each(JoinHandle::abort);
    if let Some(consumers) = &consumers {
        consumers.stop();
    }
    for broker in cluster.brokers() {
        broker.process.kill();
    }
    if let Some(drain) = drain {
        drained(world, &cluster, drain).await;
    }
    planners.iter().chain([&last]).for_each(Process::kill);
    keeping.abort();
    show(&cluster, consumers.as_ref(), 1).await;
    end(&cluster)
}

/// What may be killed and frozen: the brokers, and these.
fn victims<'a>(cluster: &Cluster, others: impl Iterator<Item = &'a Process>) -> Victims {
    let victims = Victims::default();
    let brokers = cluster.brokers().into_iter().map(|one| one.process.clone());
    victims
        .lock()
        .expect("no panic under this lock")
        .extend(brokers.chain(others.cloned()));
    victims
}

/// Waits until the bookie that is drained holds nothing that is needed, and reads all of the log without it.
async fn drained(world: &Arc<World>, cluster: &Arc<Cluster>, drain: Drain) {
    // Whoever takes the partition over closes what is open at the bookie that goes.
    let owner = show(cluster, None, 0).await;
    drain.end(world).await;
    // What it knows of where copies are is older than the drain's end.
    if let Some(handle) = owner.partitions.opened(cluster.partition) {
        judge_log(cluster, &handle).await;
    }
    owner.process.kill();
}
