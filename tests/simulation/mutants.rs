//! Rules switched off, one at a time: the oracles must see each within a few seeds, or they see nothing.

use hulse_proto::mutant::Mutant;
use tests_harness::{Run, Suite};

use crate::{ledger, partition};

/// Seeds within which a mutant must be found.
const BUDGET: u64 = 500;

fn suite(name: &'static str, run: fn(u64, bool) -> Run) -> Suite {
    Suite {
        name,
        kept: "",
        run,
    }
}

#[test]
fn ack_before_sync_is_found_at_the_ledger() {
    suite("ack_before_sync_is_found_at_the_ledger", |seed, whole| {
        ledger::run_with(seed, whole, Some(Mutant::AckBeforeSync))
    })
    .finds(BUDGET);
}

#[test]
fn ack_before_sync_is_found_at_the_partition() {
    suite(
        "ack_before_sync_is_found_at_the_partition",
        |seed, whole| partition::run_with(seed, whole, Some(Mutant::AckBeforeSync)),
    )
    .finds(BUDGET);
}

#[test]
fn forgotten_fence_is_found() {
    suite("forgotten_fence_is_found", |seed, whole| {
        ledger::run_with(seed, whole, Some(Mutant::FenceForgotten))
    })
    .finds(BUDGET);
}
