//! Runs a suite over many seeds, on both cores, and keeps what a person needs when one fails.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Runtime};

use crate::crash_point::{CrashPoint, Hits};
use crate::report::report;
use crate::tally::{Tally, thread_cpu_ns};

/// A long run (`HULSE_LONG=1`) has so many times as many seeds as a usual one.
const LONG: u64 = 30;
/// Threads, each with a runtime of its own per seed.
const THREADS: usize = 2;
/// Failing seeds that are told before the suite gives up.
const FAILURES_MAX: usize = 12;

/// How one run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Fingerprint and length of the trace.
    pub fingerprint: (u64, u64),
    /// The end of the trace, for a person.
    pub text: String,
    /// What the oracles found; empty when all is well.
    pub violations: Vec<String>,
    /// Crash points hit.
    pub hits: Hits,
    /// What else was brought about.
    pub counts: BTreeMap<&'static str, u64>,
    /// Records or entries that were answered as stored.
    pub stored: u64,
}

/// A suite: a name and what one seed does.
#[derive(Clone, Copy)]
pub struct Suite {
    /// Its name; that of the test, too.
    pub name: &'static str,
    /// Seeds of a usual run.
    pub seeds: u64,
    /// The kept seeds, one a line: `suite seed`.
    pub kept: &'static str,
    /// One run; `whole` keeps the whole trace.
    pub run: fn(seed: u64, whole: bool) -> Run,
}

/// A paused, single-threaded runtime: time passes only when nothing else can happen.
///
/// # Panics
/// If the system has no memory for it.
pub fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    builder
        .build()
        .expect("a runtime without I/O can always be made")
}

impl Suite {
    /// Every kept seed and as many fresh ones as this run is to have, or only `HULSE_SEED`, or those of `HULSE_SEEDS`.
    fn seeds(&self) -> Vec<u64> {
        if let Some(seed) = chosen_seed() {
            return vec![seed];
        }
        if let Some(some) = chosen_seeds() {
            return some.collect();
        }
        let kept = self.kept.lines().filter_map(|line| {
            let (suite, seed) = line.split_once(' ')?;
            (suite == self.name).then(|| seed.trim().parse().ok())?
        });
        let count = match std::env::var_os("HULSE_LONG") {
            Some(_) => self.seeds * LONG,
            None => self.seeds,
        };
        let all: BTreeSet<u64> = kept.chain(0..count).collect();
        all.into_iter().collect()
    }

    /// Runs all seeds; `points` must each be hit, and `counts` be brought about, at least once.
    ///
    /// # Panics
    /// With the command line that replays the first failing seed.
    pub fn run(&self, points: &[CrashPoint], counts: &[&'static str]) {
        let seeds = self.seeds();
        let next = AtomicUsize::new(0);
        let tally = Tally::default();
        let work = || {
            let before = thread_cpu_ns();
            while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                match self.one(*seed) {
                    Ok(run) => tally.add(&run),
                    Err(words) => {
                        if tally.fail(*seed, words) >= FAILURES_MAX {
                            next.store(seeds.len(), Ordering::Relaxed);
                        }
                    }
                }
            }
            tally.worked(thread_cpu_ns() - before);
        };
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(work);
            }
        });
        self.tell(&tally.failures());
        tally.report(self.name);
        if chosen_seed().is_none() && chosen_seeds().is_none() {
            let missed = tally.missed(points);
            assert!(
                missed.is_empty(),
                "{}: crash points never hit: {missed:?}",
                self.name
            );
            let missed = tally.never(counts);
            assert!(missed.is_empty(), "{}: never seen: {missed:?}", self.name);
        }
    }

    fn tell(&self, failures: &[(u64, String)]) {
        let Some((first, words)) = failures.first() else {
            return;
        };
        // Of all what is wrong, of the first the end of its trace, too.
        let mut all = String::new();
        for (seed, words) in failures {
            let wrong = words.split("\nseed ").last().unwrap_or(words);
            all.push_str(&format!("\nseed {wrong}"));
            debug_assert!(wrong.contains(&seed.to_string()), "words name their seed");
        }
        let seeds: Vec<u64> = failures.iter().map(|(seed, _)| *seed).collect();
        panic!(
            "{words}\n{all}\n\n{name}: seeds {seeds:?} fail; keep them in tests/simulation/seeds.txt\n\
             replay one: HULSE_SEED={first} cargo test --test simulation {name} -- --exact --nocapture",
            name = self.name,
        );
    }

    fn one(&self, seed: u64) -> Result<Run, String> {
        let whole = chosen_seed().is_some();
        let run = catch_unwind(AssertUnwindSafe(|| (self.run)(seed, whole)));
        let run = run.map_err(|panic| format!("seed {seed} panicked: {}", panic_words(&*panic)))?;
        if chosen_seed().is_some() {
            println!("{}", run.text);
        }
        if run.violations.is_empty() {
            return Ok(run);
        }
        let end = match chosen_seed() {
            Some(_) => "",
            None => &run.text,
        };
        Err(format!(
            "{end}\nseed {seed}:\n  {}",
            run.violations.join("\n  ")
        ))
    }

    /// The same seed twice gives the same trace, byte by byte.
    ///
    /// # Panics
    /// With the first line that differs.
    pub fn repeats(&self, seeds: u64) {
        for seed in 0..seeds {
            let (first, second) = ((self.run)(seed, true), (self.run)(seed, true));
            let mut pairs = first.text.lines().zip(second.text.lines());
            if let Some((one, two)) = pairs.find(|(one, two)| one != two) {
                panic!("{}: seed {seed} differs\n  {one}\n  {two}", self.name);
            }
            assert_eq!(
                first.fingerprint, second.fingerprint,
                "{}: seed {seed}",
                self.name
            );
            assert_eq!(first, second, "{}: seed {seed}", self.name);
        }
        report(&format!("seeds run twice {}: {seeds}", self.name));
    }

    /// Some seed of `0..budget` finds a violation; which, and the words.
    ///
    /// # Panics
    /// When none does: the oracle, or the faults, are too weak.
    pub fn finds(&self, budget: u64) -> (u64, String) {
        for seed in 0..budget {
            if let Err(words) = self.one(seed) {
                let last = words.lines().last().unwrap_or_default().trim().to_owned();
                report("mutants found: 1");
                println!("{}: seed {seed}: {last}", self.name);
                return (seed, words);
            }
        }
        panic!(
            "{}: {budget} seeds find nothing wrong with a mutant",
            self.name
        );
    }
}

/// A long run in pieces: `HULSE_SEEDS=2000..4000`.
fn chosen_seeds() -> Option<std::ops::Range<u64>> {
    let seeds = std::env::var("HULSE_SEEDS").ok()?;
    let range = seeds.split_once("..").and_then(|(first, end)| {
        let (first, end) = (first.parse().ok()?, end.parse().ok()?);
        Some(first..end)
    });
    Some(range.expect("HULSE_SEEDS is a range of numbers, e.g. 2000..4000"))
}

fn chosen_seed() -> Option<u64> {
    let seed = std::env::var("HULSE_SEED").ok()?;
    Some(seed.parse().expect("HULSE_SEED is a number"))
}

fn panic_words(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    words
        .or_else(|| {
            panic
                .downcast_ref::<&str>()
                .map(|words| (*words).to_owned())
        })
        .unwrap_or_else(|| "without words".to_owned())
}
