//! Tierers, removers and sweepers at once, over a store and metadata that fail: one seed, one run.
//!
//! Fault model: metadata lose answers, and a change whose answer was lost may land later as long as its compares hold; the object store
//! loses answers, lands uploads and deletions late (also those of the dead), takes a truncated or rotten object for a whole one, lists
//! what it held some time ago, and answers with errors; actors die between any two effects; bookies drop some copies and fail others.
//!
//! Judged after every step: each entry of every ledger that is not marked as deleting can be read where metadata say that it is. And once
//! all faults are over and everybody has gone once round: no object is there that no ledger has as its segment, and no ledger lacks one.
//!
//! Reading order: `world` (truth and faults), `actors` (who does what), `runs` (a seed from begin to end), the tests below.

mod actors;
mod runs;
mod world;

use super::mutant::{TierMutant, TierMutation};
use runs::{Profile, run};

/// Seeds of the usual run.
const SEEDS: u64 = 400;
/// Seeds within which every mutant must be caught.
const MUTANT_SEEDS: u64 = 4000;

#[test]
fn every_entry_is_readable_at_all_times_and_no_object_is_left_behind() {
    let mut committed = 0;
    for seed in 0..SEEDS {
        for profile in [Profile::Storm, Profile::Calm] {
            match run(seed, profile, TierMutation::default()) {
                Ok(facts) => committed += facts.committed,
                Err(why) => panic!("seed {seed}, {profile:?}: {why}"),
            }
        }
    }
    assert!(committed > SEEDS * 10, "only {committed} commits");
}

#[test]
fn same_seed_is_the_same_run() {
    for seed in 0..5 {
        let first = run(seed, Profile::Storm, TierMutation::default());
        assert_eq!(first, run(seed, Profile::Storm, TierMutation::default()));
    }
}

#[test]
fn faults_happen_and_are_overcome() {
    let mut all = runs::Facts::default();
    for seed in 0..50 {
        let facts = run(seed, Profile::Storm, TierMutation::default());
        all.add(&facts.expect("the usual seeds hold"));
    }
    let counts = [
        all.committed,
        all.packed,
        all.withdrawn,
        all.swept,
        all.removed,
        all.dropped,
        all.died,
        all.late,
    ];
    assert!(counts.iter().all(|count| *count > 10), "{all:?}");
}

#[test]
fn every_rule_that_is_switched_off_is_missed() {
    let mutants = [
        TierMutant::UploadBeforeIntent,
        TierMutant::CommitBlindly,
        TierMutant::CommitUnverified,
        TierMutant::DropUnread,
        TierMutant::DropUnmarked,
        TierMutant::DeleteUnmarked,
        TierMutant::SharersForgotten,
        TierMutant::KeyFirst,
        TierMutant::LookThenList,
        TierMutant::SweepAsksFirst,
    ];
    for mutant in mutants {
        let mutation = TierMutation::of(Some(mutant));
        let caught = (0..MUTANT_SEEDS).find(|seed| {
            [Profile::Storm, Profile::Calm]
                .into_iter()
                .any(|profile| run(*seed, profile, mutation).is_err())
        });
        assert!(caught.is_some(), "{mutant:?} is not caught by any seed");
    }
}
