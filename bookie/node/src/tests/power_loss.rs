//! What a power failure takes, by sync mode (amendment to storage.md B5): `always` nothing that was confirmed; `interval` only what
//! was confirmed within the interval before it; `off` only what was confirmed since the last clean stop. Never from the middle: what
//! is lost is the end of the log, over all ledgers. And the next start says so, by limbo, to whoever asks for what is missing.
//!
//! Any subset of unsynced writes, sectors or bytes survives, and any subset of unsynced changes of the directory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hulse_proto::bookie::{BookieError, RecoveryReadAnswer};
use hulse_proto::id::{FenceToken, LedgerId};
use hulse_proto::mutant::{Mutant, Mutation};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::support::*;
use crate::disk::memory::Survival;
use crate::log::LimboKind;
use crate::step::StepAnswer;
use crate::{NodeConfig, SyncMode};

const RUNS: u64 = 250;
const INTERVAL: Duration = Duration::from_millis(250);
/// Ledgers of entries; 5 and up are fenced, 8 is deleted now and then.
const LEDGERS: u64 = 4;
const FENCED: u64 = 5;
const DOOMED: u64 = 8;

fn under(sync: SyncMode, kernel: &str, mutation: Mutation) -> NodeConfig {
    NodeConfig {
        sync,
        kernel_boot_id: kernel.to_owned(),
        file_bytes: 64 << 10,
        queue_bytes_max: 32 << 10,
        mutation,
        ..config()
    }
}

/// An entry that was confirmed, in the order of the log.
struct Told {
    ledger: u64,
    number: u64,
    bytes: u64,
    at: Duration,
}

struct Run {
    rig: Rig,
    rng: ChaCha12Rng,
    now: Duration,
    next: BTreeMap<u64, u64>,
    /// Submitted and not yet confirmed, in order.
    waiting: Vec<(u64, u64, u64)>,
    told: Vec<Told>,
    fences: BTreeSet<u64>,
}

impl Run {
    /// Notes what the last step confirmed.
    fn note(&mut self) {
        let (confirmed, now) = (&self.rig.confirmed, self.now);
        let told = &mut self.told;
        self.waiting.retain(|&(ledger, number, bytes)| {
            let new = confirmed.contains(&(ledger, number));
            if new {
                let at = now;
                told.push(Told {
                    ledger,
                    number,
                    bytes,
                    at,
                });
            }
            !new
        });
    }

    fn add(&mut self, ledger: u64) {
        let number = self.next.entry(ledger).or_default();
        let bytes = match self.rng.random_range(0..4) {
            0 => self.rng.random_range(0..12_000),
            _ => self.rng.random_range(0..1_500),
        };
        self.waiting.push((ledger, *number, bytes as u64));
        self.rig.add(ledger, *number, bytes);
        *number += 1;
    }

    /// Lets time pass as the log thread does: it wakes when a sync is due.
    fn wait(&mut self, mut left: Duration) {
        while left > Duration::ZERO {
            let nap = self
                .rig
                .node
                .sync_due_in()
                .map_or(left, |due| due.min(left));
            self.now += nap;
            left -= nap;
            self.rig.node.advance(nap);
            let output = self.rig.node.sync_if_due();
            self.rig.take(output);
        }
    }

    fn store(&mut self) {
        self.rig.settle();
        self.note();
        let output = self.rig.node.sync_if_due();
        self.rig.take(output);
    }

    fn fence(&mut self) {
        let ledger = FENCED + self.rng.random_range(0..3);
        self.store();
        if matches!(self.rig.fence(ledger, 3), StepAnswer::Fence(Ok(_))) {
            self.fences.insert(ledger);
        }
    }

    fn delete(&mut self) {
        self.add(DOOMED);
        self.store();
        if self.rig.disk.struck().is_none() {
            self.rig.delete(DOOMED + 100 * self.rng.random_range(0..9));
        }
    }

