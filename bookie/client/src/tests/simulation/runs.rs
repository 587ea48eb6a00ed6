//! The runs: seeds for every kind of cell, the same seed twice, and every rule shown to be needed.

use hulse_proto::ledger::Quorums;

use super::{Setup, World};
use hulse_proto::mutant::Mutant;

/// Runs within which a mutant must be found.
const MUTANT_SEEDS: u64 = 500;
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
        spares: 0,
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

/// Runs in which members are replaced: 1,000, or 30,000 with `HULSE_LONG=1`.
fn changing_seeds() -> u64 {
    match std::env::var_os("HULSE_LONG") {
        Some(value) if value == "1" => 30_000,
        _ => 1_000,
    }
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
        for setup in [setup(3, 3, 2, 3), changing(3, 3, 2, 3)] {
            let run = || World::new(seed, setup).run();
            assert_eq!(run(), run(), "seed {seed}");
        }
    }
}

/// Six bookies for an ensemble of three, or as many spares for others.
fn changing(ensemble: u32, write: u32, ack: u32, recoverers: usize) -> Setup {
    Setup {
        spares: 3,
        appends: 24,
        ..setup(ensemble, write, ack, recoverers)
    }
}

/// As [`all_hold`]; the runs must have changed ensembles, in the writer and in recovery.
fn all_hold_changing(setup: Setup, count: u64) {
    let (mut confirmed_sum, mut changes, mut local, mut in_silence) = (0, 0, 0, 0);
    for seed in 0..count {
        let (violations, _, confirmed, members) = World::new(seed, setup).run_counting();
        assert!(
            violations.is_empty(),
            "seed {seed} of {setup:?}: {violations:?}"
        );
        confirmed_sum += confirmed;
        changes += members.changes;
        local += members.local_changes;
        in_silence += members.confirmed_in_silence;
    }
    println!(
        "{count} seeds of {:?}: {confirmed_sum} entries confirmed, {in_silence} of them in silence, {changes} ensemble changes, \
         {local} local ones",
        setup.quorums
    );
    assert!(changes > count / 4 && local > 0 && confirmed_sum > count * 4);
    assert!(setup.quorums.ack == setup.quorums.write || in_silence > 0);
}

#[test]
fn no_confirmed_entry_is_lost_while_members_are_replaced() {
    all_hold_changing(changing(3, 3, 2, 2), changing_seeds());
    all_hold_changing(changing(3, 3, 2, 4), changing_seeds());
}

#[test]
fn no_confirmed_entry_is_lost_while_members_of_other_quorums_are_replaced() {
    for (ensemble, write, ack) in [(2, 2, 2), (3, 3, 3), (4, 3, 2), (3, 3, 1)] {
        all_hold_changing(changing(ensemble, write, ack, 3), changing_seeds() / 4);
    }
}

#[test]
fn a_rule_that_is_switched_off_is_found() {
    use Mutant::*;
    let still = setup(3, 3, 2, 3);
    let limbo = Setup {
        losses: true,
        ..still
    };
    let moving = changing(3, 3, 2, 3);
    let mut missed = Vec::new();
    for (mutant, setup) in [
        (ConfirmBelowAckQuorum, still),
        (FenceForgotten, still),
        (RecoveryRaisesConfirmedEnd, still),
        (CloseWithoutVersion, still),
        (UnknownIsNegative, still),
        (NegativeFromLimbo, limbo),
        (ReplacedMemberCounts, moving),
        (ProposedMemberCounts, moving),
        (UnresolvedReplacedCounts, moving),
        (OldVersionEndsProposal, moving),
        (SecondProposal, moving),
        (StrangerEndsWriter, moving),
        (LocalChangeTooLow, moving),
        (RecoverFromZero, moving),
    ] {
        let setup = Setup {
            mutant: Some(mutant),
            ..setup
        };
        let found = (0..MUTANT_SEEDS).find_map(|seed| {
            let (violations, ..) = World::new(seed, setup).run();
            violations.into_iter().next().map(|words| (seed, words))
        });
        match found {
            Some((seed, words)) => println!("{mutant:?}: seed {seed}: {words}"),
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
