//! Rules switched off, one at a time: the oracles must see each within a few seeds, or they see nothing. A seed counts only if it is
//! clean with all rules on.

use std::panic::catch_unwind;

use hulse_proto::mutant::Mutant;

use super::run::{Mix, Run};

/// Seeds within which a mutant must be found.
const BUDGET: u64 = 1500;

fn is_clean(mix: Mix, seed: u64, mutant: Option<Mutant>) -> bool {
    let whole = move || {
        let mut run = Run::mutated(mix, seed, mutant);
        run.troubles();
        run.settle();
    };
    catch_unwind(whole).is_ok()
}

/// Some seed of the budget finds the mutant, and nothing without it.
fn is_found(mix: Mix, mutant: Mutant) {
    let found =
        (0..BUDGET).find(|seed| !is_clean(mix, *seed, Some(mutant)) && is_clean(mix, *seed, None));
    match found {
        Some(seed) => println!("{mutant:?} of {mix:?}: seed {seed}"),
        None => panic!("{mutant:?} of {mix:?}: {BUDGET} seeds find nothing wrong with it"),
    }
}

#[test]
fn partition_given_before_it_is_released_is_found() {
    is_found(Mix::Newer, Mutant::GivenBeforeReleased);
    is_found(Mix::Both, Mutant::GivenBeforeReleased);
}

#[test]
fn claims_that_are_forgotten_when_protocols_change_are_found() {
    is_found(Mix::Both, Mutant::ClaimsForgotten);
}

#[test]
fn commit_at_a_stale_epoch_is_found() {
    is_found(Mix::Newer, Mutant::StaleEpochCommits);
}

#[test]
fn commit_at_an_old_generation_is_found() {
    is_found(Mix::Eager, Mutant::OldGenerationCommits);
    is_found(Mix::Cooperative, Mutant::OldGenerationCommits);
}

#[test]
fn sync_before_the_leader_is_found() {
    is_found(Mix::Eager, Mutant::SyncBeforeLeader);
    is_found(Mix::Cooperative, Mutant::SyncBeforeLeader);
}

#[test]
fn former_process_that_stays_beside_the_new_one_is_found() {
    is_found(Mix::Eager, Mutant::FormerInstanceStays);
}

#[test]
fn answer_before_it_is_durable_is_found() {
    is_found(Mix::Newer, Mutant::AnswerBeforeDelta);
    is_found(Mix::Eager, Mutant::AnswerBeforeDelta);
}

#[test]
fn sessions_that_a_move_forgets_are_found() {
    is_found(Mix::Newer, Mutant::SessionsForgotten);
}
