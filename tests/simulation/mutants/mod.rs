//! Rules switched off, one at a time: the oracles must see each within a few seeds, or they see nothing.
//!
//! Where the usual suites find a mutant soon, they are its test. Else `hunt` runs the same ledgers in a profile made for it: a
//! shape and a trouble in which its history is likely. A seed counts only if it is clean with all rules on, and so must many seeds
//! of each profile be.
//!
//! Not here: `StrangerEndsWriter`, whose answers the writer's shell drops before its core can err, `OldVersionEndsProposal` and
//! `SecondProposal` (the client's own simulation finds these three at once).

mod consumed;
mod hunt;
mod profiles;
mod repaired;
mod scene;
mod trimmed;

use std::panic::catch_unwind;

use hulse_proto::mutant::Mutant;
use tests_harness::{Run, report};

use crate::{ledger, lost_tails, partition};
use consumed::hunt_consumed;
use hunt::hunt;
use profiles::{BAD_GROUP, DYING_RECOVERERS, LATE_ADDS, LATE_CHANGE, LOST_CHANGE};
use repaired::{hunt_repair, hunt_slow_passes};
use trimmed::hunt_trimmed;

/// Seeds within which a mutant must be found.
const BUDGET: u64 = 500;
/// Seeds of a profile that must be clean with all rules on; with `HULSE_LONG=1` all of the budget.
const CLEAN: u64 = 40;

type Runner = fn(u64, bool, Option<Mutant>) -> Run;

/// What is wrong with a run; `None`: nothing.
fn wrong(run: impl FnOnce() -> Run + std::panic::UnwindSafe) -> Option<String> {
    match catch_unwind(run) {
        Ok(run) => run.violations.into_iter().next(),
        Err(_) => Some("it panics".to_owned()),
    }
}

/// Some seed of the budget finds the mutant, and nothing without it.
fn is_found(mutant: Mutant, run: Runner) {
    if let Ok(seed) = std::env::var("HULSE_SEED") {
        let seed = seed.parse().expect("HULSE_SEED is a number");
        println!("{}", run(seed, true, Some(mutant)).text);
    }
    for seed in 0..BUDGET {
        let Some(words) = wrong(|| run(seed, false, Some(mutant))) else {
            continue;
        };
        if wrong(|| run(seed, false, None)).is_none() {
            report("mutants found: 1");
            println!("{mutant:?}: seed {seed}: {words}");
            return;
        }
    }
    panic!("{mutant:?}: {BUDGET} seeds find nothing wrong with it");
}

fn clean_seeds() -> u64 {
    match std::env::var_os("HULSE_LONG") {
        Some(_) => BUDGET,
        None => CLEAN,
    }
}

/// With all rules on these runs are clean.
fn is_clean(name: &str, run: impl Fn(u64) -> Run) {
    for seed in 0..clean_seeds() {
        let run = run(seed);
        let violations = run.violations;
        assert!(
            violations.is_empty(),
            "{}\n{name}, seed {seed} with all rules on: {violations:#?}",
            run.text
        );
    }
}

#[test]
fn profiles_are_clean_with_all_rules_on() {
    let profiles = [
        ("late adds", &LATE_ADDS),
        ("late change", &LATE_CHANGE),
        ("dying recoverers", &DYING_RECOVERERS),
        ("lost change", &LOST_CHANGE),
        ("bad group", &BAD_GROUP),
    ];
    for (name, profile) in profiles {
        is_clean(name, |seed| hunt(seed, false, profile, None));
    }
}

#[test]
fn profile_of_consumers_is_clean_with_all_rules_on() {
    is_clean("consumers", |seed| hunt_consumed(seed, false, None));
}

#[test]
fn profile_of_trims_beside_cursors_is_clean_with_all_rules_on() {
    is_clean("trims", |seed| hunt_trimmed(seed, false, None));
}

// The writer.

#[test]
fn confirming_below_the_ack_quorum_is_found() {
    is_found(Mutant::ConfirmBelowAckQuorum, ledger::run_with);
}

#[test]
fn ack_of_a_replaced_member_is_found() {
    is_found(Mutant::ReplacedMemberCounts, ledger::run_with);
}

#[test]
fn ack_of_a_proposed_member_is_found() {
    is_found(Mutant::ProposedMemberCounts, |seed, whole, mutant| {
        hunt(seed, whole, &LOST_CHANGE, mutant)
    });
}

#[test]
fn ack_of_a_member_to_be_replaced_is_found() {
    is_found(Mutant::UnresolvedReplacedCounts, |seed, whole, mutant| {
        hunt(seed, whole, &LATE_CHANGE, mutant)
    });
}

// Recovery.

#[test]
fn recovery_from_entry_zero_is_found() {
    is_found(Mutant::RecoverFromZero, ledger::run_with);
}

#[test]
fn recovery_that_raises_the_confirmed_end_is_found() {
    is_found(Mutant::RecoveryRaisesConfirmedEnd, |seed, whole, mutant| {
        hunt(seed, whole, &DYING_RECOVERERS, mutant)
    });
}

#[test]
fn local_change_that_begins_too_low_is_found() {
    is_found(Mutant::LocalChangeTooLow, ledger::run_with);
}

#[test]
fn close_without_version_is_found() {
    is_found(Mutant::CloseWithoutVersion, ledger::run_with);
}

#[test]
fn unknown_that_counts_as_negative_is_found() {
    is_found(Mutant::UnknownIsNegative, ledger::run_with);
}

// The bookie.

#[test]
fn read_without_fence_is_found() {
    is_found(Mutant::ReadWithoutFence, |seed, whole, mutant| {
        hunt(seed, whole, &LATE_ADDS, mutant)
    });
}

