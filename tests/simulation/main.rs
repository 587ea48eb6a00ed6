//! The simulation: one seed is one run of storage nodes, ledger clients and brokers, with everything going wrong that may.
//!
//! Each suite runs 1,000 seeds (30,000 with `HULSE_LONG=1`) and every seed of `seeds.txt`, where seeds are kept that ever failed.
//! A failure prints the command that replays it. `ledger` is the ledger protocol alone, `partition` two brokers over it,
//! `lost_tails` a storage node that forgets,
//! `traces`, `scenarios`, `full_disk` and `rolls` are histories worth keeping, `mutants` shows that the oracles see what they
//! should, and `repeat` that a seed decides everything.

mod full_disk;
mod invariants;
mod ledger;
mod lost_tails;
mod mutants;
mod partition;
mod rolls;
mod scenarios;
mod traces;

use tests_harness::Suite;

const SEEDS: &str = include_str!("seeds.txt");

/// The suite of the ledger protocol.
const LEDGER: Suite = Suite {
    name: "no_confirmed_entry_is_lost",
    kept: SEEDS,
    run: ledger::run,
};

/// The crash points of storage.md §10 that this suite must have hit.
const LEDGER_POINTS: [u32; 19] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23,
];

#[test]
fn no_confirmed_entry_is_lost() {
    LEDGER.run(&LEDGER_POINTS.map(tests_harness::CrashPoint));
}

/// The suite of brokers and their partition.
const PARTITION: Suite = Suite {
    name: "no_acknowledged_record_is_lost_or_doubled",
    kept: SEEDS,
    run: partition::run,
};

#[test]
fn no_acknowledged_record_is_lost_or_doubled() {
    PARTITION.run(&[]);
}

/// The suite of consumers, over the one of brokers and their partition.
const CONSUMERS: Suite = Suite {
    name: "no_acked_record_comes_again_and_no_other_is_passed_over",
    kept: SEEDS,
    run: partition::run_consumed,
};

#[test]
fn no_acked_record_comes_again_and_no_other_is_passed_over() {
    CONSUMERS.run(&[]);
}

/// The suite of a log whose end is lost below its start.
const LOST_TAILS: Suite = Suite {
    name: "records_stored_after_a_lost_tail_are_read",
    kept: SEEDS,
    run: lost_tails::run,
};

#[test]
fn records_stored_after_a_lost_tail_are_read() {
    LOST_TAILS.run(&[]);
}

#[test]
fn same_seed_gives_the_same_trace() {
    LEDGER.repeats(20);
    PARTITION.repeats(20);
    CONSUMERS.repeats(20);
}
