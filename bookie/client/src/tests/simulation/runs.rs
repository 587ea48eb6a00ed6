//! The runs: seeds for every kind of cell, the same seed twice, and every rule shown to be needed.

use hulse_proto::ledger::Quorums;

use super::{Setup, World};
use crate::testing::Mutant;

/// Runs of each kind, in each run of the tests.
const SEEDS: u64 = 300;

fn setup(ensemble: u32, write: u32, ack: u32, recoverers: usize) -> Setup {
    Setup {
        quorums: Quorums {
            ensemble,
            write,
            ack,
        },
        appends: 12,
        recoverers,
        mutant: None,
        losses: false,
    }
}

/// Runs seeds `0..count`; fails with the first violating seed.
fn all_hold(setup: Setup, count: u64) {
    let mut confirmed_sum = 0;
    for seed in 0..count {
        let (violations, _, confirmed) = World::new(seed, setup).run();
        assert!(
            violations.is_empty(),
            "seed {seed} of {setup:?}: {violations:?}"
        );
        confirmed_sum += confirmed;
    }
    println!(
        "{count} seeds of {:?}: {confirmed_sum} entries confirmed",
        setup.quorums
    );
    // A run in which nothing is ever confirmed shows nothing.
    assert!(
        confirmed_sum > count,
        "{confirmed_sum} entries confirmed in {count} runs"
    );
}

/// True when some seed finds the mutant.
fn is_found(mut setup: Setup, mutant: Mutant, count: u64) -> bool {
    setup.mutant = Some(mutant);
    (0..count).any(|seed| !World::new(seed, setup).run().0.is_empty())
}

#[test]
fn no_confirmed_entry_is_lost_with_one_bookie() {
    all_hold(setup(1, 1, 1, 1), SEEDS);
    all_hold(setup(1, 1, 1, 2), SEEDS);
    all_hold(setup(1, 1, 1, 3), SEEDS);
}

#[test]
fn no_confirmed_entry_is_lost_with_three_bookies() {
    all_hold(setup(3, 3, 2, 2), SEEDS);
    all_hold(setup(3, 3, 2, 3), SEEDS);
}

#[test]
fn no_confirmed_entry_is_lost_with_other_quorums() {
    for (ensemble, write, ack) in [(2, 2, 2), (3, 3, 3), (3, 3, 1), (4, 3, 2), (5, 4, 3)] {
        all_hold(setup(ensemble, write, ack, 3), SEEDS / 3);
    }
}

#[test]
fn no_confirmed_entry_is_lost_with_a_bookie_in_limbo() {
    let mut setup = setup(3, 3, 2, 3);
    setup.losses = true;
    all_hold(setup, SEEDS);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        let run = || World::new(seed, setup(3, 3, 2, 3)).run();
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn a_rule_that_is_switched_off_is_found() {
    let mut missed = Vec::new();
    for mutant in [
        Mutant::ConfirmBelowAckQuorum,
        Mutant::FenceForgotten,
        Mutant::RecoveryRaisesConfirmedEnd,
        Mutant::ReadWithoutFence,
        Mutant::CloseWithoutVersion,
        Mutant::UnknownIsNegative,
    ] {
        if !is_found(setup(3, 3, 2, 3), mutant, 3_000) {
            missed.push(mutant);
        }
    }
    let mut limbo = setup(3, 3, 2, 3);
    limbo.losses = true;
    if !is_found(limbo, Mutant::NegativeFromLimbo, 3_000) {
        missed.push(Mutant::NegativeFromLimbo);
    }
    assert!(missed.is_empty(), "{missed:?}");
}
