//! Exactly once, by seed; and the rules without which it would not be.

use std::fs::OpenOptions;
use std::io::Write as _;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::checker::{check, late_within_bound};
use super::world::{Plan, World};
use crate::mutant::Mutant;
use crate::testing::Faults;

/// Seeds of a usual run.
const SEEDS: u64 = 400;
/// Seeds in which a mutant must be found.
const MUTANT_SEEDS: u64 = 300;

fn plan(seed: u64, mutant: Option<Mutant>) -> Plan {
    let mut chance = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
    let faults = Faults {
        lost: [0, 15, 40][chance.random_range(0..3)],
        held: [0, 6, 3][chance.random_range(0..3)],
        slow: [0, 3, 10][chance.random_range(0..3)],
    };
    Plan {
        seed,
        partitions: chance.random_range(1..5),
        orders: chance.random_range(50..400),
        faults,
        crash: [0, 10, 25][chance.random_range(0..3)],
        odd: chance.random(),
        mutant,
    }
}

/// Runs a seed and says what does not hold.
fn outcome(plan: Plan) -> Result<World, String> {
    let mut world = World::new(plan);
    world.run().map_err(|failure| failure.to_string())?;
    check(&world)?;
    match late_within_bound(&world) {
        0 => Ok(world),
        late => Err(format!("{late} records within the bound were late")),
    }
}

/// `HULSE_LONG=1`: many more.
fn seeds() -> u64 {
    let seeds = match std::env::var_os("HULSE_LONG") {
        Some(_) => 30_000,
        None => SEEDS,
    };
    if let Some(path) = std::env::var_os("HULSE_TEST_REPORT") {
        let report = OpenOptions::new().create(true).append(true).open(path);
        let written =
            report.and_then(|mut report| report.write_all(format!("seeds: {seeds}\n").as_bytes()));
        written.unwrap();
    }
    seeds
}

#[test]
fn output_equals_the_orders_after_any_crash() {
    let (mut crashes, mut deleted, mut cut) = (0, 0, 0);
    for seed in 0..seeds() {
        let world = outcome(plan(seed, None))
            .unwrap_or_else(|why| panic!("seed {seed}: {why}; {:?}", plan(seed, None)));
        crashes += world.crashes;
        let cluster = world.cluster.lock().unwrap();
        deleted += cluster.objects_deleted;
        cut += u64::from(cluster.changelog_start() > 0);
        assert!(
            cluster.objects().count() <= 4,
            "seed {seed}: snapshots pile up"
        );
    }
    assert!(
        crashes > 100 && deleted > 100 && cut > 10,
        "{crashes} crashes, {deleted} snapshots deleted, {cut} changelogs cut"
    );
}

#[test]
fn same_seed_gives_the_same_run() {
    for seed in 0..5 {
        let trace = |world: World| {
            let cluster = world.cluster.lock().unwrap();
            (format!("{:?}", cluster), world.crashes)
        };
        let (first, second) = (outcome(plan(seed, None)), outcome(plan(seed, None)));
        assert_eq!(
            trace(first.unwrap_or_else(|why| panic!("{why}"))),
            trace(second.unwrap_or_else(|why| panic!("{why}")))
        );
    }
}

/// F1 to F12 of compute.md B4: a crash before and after each step of the first epochs.
#[test]
fn crash_at_each_step_changes_nothing() {
    for step in 0..60 {
        let plan = Plan {
            seed: 7,
            partitions: 2,
            orders: 120,
            faults: Faults::default(),
            crash: 0,
            odd: true,
            mutant: None,
        };
        let mut world = World::new(plan);
        let mut steps = 0;
        while steps < step {
            world.step().unwrap();
            steps += 1;
        }
        world.crash();
        world.run().unwrap();
        check(&world).unwrap_or_else(|why| panic!("step {step}: {why}"));
    }
}

#[test]
fn each_broken_rule_is_found() {
    let mut missed = Vec::new();
    for mutant in [
        Mutant::ReadBeforeFence,
        Mutant::UnknownIsCommitted,
        Mutant::UnknownIsAborted,
        Mutant::OffsetsLeftOut,
        Mutant::DeltaLeftOut,
        Mutant::LateByNewWatermark,
        Mutant::WatermarkIsMaximum,
        Mutant::SilenceIsIdle,
        Mutant::WatermarkForgotten,
        Mutant::TruncateBeforePublish,
        Mutant::TailLeftOut,
    ] {
        let found = (0..MUTANT_SEEDS).any(|seed| outcome(plan(seed, Some(mutant))).is_err());
        if !found {
            missed.push(mutant);
        }
    }
    assert!(
        missed.is_empty(),
        "{missed:?} not found in {MUTANT_SEEDS} seeds"
    );
}
