//! Rules switched off, one at a time: the oracles must see each within a few seeds, or they see nothing.
//!
//! Where the usual suites find a mutant soon, they are its test. Else `hunt` runs the same ledgers in a profile made for it: a
//! shape and a trouble in which its history is likely. The same seeds of the profile with all rules on must be clean.

mod hunt;
mod profiles;

use hulse_proto::mutant::Mutant;
use tests_harness::{Run, Suite};

use crate::{ledger, partition};
use hunt::hunt;
use profiles::LATE_ADDS;

/// Seeds within which a mutant must be found.
const BUDGET: u64 = 500;
/// Seeds of a profile that must be clean with all rules on; with `HULSE_LONG=1` all of the budget.
const CLEAN: u64 = 40;

type Runner = fn(u64, bool) -> Run;

fn suite(name: &'static str, run: Runner) -> Suite {
    Suite {
        name,
        kept: "",
        run,
    }
}

/// The usual suite finds it.
fn is_found(name: &'static str, broken: Runner) {
    suite(name, broken).finds(BUDGET);
}

/// A profile finds it, and finds nothing when the rule holds.
fn is_hunted(name: &'static str, broken: Runner, whole: Runner) {
    is_found(name, broken);
    let seeds = match std::env::var_os("HULSE_LONG") {
        Some(_) => BUDGET,
        None => CLEAN,
    };
    for seed in 0..seeds {
        let run = whole(seed, false);
        assert!(
            run.violations.is_empty(),
            "{name}: seed {seed} with all rules on:\n{}\n{:#?}",
            run.text,
            run.violations
        );
    }
}

#[test]
fn ack_before_sync_is_found_at_the_ledger() {
    is_found("ack_before_sync_is_found_at_the_ledger", |seed, whole| {
        ledger::run_with(seed, whole, Some(Mutant::AckBeforeSync))
    });
}

#[test]
fn ack_before_sync_is_found_at_the_partition() {
    is_found(
        "ack_before_sync_is_found_at_the_partition",
        |seed, whole| partition::run_with(seed, whole, Some(Mutant::AckBeforeSync)),
    );
}

#[test]
fn forgotten_fence_is_found() {
    is_found("forgotten_fence_is_found", |seed, whole| {
        ledger::run_with(seed, whole, Some(Mutant::FenceForgotten))
    });
}

#[test]
fn read_without_fence_is_found() {
    is_hunted(
        "read_without_fence_is_found",
        |seed, whole| hunt(seed, whole, &LATE_ADDS, Some(Mutant::ReadWithoutFence)),
        |seed, whole| hunt(seed, whole, &LATE_ADDS, None),
    );
}