    fn reclaim(&mut self) {
        self.store();
        for _ in 0..self.rng.random_range(1..30) {
            let output = self.rig.node.reclaim();
            self.rig.take(output.output);
            self.store();
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..10 => {
                let ledger = 1 + self.rng.random_range(0..LEDGERS);
                self.add(ledger);
            }
            10 => {
                let output = self.rig.node.write_group();
                self.rig.take(output);
                self.note();
            }
            11..14 => self.store(),
            14 => {
                self.store();
                let output = self.rig.node.idle();
                self.rig.take(output);
            }
            15 => self.fence(),
            16 => self.delete(),
            17 => self.reclaim(),
            _ => {
                let nap = Duration::from_millis(self.rng.random_range(1..120));
                self.wait(nap);
            }
        }
    }
}

/// What was lost in a run.
#[derive(Default)]
struct Loss {
    told: u64,
    entries: u64,
    bytes: u64,
    /// Age of the oldest.
    age: Duration,
    /// Nothing says so to whoever asks for what is missing.
    silent: bool,
}

fn begin(seed: u64, sync: SyncMode, mutation: Mutation) -> Run {
    let mut run = Run {
        rig: Rig::new(under(sync, "a", mutation)),
        rng: ChaCha12Rng::seed_from_u64(seed),
        now: Duration::ZERO,
        next: BTreeMap::new(),
        waiting: Vec::new(),
        told: Vec::new(),
        fences: BTreeSet::new(),
    };
    // An earlier life that ended cleanly: nothing of it is in any window.
    for _ in 0..20 {
        run.step();
    }
    run.store();
    run.rig = run.rig.restart(under(sync, "a", mutation), &[]);
    run.now = Duration::ZERO;
    run.told
        .iter_mut()
        .for_each(|told| told.at = Duration::ZERO);
    run
}

/// Runs until the power fails, at a step's end or in the middle of one.
fn until_dark(run: &mut Run) -> usize {
    let before = run.told.len();
    for _ in 0..run.rng.random_range(5..120) {
        run.step();
    }
    if run.rng.random_bool(0.7) {
        let changes = run.rng.random_range(0..30);
        run.rig.disk.stop_after(changes);
        for _ in 0..60 {
            if run.rig.disk.stopped() || run.rig.node.core().failed().is_some() {
                break;
            }
            run.step();
        }
    }
    before
}

/// What the start after it holds, and that it says what it must.
fn judge(run: &mut Run, clean: usize, case: &str) -> Loss {
    let told = &run.told;
    let there: Vec<bool> = told
        .iter()
        .map(|told| told.ledger == DOOMED || run.rig.has(told.ledger, told.number))
        .collect();
    let lost: Vec<usize> = (0..there.len()).filter(|at| !there[*at]).collect();
    assert!(
        run.rig.node.damage().is_empty(),
        "{case}: a loss by power is no damage"
    );
    let mut silent = false;
    if let Some(first) = lost.first() {
        assert!(*first >= clean, "{case}: lost what a clean stop had synced");
        let entries = told[*first..].iter().filter(|told| told.ledger != DOOMED);
        assert_eq!(
            entries.count(),
            lost.len(),
            "{case}: lost from the middle of the log"
        );
        let Told { ledger, number, .. } = told[*first];
        let answer = run.rig.recovery_read(ledger, 9, number);
        let unknown = matches!(
            answer,
            StepAnswer::RecoveryRead(Ok(RecoveryReadAnswer::Negative {
                unsynced_limbo: true
            }))
        );
        silent = !unknown;
    }
    for ledger in run.fences.clone() {
        let request = add(run.rig.to(ledger), entry(ledger, 0, 9));
        let (_, output) = run.rig.node.add(request);
        assert!(
            output.verify.is_empty(),
            "{case}: fence of {ledger} forgotten"
        );
        let StepAnswer::Add(Err(error)) = run.rig.answer(output) else {
            panic!("{case}: the fenced writer of {ledger} goes on");
        };
        let refused = matches!(
            error,
            BookieError::Fenced { .. } | BookieError::Limbo { .. }
        );
        assert!(refused, "{case}: {error}");
    }
    let last = |at: &usize| &told[*at];
    Loss {
        silent,
        told: told.len() as u64,
        entries: lost.len() as u64,
        bytes: lost.iter().map(last).map(|told| told.bytes).sum(),
        age: lost
            .first()
            .map_or(Duration::ZERO, |at| run.now - told[*at].at),
    }
}

