//! The planner's task: elected or waiting, pass after pass.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bookie_client::{BookieDirectory, RegistrationState, list_registrations, retire_drained};
use bookie_metadata::{MetadataError, MetadataStore};
use futures::stream::{FuturesUnordered, StreamExt as _};
use hulse_proto::id::{CellId, NodeName};
use hulse_proto::ledger::Member;
use hulse_proto::mutant::Mutation;
use hulse_proto::time::WallClock;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha12Rng;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::election;
use super::plan::{LedgerTasks, Plan, Planned};
use super::report::{Book, Passed};
use crate::audit::{Audited, Auditor, Fleet};
use crate::metrics::UpkeepMetrics;
use crate::pace::Pace;
use crate::repair::{Hands, RepairEnd, RepairLimits, RepairTask, repair};
use crate::tiering::TierRound;

/// Between two tries to become the planner.
const ELECTION: Duration = Duration::from_secs(3);
/// Between two looks at who is there.
const LOOK: Duration = Duration::from_secs(1);
/// Between two reports while copies are made.
const REPORT: Duration = Duration::from_secs(2);
/// The next pass waits so many times as long as the last one took, so that audits stay a small part of what metadata do.
const PASS_SHARE: u32 = 10;
/// Complete passes in which no ledger named a bookie, before it is retired.
const EMPTY_PASSES: u32 = 2;
/// Between two sweeps of object storage (storage.md O12).
const SWEEP: Duration = Duration::from_secs(24 * 3600);

/// Bounds and habits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpkeepConfig {
    /// A bookie that does not run for so long is given up, and its copies are made elsewhere (storage.md X7).
    pub lost_after: Duration,
    /// Between two passes over all ledgers, at least.
    pub audit_interval: Duration,
    /// Bytes that are copied in a second.
    pub bytes_per_second: u64,
    /// Ledgers that are repaired at once.
    pub repairs_at_once: usize,
    /// A call of a bookie that is not answered for so long is not answered.
    pub answer_timeout: Duration,
    /// For tests: a rule that is switched off.
    pub mutation: Mutation,
}

impl Default for UpkeepConfig {
    fn default() -> Self {
        Self {
            lost_after: Duration::from_secs(600),
            audit_interval: Duration::from_secs(60),
            bytes_per_second: 64 << 20,
            repairs_at_once: 4,
            answer_timeout: Duration::from_secs(5),
            mutation: Mutation::default(),
        }
    }
}

/// What upkeep is built on.
pub struct UpkeepSeams {
    /// The cluster.
    pub cell: CellId,
    /// The bookie whose process this is.
    pub name: NodeName,
    /// The facts.
    pub metadata: Arc<dyn MetadataStore>,
    /// Who can be called.
    pub bookies: Arc<dyn BookieDirectory>,
    /// The date, for reports.
    pub clock: Arc<dyn WallClock>,
    /// Decides every random choice; differs between processes.
    pub seed: [u8; 32],
    /// What is counted.
    pub metrics: UpkeepMetrics,
}

/// Upkeep of one process: one of all plans, the others wait for it to die.
pub struct Upkeep {
    config: UpkeepConfig,
    seams: UpkeepSeams,
    hands: Hands,
    began: Instant,
    rng: ChaCha12Rng,
    tier: Option<TierRound>,
    swept: Option<Instant>,
}

/// What a planner remembers from pass to pass.
struct Term {
    fleet: Fleet,
    plan: Plan,
    book: Book,
    /// Bookies that leave, and in how many passes in a row nothing named them.
    empty: Vec<(Member, u32)>,
}

impl Upkeep {
    /// One that has not begun.
    pub fn new(config: UpkeepConfig, seams: UpkeepSeams) -> Self {
        let mut rng = ChaCha12Rng::from_seed(seams.seed);
        let hands = Hands {
            cell: seams.cell,
            metadata: Arc::clone(&seams.metadata),
            bookies: Arc::clone(&seams.bookies),
            pace: Pace::new(config.bytes_per_second),
            limits: RepairLimits {
                mutation: config.mutation,
                ..RepairLimits::default()
            },
            answer_timeout: config.answer_timeout,
            metadata_timeout: Duration::from_secs(10),
            read_bytes: 1 << 20,
            rng: Mutex::new(ChaCha12Rng::from_rng(&mut rng)),
        };
        Self {
            config,
            seams,
            hands,
            began: Instant::now(),
            rng,
            tier: None,
            swept: None,
        }
    }

