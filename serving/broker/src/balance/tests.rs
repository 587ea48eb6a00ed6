//! What the balancer promises: from any start it comes to rest, loads that go up and down a little move nothing, and a partition that
//! was moved stays for its cool-down.

use std::collections::BTreeMap;
use std::time::Duration;

use hulse_proto::id::{NodeName, PartitionId, TopicId};
use proptest::prelude::*;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;

use super::judge::{Judge, Verdict};
use super::model::{BalanceLimits, BrokerLoad, Move, PARTITION_COST, PartitionLoad, Scene};
use super::plan::spread;
use super::rate::Meter;

/// Between two looks, and between two samples.
const LOOK: Duration = Duration::from_secs(10);
const SAMPLE: Duration = Duration::from_secs(2);
const MIB: u64 = 1 << 20;

fn name(number: usize) -> NodeName {
    NodeName::new(&format!("broker-{number}")).unwrap()
}

fn id(index: usize) -> PartitionId {
    PartitionId {
        topic: TopicId(Uuid::from_u128(7)),
        index: index as u32,
    }
}

struct Partition {
    owner: usize,
    bytes: u64,
    pinned: bool,
    moved: Option<Duration>,
    moves: u32,
    counted: u64,
}

/// Brokers and partitions whose loads are what they are.
struct World {
    ready: Vec<bool>,
    partitions: Vec<Partition>,
    judge: Judge,
    limits: BalanceLimits,
    now: Duration,
}

impl World {
    fn new(ready: Vec<bool>, partitions: impl IntoIterator<Item = (usize, u64, bool)>) -> Self {
        let partitions = partitions
            .into_iter()
            .map(|(owner, bytes, pinned)| Partition {
                owner: owner % ready.len(),
                bytes,
                pinned,
                moved: None,
                moves: 0,
                counted: 0,
            });
        Self {
            partitions: partitions.collect(),
            ready,
            judge: Judge::default(),
            limits: BalanceLimits::default(),
            now: Duration::ZERO,
        }
    }

    /// As owners tell it, each partition with this rate.
    fn scene(&self, rate: impl Fn(usize) -> u64) -> Scene {
        let broker = |number: usize| {
            let own = self.partitions.iter().enumerate();
            let own = own.filter(|(_, of)| of.owner == number);
            let told = own.map(|(index, of)| {
                let load = PartitionLoad {
                    bytes: rate(index),
                    pinned: of.pinned,
                    moved: of.moved.map(|at| self.now - at),
                };
                (id(index), load)
            });
            BrokerLoad {
                ready: self.ready[number],
                partitions: told.collect(),
                others: 0,
            }
        };
        (0..self.ready.len())
            .map(|number| (name(number), broker(number)))
            .collect()
    }

    fn load(&self, broker: usize) -> u64 {
        let own = self.partitions.iter().filter(|of| of.owner == broker);
        own.map(|of| of.bytes + PARTITION_COST).sum()
    }

    /// One look; the moves that were made.
    fn look(&mut self, rate: impl Fn(usize) -> u64) -> (Verdict, usize) {
        self.now += LOOK;
        let mut scene = self.scene(rate);
        let look = self.judge.look(&mut scene, &self.limits, (self.now, false));
        if look.verdict != Verdict::Act {
            return (look.verdict, 0);
        }
        for moved in &look.planned.moves {
            self.make(moved);
        }
        self.judge.acted(false);
        (look.verdict, look.planned.moves.len())
    }

    fn make(&mut self, moved: &Move) {
        self.judge.tried(moved, self.now);
        let to = (0..self.ready.len())
            .find(|number| name(*number) == moved.to)
            .unwrap();
        let now = self.now;
        let partition = &mut self.partitions[moved.partition.index as usize];
        assert_eq!(name(partition.owner), moved.from);
        assert!(self.ready[partition.owner] && self.ready[to], "{moved:?}");
        assert!(!partition.pinned, "{moved:?}");
        let rested = partition
            .moved
            .is_none_or(|at| now - at >= self.limits.cooldown);
        assert!(rested, "{moved:?} at {now:?} after {:?}", partition.moved);
        partition.owner = to;
        partition.moved = Some(now);
        partition.moves += 1;
        partition.counted = 0;
    }

