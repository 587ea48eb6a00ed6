//! A seeded simulation of whole transactions: producers of both versions with zombies among them, two coordinators, partitions with records
//! and acks, a shard of groups; a network that loses, doubles and reorders, and brings what it had long held back; places that die
//! between any two steps and come back with what had become durable.
//!
//! What must hold (serving.md C8; tests 4 to 7 and 10 of F2), in the manner of list-append: every transaction appends values of its own to
//! several logs, acknowledges records and commits an offset, and
//! - what it did is visible everywhere, once, or nowhere; a client that heard "committed" sees it, what was not ended is not seen;
//! - a reader of committed records sees at any time what the whole log shows in the end;
//! - no last stable offset falls, across owners too, and none is held when all is over;
//! - no ack is committed by two transactions, and offsets are those of the last commit recorded;
//! - what is open anywhere, at any time, is so for a transaction that its coordinator will end;
//! - live equals replay after each step.
//!
//! Rules that are switched off (`Mutant`) are missed by some seed.
//!
//! Reading order: `message`, `client`, `coordinators`, `partitions`, `taking_over`, `groups`, `run`, `oracle`.

mod client;
mod coordinators;
mod groups;
mod message;
mod oracle;
mod partitions;
mod run;
mod taking_over;

use std::panic::{AssertUnwindSafe, catch_unwind};

use hulse_proto::mutant::{Mutant, Mutation};

use run::Run;

/// Seeds; `HULSE_LONG=1`: forty times as many.
const SEEDS: u64 = 60;
/// Seeds that a mutant has to be caught by.
const MUTANT_SEEDS: u64 = 400;

fn simulate(seed: u64, mutation: Mutation) -> Run {
    let mut run = Run::new(seed, mutation);
    run.troubles();
    run.settle();
    run.judge();
    run
}

#[test]
fn transactions_are_atomic_and_nothing_moves_backwards() {
    let long = std::env::var_os("HULSE_LONG").is_some();
    let count = if long { 40 * SEEDS } else { SEEDS };
    let (mut committed, mut aborted, mut killed) = (0, 0, 0);
    for seed in 0..count {
        let run = catch_unwind(AssertUnwindSafe(|| simulate(seed, Mutation::default())));
        let run = run.unwrap_or_else(|_| panic!("seed {seed}"));
        committed += run.oracle.visible;
        aborted += run.oracle.invisible;
        killed += run.kills;
    }
    let enough = committed > 5 * count && aborted > 2 * count && killed > 3 * count;
    assert!(
        enough,
        "{committed} committed, {aborted} not, {killed} kills"
    );
}

#[test]
fn same_seed_gives_the_same_run() {
    for seed in 0..3 {
        let trace = |seed| simulate(seed, Mutation::default()).trace();
        assert_eq!(trace(seed), trace(seed));
    }
}

#[test]
fn every_rule_that_is_switched_off_is_missed() {
    let mutants = [
        Mutant::DecisionBeforePrepare,
        Mutant::MarkerTriedOnce,
        Mutant::FenceKeepsEpoch,
        Mutant::LateVerificationTaken,
        Mutant::StableAtEnd,
        Mutant::AbortedBeforeForgotten,
        Mutant::OldMarkerTaken,
        Mutant::StagedTwice,
    ];
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let missed = mutants.map(|mutant| {
        let caught = (0..MUTANT_SEEDS).find(|seed| {
            let run = || simulate(*seed, Mutation::of(Some(mutant)));
            catch_unwind(AssertUnwindSafe(run)).is_err()
        });
        (mutant, caught)
    });
    std::panic::set_hook(hook);
    let held = missed.iter().filter(|(_, seed)| seed.is_none());
    let held: Vec<Mutant> = held.map(|(mutant, _)| *mutant).collect();
    assert_eq!(held, [], "no seed misses these");
}