#[test]
fn forgotten_fence_is_found() {
    is_found(Mutant::FenceForgotten, ledger::run_with);
}

#[test]
fn negative_from_limbo_is_found() {
    is_found(Mutant::NegativeFromLimbo, ledger::run_with);
}

#[test]
fn ack_before_sync_is_found_at_the_ledger() {
    is_found(Mutant::AckBeforeSync, ledger::run_with);
}

#[test]
fn ack_before_sync_is_found_at_the_partition() {
    is_found(Mutant::AckBeforeSync, partition::run_with);
}

#[test]
fn log_cut_at_the_first_bad_group_is_found() {
    is_found(Mutant::TruncateAtFirstBadGroup, |seed, whole, mutant| {
        hunt(seed, whole, &BAD_GROUP, mutant)
    });
}

#[test]
fn closed_ledger_that_counts_as_deleted_is_found() {
    is_found(Mutant::ClosedIsDead, partition::run_with);
}

#[test]
fn compaction_that_leaves_an_entry_behind_is_found() {
    is_found(Mutant::CompactionForgets, partition::run_with);
}

// Repair and deletion.

#[test]
fn profile_of_repair_is_clean_with_all_rules_on() {
    is_clean("repair", |seed| hunt_repair(seed, false, None));
    is_clean("slow passes", |seed| hunt_slow_passes(seed, false, None));
}

#[test]
fn repair_without_an_intent_is_found() {
    is_found(Mutant::RepairWithoutIntent, hunt_repair);
}

#[test]
fn bookie_that_forgets_intents_is_found() {
    is_found(Mutant::IntentsForgotten, hunt_repair);
}

#[test]
fn swap_of_an_unproven_member_is_found() {
    is_found(Mutant::SwapUnproven, hunt_repair);
}

#[test]
fn repair_of_an_open_tail_is_found() {
    is_found(Mutant::RepairOpenTail, hunt_repair);
}

#[test]
fn swap_without_a_compare_is_found() {
    is_found(Mutant::SwapBlindly, hunt_repair);
}

#[test]
fn ledger_reclaimed_by_the_word_of_a_listing_is_found() {
    is_found(Mutant::ListingIsProof, hunt_repair);
}

#[test]
fn copy_that_came_while_a_bookie_asked_and_is_let_go_is_found() {
    is_found(Mutant::StrayDespiteCopy, hunt_slow_passes);
}

#[test]
fn deletion_that_forgets_whom_repair_copies_to_is_found() {
    is_found(Mutant::DeletionForgetsTargets, hunt_repair);
}

// The owner of a partition.

#[test]
fn snapshot_of_unconfirmed_entries_is_found() {
    is_found(Mutant::SnapshotOfUnconfirmed, partition::run_with);
}

#[test]
fn state_ledger_unlinked_too_early_is_found() {
    is_found(Mutant::StateLedgerUnlinkedEarly, partition::run_with);
}

#[test]
fn log_trimmed_past_its_snapshot_is_found() {
    is_found(Mutant::LogTrimmedPastSnapshot, partition::run_with);
}

#[test]
fn one_applied_position_for_both_chains_is_found() {
    is_found(Mutant::OneAppliedPosition, partition::run_consumed_with);
}

#[test]
fn log_that_goes_on_below_its_start_is_found() {
    is_found(Mutant::EndBelowStart, lost_tails::run_with);
}

// The cursors of a partition.

#[test]
fn receipt_before_its_delta_is_found() {
    is_found(Mutant::ReceiptBeforeDelta, partition::run_consumed_with);
}

#[test]
fn cursor_at_what_was_sent_is_found() {
    is_found(Mutant::CursorAtSent, partition::run_consumed_with);
}

#[test]
fn failed_delta_that_is_forgotten_is_found() {
    is_found(Mutant::FailedDeltaForgotten, hunt_consumed);
}

#[test]
fn cursor_that_drops_its_namesakes_is_found() {
    is_found(Mutant::NamesakeDropped, partition::run_consumed_with);
}

#[test]
fn acks_that_a_take_over_forgets_are_found() {
    is_found(Mutant::RangesForgotten, partition::run_consumed_with);
}

#[test]
fn cumulative_ack_of_one_record_more_is_found() {
    is_found(Mutant::CumulativeOffByOne, partition::run_consumed_with);
}

#[test]
fn ack_beyond_what_was_sent_is_found() {
    is_found(Mutant::AckBeyondSent, partition::run_consumed_with);
}

#[test]
fn cursor_below_a_trim_that_is_decided_is_found() {
    is_found(Mutant::CursorBelowTrim, hunt_trimmed);
}

#[test]
fn trim_past_a_cursor_that_is_not_durable_yet_is_found() {
    is_found(Mutant::TrimPastNewCursor, hunt_trimmed);
}

#[test]
fn consumer_that_goes_on_beside_its_successor_is_found() {
    is_found(Mutant::FormerNotTold, partition::run_consumed_with);
}

// The sharing of a partition's records.

#[test]
fn shared_receipt_before_its_delta_is_found() {
    is_found(Mutant::SharedReceiptBeforeDelta, partition::run_shared_with);
}

#[test]
fn failed_attempts_that_a_take_over_forgets_are_found() {
    is_found(Mutant::FailedAttemptsForgotten, partition::run_shared_with);
}

#[test]
fn keyed_subscription_without_keys_is_found() {
    is_found(Mutant::KeysIgnored, partition::run_shared_with);
}

#[test]
fn lock_that_ends_before_its_time_is_found() {
    is_found(Mutant::LockTooShort, partition::run_shared_with);
}
