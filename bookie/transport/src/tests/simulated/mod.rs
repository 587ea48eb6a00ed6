//! Both ends over a simulated network (turmoil): links that lose everything, or one way only, that hold what is sent and give it later,
//! that are slow; bookies that are killed, leave in good order and come back. One seed is one run.
//!
//! What must hold in every run:
//! 1. Every call ends: with its answer, or with a typed "not known", within the time that the link promises.
//! 2. An answer is the answer to the call that it is given to, whole.
//! 3. No call arrives twice; and none arrives before an earlier one of its lane whose caller still waits.
//! 4. What waits is bounded: at the caller by the lane's room, at the bookie by the room of each connection; and once the network works
//!    nothing is left of what was broken.
//! 5. A network that works again is used again.
//!
//! `calls` are the calls and what each is to be answered, `net` the seam to the network, `peer` the bookie, `caller` who calls it,
//! `weather` what goes wrong, `run` one run.

mod caller;
mod calls;
mod net;
mod peer;
mod run;
mod weather;

use std::panic::catch_unwind;

use run::{Outcome, run};

/// Seeds of a usual run, and of a long one (`HULSE_LONG=1`).
const SEEDS: (u64, u64) = (20, 3_000);
/// Seeds that ever failed.
const KEPT: [u64; 0] = [];

fn seeds() -> Vec<u64> {
    if let Ok(seed) = std::env::var("HULSE_SEED") {
        return vec![seed.parse().expect("HULSE_SEED is a number")];
    }
    let count = match std::env::var_os("HULSE_LONG") {
        Some(_) => SEEDS.1,
        None => SEEDS.0,
    };
    KEPT.into_iter().chain(0..count).collect()
}

#[test]
fn every_call_ends_and_no_answer_is_another_ones() {
    let mut all = Outcome::default();
    for seed in seeds() {
        let one = catch_unwind(|| run(seed)).unwrap_or_else(|_| panic!("seed {seed} panicked"));
        assert!(
            one.wrong.is_empty(),
            "seed {seed}: {:#?}\nreplay it: HULSE_SEED={seed}",
            one.wrong
        );
        all.add(&one);
    }
    println!("{all:?}");
    // A run that nothing happens in proves nothing.
    let rare = [
        all.answered,
        all.unknown,
        all.busy,
        all.troubles,
        all.redials,
    ];
    assert!(
        std::env::var_os("HULSE_SEED").is_some() || rare.iter().all(|count| *count > 100),
        "{all:?}"
    );
}

#[test]
fn same_seed_gives_the_same_run() {
    for seed in 0..3 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