    /// The same, which also tiers ledgers: after the repairs of each pass.
    #[must_use]
    pub fn with_tier(self, tier: TierRound) -> Self {
        Self {
            tier: Some(tier),
            ..self
        }
    }

    /// Works until the end is asked for. What is under way is dropped then; nothing is lost by it.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let metadata = Arc::clone(&self.seams.metadata);
            let name = self.seams.name.to_string();
            let seat = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                seat = election::ELECTION.try_win(&*metadata, &name) => seat,
            };
            match seat {
                Ok(Some(seat)) => {
                    tracing::info!("this bookie looks after the copies of all ledgers");
                    self.seams.metrics.plans(true);
                    tokio::select! {
                        biased;
                        () = shutdown.cancelled() => return seat.leave(&*metadata).await,
                        () = seat.keep(&*metadata) => {}
                        () = self.lead() => {}
                    }
                    self.seams.metrics.plans(false);
                    tracing::info!("another bookie looks after the copies of ledgers from now on");
                }
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "no planner is elected"),
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = sleep(ELECTION) => {}
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Pass after pass.
    async fn lead(&mut self) {
        let mut term = Term {
            fleet: Fleet::new(self.config.lost_after),
            plan: Plan::default(),
            book: Book::new(self.seams.name.as_str(), self.seams.metrics.clone()),
            empty: Vec::new(),
        };
        let mut silent = false;
        loop {
            let began = Instant::now();
            match self.pass(&mut term).await {
                Ok(next_try) => {
                    silent = false;
                    let rest = self.config.audit_interval.max(began.elapsed() * PASS_SHARE);
                    let until = next_try.map_or(began + rest, |at| {
                        (self.began + at).min(began + rest).max(began + LOOK)
                    });
                    self.rest(&mut term, until).await;
                }
                Err(error) => {
                    if !std::mem::replace(&mut silent, true) {
                        tracing::warn!(%error, "copies of ledgers are not looked after while metadata do not answer");
                    }
                    sleep(LOOK).await;
                }
            }
        }
    }

    /// One pass, and what it finds to do; when something is to be tried again.
    async fn pass(&mut self, term: &mut Term) -> Result<Option<Duration>, MetadataError> {
        let registered = list_registrations(&*self.seams.metadata).await?;
        let now = self.now();
        if term.fleet.update(registered, now) {
            term.plan.wake();
        }
        let auditor = Auditor {
            cell: self.seams.cell,
            metadata: Arc::clone(&self.seams.metadata),
            bookies: Arc::clone(&self.seams.bookies),
            answer_timeout: self.config.answer_timeout,
        };
        let audited = auditor.pass(&term.fleet, now).await?;
        let took = self.now().saturating_sub(now);
        tracing::debug!(
            ledgers = audited.ledgers,
            lacking = audited.lacking,
            ?took,
            "all ledgers were looked at"
        );
        let mut candidates = term.fleet.candidates();
        candidates.shuffle(&mut self.rng);
        let planned = term.plan.plan(&audited.findings, &candidates, self.now());
        let passed = Passed {
            date_ms: self.seams.clock.now_ms(),
            at: self.now(),
            took,
        };
        term.book.passed(&audited, &planned, passed);
        self.publish(term).await;
        self.retire(term, &audited).await?;
        let Planned {
            ledgers, next_try, ..
        } = planned;
        let next = match ledgers.is_empty() {
            true => next_try,
            false => {
                self.work(term, ledgers).await;
                // What was done is looked at anew.
                Some(self.now())
            }
        };
        self.tier().await?;
        Ok(next)
    }

    /// What of ledgers is due to go to object storage, or to leave it.
    async fn tier(&mut self) -> Result<(), MetadataError> {
        let Some(tier) = &self.tier else {
            return Ok(());
        };
        let now = self.seams.clock.now_ms();
        tier.run(now, self.config.audit_interval).await?;
        if self.swept.is_none_or(|at| at.elapsed() >= SWEEP) {
            tier.sweep().await?;
            self.swept = Some(Instant::now());
        }
        Ok(())
    }

    /// Repairs ledgers, some at once, until all were tried or it is time for another pass.
    async fn work(&mut self, term: &mut Term, ledgers: Vec<LedgerTasks>) {
        let began = Instant::now();
        let mut waiting = ledgers.into_iter();
        let mut running = FuturesUnordered::new();
        let mut reported = Instant::now();
        let mut last = Instant::now();
        loop {
            while running.len() < self.config.repairs_at_once.max(1)
                && began.elapsed() < self.config.audit_interval
                && let Some(next) = waiting.next()
            {
                running.push(one_ledger(&self.hands, next));
            }
            let Some((of, ends)) = running.next().await else {
                return;
            };
            let mut bytes = 0;
            for (task, end) in ends {
                tell(&task, &end);
                term.plan.ended(&task, &end, self.began.elapsed());
                match end {
                    RepairEnd::Done { bytes: made, .. } => {
                        self.seams.metrics.repaired(made);
                        bytes += made;
                    }
                    RepairEnd::Failed(_) => self.seams.metrics.not_repaired(),
                    RepairEnd::Needless => {}
                }
            }
            term.book.copied(bytes, of, last.elapsed());
            last = Instant::now();
            if reported.elapsed() >= REPORT {
                self.publish(term).await;
                reported = Instant::now();
            }
        }
    }

    async fn publish(&self, term: &mut Term) {
        let date = self.seams.clock.now_ms();
        let written = term.book.write(&*self.seams.metadata, date);
        if let Ok(Err(error)) = timeout(LOOK, written).await {
            tracing::debug!(%error, "the report of upkeep is not written");
        }
    }

    /// Waits for the next pass, which comes at once when bookies come or go, or one is given up.
    async fn rest(&self, term: &mut Term, until: Instant) {
        while Instant::now() < until {
            let given_up = term.fleet.next_given_up(self.now());
            let given_up = given_up.map_or(until, |at| (self.began + at).max(Instant::now()));
            let next = (Instant::now() + LOOK).min(until).min(given_up);
            sleep_until(next).await;
            if given_up <= Instant::now() {
                return;
            }
            // The registrations alone are few; a silent store is no reason for a pass.
            let Ok(registered) = list_registrations(&*self.seams.metadata).await else {
                continue;
            };
            if term.fleet.clone().update(registered, self.now()) {
                return;
            }
        }
    }

    /// Bookies that leave and are named by no ledger any more are retired (storage.md C7).
    async fn retire(&self, term: &mut Term, audited: &Audited) -> Result<(), MetadataError> {
        let before = std::mem::take(&mut term.empty);
        let leaving = term.fleet.registrations();
        let leaving = leaving.filter(|found| found.state == RegistrationState::Draining);
        for found in leaving {
            let member = &found.member;
            let key = (member.bookie.clone(), member.incarnation);
            if audited.members.contains_key(&key) || audited.unreadable > 0 {
                continue;
            }
            let passes = before.iter().find(|(known, _)| known == member);
            let passes = passes.map_or(1, |(_, passes)| passes + 1);
            if passes >= EMPTY_PASSES && retire_drained(&*self.seams.metadata, member).await? {
                tracing::info!(bookie = %member.bookie, "no ledger names this bookie any more: it is retired and can be stopped");
            }
            term.empty.push((member.clone(), passes));
        }
        Ok(())
    }
}

/// The tasks of one ledger, one after the other.
async fn one_ledger(hands: &Hands, ledger: LedgerTasks) -> (u64, Vec<(RepairTask, RepairEnd)>) {
    let mut ends = Vec::with_capacity(ledger.tasks.len());
    for task in ledger.tasks {
        let end = repair(hands, task.clone()).await;
        ends.push((task, end));
    }
    (ledger.bytes, ends)
}

fn tell(task: &RepairTask, end: &RepairEnd) {
    let (ledger, old, new) = (task.ledger, &task.old.bookie, &task.new.bookie);
    match end {
        RepairEnd::Done { entries, bytes } => {
            tracing::info!(%ledger, first = %task.first, %old, %new, entries, bytes, "copies were made");
        }
        RepairEnd::Needless => {}
        RepairEnd::Failed(why) => {
            tracing::warn!(%ledger, first = %task.first, %old, %new, %why, "copies were not made");
        }
    }
}
