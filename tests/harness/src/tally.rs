//! What the seeds of a suite brought about together, and how fast they ran.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::crash_point::{CrashPoint, Hits};
use crate::report::report;
use crate::runner::Run;

/// The sum over many runs.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Sum>);

#[derive(Debug, Default)]
struct Sum {
    seeds: u64,
    stored: u64,
    lines: u64,
    hits: Hits,
    counts: BTreeMap<&'static str, u64>,
    /// Nanoseconds of processor time.
    cpu_ns: u64,
    failures: Vec<(u64, String)>,
}

impl Tally {
    fn sum(&self) -> MutexGuard<'_, Sum> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run went well.
    pub(crate) fn add(&self, run: &Run) {
        let mut sum = self.sum();
        sum.seeds += 1;
        sum.stored += run.stored;
        sum.lines += run.fingerprint.1;
        sum.hits.add(&run.hits);
        for (what, count) in &run.counts {
            *sum.counts.entry(what).or_default() += count;
        }
    }

    /// A run did not; how many did not so far.
    pub(crate) fn fail(&self, seed: u64, words: String) -> usize {
        let mut sum = self.sum();
        sum.failures.push((seed, words));
        sum.failures.len()
    }

    /// A thread has used so much.
    pub(crate) fn worked(&self, cpu_ns: u64) {
        self.sum().cpu_ns += cpu_ns;
    }

    /// The failures, in the order in which they were found.
    pub(crate) fn failures(&self) -> Vec<(u64, String)> {
        self.sum().failures.clone()
    }

    /// Tells everything.
    pub(crate) fn report(&self, name: &str) {
        let sum = self.sum();
        report(&format!("seeds {name}: {}", sum.seeds));
        report(&format!("stored {name}: {}", sum.stored));
        for (point, count) in &sum.hits.0 {
            report(&format!("crash point {}: {count} hits", point.0));
        }
        for (what, count) in &sum.counts {
            println!("{name}: {what}: {count}");
        }
        println!("{name}: {} trace lines", sum.lines);
        if sum.cpu_ns > 0 {
            let speed = u128::from(sum.seeds) * 60_000_000_000 / u128::from(sum.cpu_ns);
            report(&format!("simulation speed {name}: {speed} seeds/min/core"));
        }
    }

    /// Which of the points were never hit.
    pub(crate) fn missed(&self, points: &[CrashPoint]) -> Vec<u32> {
        let sum = self.sum();
        let missed = points
            .iter()
            .filter(|point| !sum.hits.0.contains_key(point));
        missed.map(|point| point.0).collect()
    }

    /// Which of these were never brought about.
    pub(crate) fn never(&self, counts: &[&'static str]) -> Vec<&'static str> {
        let sum = self.sum();
        let never = counts.iter().filter(|what| !sum.counts.contains_key(*what));
        never.copied().collect()
    }
}

/// Processor time of this thread, ns; 0 where the system does not tell.
pub(crate) fn thread_cpu_ns() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = told.split_whitespace().next();
    first.and_then(|ns| ns.parse().ok()).unwrap_or_default()
}
