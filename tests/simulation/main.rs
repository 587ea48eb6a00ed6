//! The simulation: one seed is one run of storage nodes, ledger clients and brokers, with everything going wrong that may.
//!
//! Each suite runs its seeds, mostly 1,000 (thirty times as many with `HULSE_LONG=1`), and every seed of `seeds.txt`, where seeds are
//! kept that ever failed. A failure prints the command that replays it. `ledger` is the ledger protocol alone, `partition` two brokers
//! over it, `cluster` a whole cell with upkeep and owners, `lost_tails` a storage node that forgets,
//! `traces`, `scenarios`, `full_disk` and `rolls` are histories worth keeping, `mutants` shows that the oracles see what they
//! should, and `repeat` that a seed decides everything.

mod cluster;
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
    seeds: 1_000,
    kept: SEEDS,
    run: ledger::run,
};

/// The crash points of storage.md §10 that this suite must have hit.
const LEDGER_POINTS: [u32; 19] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23,
];

#[test]
fn no_confirmed_entry_is_lost() {
    LEDGER.run(&LEDGER_POINTS.map(tests_harness::CrashPoint), &[]);
}

/// The suite of brokers and their partition.
const PARTITION: Suite = Suite {
    name: "no_acknowledged_record_is_lost_or_doubled",
    seeds: 1_000,
    kept: SEEDS,
    run: partition::run,
};

#[test]
fn no_acknowledged_record_is_lost_or_doubled() {
    PARTITION.run(&[], &[]);
}

/// The suite of consumers, over the one of brokers and their partition.
const CONSUMERS: Suite = Suite {
    name: "no_acked_record_comes_again_and_no_other_is_passed_over",
    seeds: 1_000,
    kept: SEEDS,
    run: partition::run_consumed,
};

#[test]
fn no_acked_record_comes_again_and_no_other_is_passed_over() {
    CONSUMERS.run(&[], &[]);
}

/// The suite of consumers that share, over the one of brokers and their partition (serving.md F2, tests 12 to 17).
const SHARERS: Suite = Suite {
    name: "shared_records_are_acked_once_keys_keep_their_order_and_counts_never_fall",
    seeds: 1_000,
    kept: SEEDS,
    run: partition::run_shared,
};

/// What the seeds of that suite are for.
const SHARERS_COUNTS: [&str; 5] = [
    "shared acks with a receipt",
    "shared records that came after a failure",
    "sharers that attached",
    "sharers that crashed",
    "sharers that stalled",
];

#[test]
fn shared_records_are_acked_once_keys_keep_their_order_and_counts_never_fall() {
    SHARERS.run(&[], &SHARERS_COUNTS);
}

/// The suite of a whole cell: brokers that move their partition, upkeep, and a bookie that is drained.
const CLUSTER: Suite = Suite {
    name: "nothing_is_lost_while_bookies_are_drained_and_partitions_move",
    seeds: 300,
    kept: SEEDS,
    run: cluster::run,
};

/// What the seeds of that suite are for.
const CLUSTER_COUNTS: [&str; 9] = [
    "bookies drained and retired",
    "copies let go of that others hold",
    "deletions that began while repair copied",
    "hand-overs given up half-way",
    "hand-overs that were refused or not answered",
    "listings that lacked rows",
    "partitions handed over as planned",
    "recoveries that began while repair copied",
    "recoveries that ended while repair copied",
];

#[test]
fn nothing_is_lost_while_bookies_are_drained_and_partitions_move() {
    CLUSTER.run(&[tests_harness::CrashPoint(24)], &CLUSTER_COUNTS);
}

/// The suite of a log whose end is lost below its start.
const LOST_TAILS: Suite = Suite {
    name: "records_stored_after_a_lost_tail_are_read",
    seeds: 1_000,
    kept: SEEDS,
    run: lost_tails::run,
};

#[test]
fn records_stored_after_a_lost_tail_are_read() {
    LOST_TAILS.run(&[], &[]);
}

#[test]
fn same_seed_gives_the_same_trace() {
    LEDGER.repeats(20);
    PARTITION.repeats(20);
    CONSUMERS.repeats(20);
    SHARERS.repeats(20);
    CLUSTER.repeats(10);
}