fn run(seed: u64, sync: SyncMode, mutation: Mutation) -> Loss {
    let case = format!("seed {seed}, {sync:?}");
    let mut run = begin(seed, sync, mutation);
    let clean = until_dark(&mut run);
    let scope: Vec<LedgerId> = (1..=LEDGERS).chain(FENCED..DOOMED).map(LedgerId).collect();
    let mut rng = run.rng.clone();
    let survival = match seed % 8 {
        0 => Survival::Nothing,
        _ => Survival::Random(&mut rng),
    };
    run.rig = run.rig.reopen(under(sync, "b", mutation), survival, &scope);
    let says: &[LimboKind] = match sync {
        SyncMode::Always => &[],
        _ => &[LimboKind::Unsynced],
    };
    assert_eq!(run.rig.node.new_limbo(), says, "{case}");
    let loss = judge(&mut run, clean, &case);
    if sync == SyncMode::Always {
        let state = run.rig.node.core().state();
        for ledger in &run.fences {
            assert_eq!(
                state.ledgers[&LedgerId(*ledger)].fence,
                FenceToken(3),
                "{case}"
            );
        }
    }
    loss
}

/// All runs of a mode; the largest loss of each kind, and how many lost anything.
fn runs(name: &str, sync: SyncMode) -> (Loss, u64) {
    let (mut most, mut lossy) = (Loss::default(), 0);
    for seed in 0..RUNS {
        let loss = run(seed, sync, Mutation::default());
        assert!(!loss.silent, "seed {seed}, {sync:?}: the loss is silent");
        lossy += u64::from(loss.entries > 0);
        most.told += loss.told;
        most.entries = most.entries.max(loss.entries);
        most.bytes = most.bytes.max(loss.bytes);
        most.age = most.age.max(loss.age);
    }
    report(&format!("power failures, sync {name}: {RUNS} runs"));
    report(&format!(
        "power failures, sync {name}, with a loss: {lossy} runs"
    ));
    report(&format!(
        "power failures, sync {name}, confirmed: {} entries",
        most.told
    ));
    let age = most.age.as_millis();
    report(&format!(
        "power failures, sync {name}, oldest lost: {age} ms"
    ));
    report(&format!(
        "power failures, sync {name}, most lost: {} bytes",
        most.bytes
    ));
    (most, lossy)
}

#[test]
fn power_failure_with_sync_always_loses_nothing_confirmed() {
    let (most, lossy) = runs("always", SyncMode::Always);
    assert_eq!((lossy, most.entries), (0, 0));
    assert!(most.told > 10 * RUNS, "the runs confirm something");
}

#[test]
fn power_failure_with_sync_interval_loses_no_more_than_the_interval() {
    let (most, lossy) = runs("interval", SyncMode::Interval(INTERVAL));
    assert!(most.age <= INTERVAL, "{:?} were lost", most.age);
    assert!(
        lossy > RUNS / 10 && most.age > INTERVAL / 2,
        "{lossy}: the window is real"
    );
}

#[test]
fn power_failure_with_sync_off_loses_no_more_than_since_the_clean_stop() {
    let (most, lossy) = runs("off", SyncMode::Off);
    assert!(
        lossy > RUNS / 4 && most.age > INTERVAL,
        "{lossy}: the window is real"
    );
}

/// The oracle sees a confirmation that comes before its sync.
#[test]
fn power_failure_finds_confirmations_before_their_sync() {
    let mutation = Mutation::of(Some(Mutant::AckBeforeSync));
    let found = (0..RUNS).find(|seed| run(*seed, SyncMode::Always, mutation).entries > 0);
    assert!(found.is_some(), "nothing was lost in {RUNS} runs");
}