    /// As [`World::look`], of loads that are told as they are: each move must bring two brokers nearer to each other.
    fn look_exactly(&mut self) -> usize {
        let rates: Vec<u64> = self.partitions.iter().map(|of| of.bytes).collect();
        let before: Vec<u64> = (0..self.ready.len()).map(|of| self.load(of)).collect();
        let squares = |loads: &[u64]| -> u128 {
            loads
                .iter()
                .map(|load| u128::from(*load) * u128::from(*load))
                .sum()
        };
        let (_, moves) = self.look(|index| rates[index]);
        let after: Vec<u64> = (0..self.ready.len()).map(|of| self.load(of)).collect();
        assert!(moves == 0 || squares(&after) < squares(&before));
        moves
    }
}

/// From nothing to far more than a broker's mean.
fn load() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..100_000_u64,
        5 => 100_000..4 * MIB,
        1 => 4 * MIB..200 * MIB,
    ]
}

fn partitions() -> impl Strategy<Value = Vec<(usize, u64, bool)>> {
    let partition = (0..6_usize, load(), prop::bool::weighted(0.1));
    proptest::collection::vec(partition, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Constant loads: it comes to rest, and then nobody who may give has anything that would help.
    #[test]
    fn any_start_comes_to_rest_and_stays_there(
        ready in proptest::collection::vec(prop::bool::weighted(0.85), 1..6),
        partitions in partitions(),
    ) {
        let mut world = World::new(ready, partitions);
        for _ in 0..300 {
            world.look_exactly();
        }
        for _ in 0..300 {
            prop_assert_eq!(world.look_exactly(), 0);
        }
        for partition in &world.partitions {
            prop_assert!(world.ready[partition.owner] || partition.moves == 0);
        }
    }

    /// A broker that comes while others work has its share after one period.
    #[test]
    fn new_broker_carries_its_share_after_one_period(
        brokers in 2..8_usize,
        loads in proptest::collection::vec(500_000..1_000_000_u64, 96..240),
    ) {
        let partitions = loads.iter().enumerate();
        let partitions = partitions.map(|(index, bytes)| (index % brokers, *bytes, false));
        let partitions: Vec<_> = partitions.collect();
        let mut world = World::new(vec![true; brokers], partitions);
        for _ in 0..100 {
            world.look_exactly();
        }
        // Whoever was moved before has rested.
        world.now += world.limits.cooldown;
        world.ready.push(true);
        for _ in 0..3 {
            world.look_exactly();
        }
        let all: u64 = (0..=brokers).map(|of| world.load(of)).sum();
        let mean = all / (brokers as u64 + 1);
        for broker in 0..=brokers {
            let load = world.load(broker);
            prop_assert!(load.abs_diff(mean) * 5 <= mean, "{broker}: {load} of {mean}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    /// Rates as brokers measure them, each sample up to a fifth above or below what it is: once at rest, nothing moves for an hour.
    #[test]
    fn loads_that_go_up_and_down_a_fifth_move_nothing_once_at_rest(
        brokers in 2..6_usize,
        partitions in proptest::collection::vec((0..6_usize, load()), 1..60),
        seed in any::<u64>(),
    ) {
        let partitions = partitions.into_iter().map(|(owner, bytes)| (owner, bytes, false));
        let mut world = World::new(vec![true; brokers], partitions);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut meters: Vec<Meter> = (0..brokers).map(|_| Meter::default()).collect();
        let mut moves = Vec::new();
        for look in 0..600 {
            let mut time = world.now;
            for _ in 0..LOOK.as_secs() / SAMPLE.as_secs() {
                time += SAMPLE;
                for of in &mut world.partitions {
                    let share = rng.random_range(0.8..1.2);
                    of.counted += (of.bytes as f64 * SAMPLE.as_secs_f64() * share) as u64;
                }
                for (broker, meter) in meters.iter_mut().enumerate() {
                    let own = world.partitions.iter().enumerate();
                    let own = own.filter(|(_, of)| of.owner == broker);
                    let open = own.map(|(index, of)| (id(index), of.moves, of.counted));
                    meter.sample(open, time);
                }
            }
            let rates: BTreeMap<PartitionId, u64> = meters.iter().flat_map(Meter::rates).collect();
            let (_, made) = world.look(|index| rates.get(&id(index)).copied().unwrap_or(0));
            moves.extend((0..made).map(|_| look));
        }
        // Four cool-downs, then an hour.
        let late = moves.iter().filter(|look| **look >= 240);
        prop_assert_eq!(late.count(), 0, "{:?}", moves);
    }
}

#[test]
fn uneven_brokers_are_evened_out_in_the_third_look_and_at_once_by_an_operators_word() {
    let partitions = (0..12).map(|_| (0, MIB, false)).collect::<Vec<_>>();
    let mut world = World::new(vec![true, true, true], partitions.clone());
    let rate = |_| MIB;
    assert_eq!(world.look(rate), (Verdict::Wait { seen: 1, of: 3 }, 0));
    assert_eq!(world.look(rate), (Verdict::Wait { seen: 2, of: 3 }, 0));
    assert_eq!(world.look(rate), (Verdict::Act, 8));
    assert_eq!(world.look(rate), (Verdict::Even, 0));
    let world = World::new(vec![true, true, true], partitions);
    let mut scene = world.scene(rate);
    let look = Judge::default().look(&mut scene, &world.limits, (LOOK, true));
    assert_eq!((look.verdict, look.planned.moves.len()), (Verdict::Act, 8));
    assert_eq!(look.planned.after.percent, 0);
}

#[test]
fn brokers_at_rest_are_left_alone_longer_unless_loads_clearly_change() {
    let partitions = (0..20).map(|index| (index, MIB, false));
    let mut world = World::new(vec![true, true], partitions);
    for _ in 0..130 {
        assert_eq!(world.look(|_| MIB), (Verdict::Even, 0));
    }
    // A quarter more on one broker: just uneven.
    let more = |index: usize| MIB + MIB / 4 * (1 - index as u64 % 2);
    for seen in 1..18 {
        assert_eq!(world.look(more), (Verdict::Wait { seen, of: 18 }, 0));
    }
    assert_eq!(world.look(more), (Verdict::Act, 1));
    for _ in 0..130 {
        assert_eq!(world.look(more), (Verdict::Even, 0));
    }
    let twice = |index: usize| 2 * more(index) - MIB * (index as u64 % 2);
    for seen in 1..3 {
        assert_eq!(world.look(twice), (Verdict::Wait { seen, of: 3 }, 0));
    }
    assert_eq!(world.look(twice).0, Verdict::Act);
    // And so is a broker that comes.
    for _ in 0..130 {
        world.look(|_| MIB);
    }
    world.ready.push(true);
    let seen: Vec<_> = (0..3).map(|_| world.look(|_| MIB).0).collect();
    assert_eq!(seen[2], Verdict::Act, "{seen:?}");
}

#[test]
fn what_is_pinned_rests_or_is_too_big_stays_and_is_told() {
    let limits = BalanceLimits::default();
    let told = |world: &World, bytes: &[u64]| {
        let mut scene = world.scene(|index| bytes[index]);
        let look = Judge::default().look(&mut scene, &limits, (LOOK, true));
        (look.verdict, super::words::words(&look, &limits))
    };
    // One that is bigger than the two brokers differ, and little ones that do not help.
    let big = [60 * MIB, 1_000, 1_000];
    let world = World::new(vec![true, true], big.iter().map(|of| (0, *of, false)));
    assert_eq!(told(&world, &big).0, Verdict::NothingHelps);
    let pinned = [MIB, MIB, MIB, MIB];
    let mut world = World::new(vec![true, true], pinned.iter().map(|of| (0, *of, true)));
    let (verdict, words) = told(&world, &pinned);
    assert_eq!(verdict, Verdict::NothingHelps);
    assert!(words.contains("4 partitions are pinned"), "{words}");
    for partition in &mut world.partitions {
        (partition.pinned, partition.moved) = (false, Some(Duration::ZERO));
    }
    world.now = Duration::from_secs(60);
    let (verdict, words) = told(&world, &pinned);
    assert_eq!(verdict, Verdict::NothingHelps);
    assert!(words.contains("4 were moved lately"), "{words}");
    // Nobody to give to.
    let world = World::new(vec![true, false], pinned.iter().map(|of| (0, *of, false)));
    assert_eq!(told(&world, &pinned).0, Verdict::TooFew);
    // Little that is spread unevenly is nobody's trouble.
    let little = [100, 100, 100];
    let world = World::new(vec![true, true], little.iter().map(|of| (0, *of, false)));
    let (verdict, words) = told(&world, &little);
    assert_eq!(verdict, Verdict::Even);
    assert!(words.contains("less than 64KiB"), "{words}");
    assert_eq!(spread(&world.scene(|_| 100)).percent, 100);
}
