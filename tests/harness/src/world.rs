//! One simulated cell: bookies, network, metadata, clocks, chance and oracles, all from one seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bookie_client::{ClientConfig, LedgerClient};
use bookie_metadata::MetadataStore;
use bookie_metadata::cell::{CellSettings, ensure_cell};
use bookie_metadata::testing::{Call, Fate, FaultyStore, Late};
use bookie_node::SyncMode;
use hulse_proto::id::{CellId, NodeName};
use hulse_proto::ledger::Quorums;
use hulse_proto::mutant::{Mutant, Mutation};
use rand::Rng;
use rand_chacha::ChaCha12Rng;

use crate::bookie::{BookieSetup, ClientSide, SimBookie};
use crate::chains::Chains;
use crate::clock::SimClock;
use crate::counts::Counts;
use crate::crash_point::CrashPlan;
use crate::departed::Departed;
use crate::directory::SimDirectory;
use crate::metadata::{ObservedStore, ProcessStore, Role};
use crate::network::Network;
use crate::process::Process;
use crate::runner::Run;
use crate::seed::Seeds;
use crate::trace::Trace;
use crate::violations::Violations;

/// What a world is made of.
#[derive(Debug, Clone, Copy)]
pub struct WorldSetup {
    /// The seed.
    pub seed: u64,
    /// Keep the whole trace.
    pub whole_trace: bool,
    /// E, Qw, Qa.
    pub quorums: Quorums,
    /// How many bookies there are, at least E.
    pub bookies: u32,
    /// A rule that is switched off, in all bookies and clients.
    pub mutant: Option<Mutant>,
}

/// How bad metadata is, each rate from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetadataRates {
    /// Calls that fail at once.
    pub unavailable: f64,
    /// Transactions of unknown outcome.
    pub unknown: f64,
    /// Usual longest delay of an answer, ms.
    pub delay_max_ms: u64,
    /// Longest time until a late transaction lands, ms.
    pub late_max_ms: u64,
}

/// A cell.
pub struct World {
    /// Root of chance.
    pub seeds: Seeds,
    /// What happened.
    pub trace: Trace,
    /// What is wrong.
    pub violations: Violations,
    /// The wall.
    pub clock: Arc<SimClock>,
    /// The network.
    pub network: Network,
    /// Crash points.
    pub crashes: CrashPlan,
    /// Metadata, as it is.
    pub store: Arc<ObservedStore>,
    /// Metadata, as it answers.
    pub faults: FaultyStore<ObservedStore>,
    /// All bookies.
    pub bookies: Vec<Arc<SimBookie>>,
    /// While set, no bookie is offered for new ledgers.
    pub starved: Arc<AtomicBool>,
    /// The cell.
    pub cell: CellId,
    /// What was brought about.
    pub counts: Counts,
    /// Nothing goes wrong any more.
    healed: AtomicBool,
    /// How many keep metadata silent.
    silences: AtomicU32,
    quorums: Quorums,
    mutant: Option<Mutant>,
}

impl World {
    /// A world in which nothing goes wrong yet; its bookies are not started.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn new(setup: WorldSetup) -> Self {
        let seeds = Seeds(setup.seed);
        let trace = Trace::start(setup.whole_trace);
        let violations = Violations::new(trace.clone());
        let clock = Arc::new(SimClock::start());
        let crashes = CrashPlan::new(seeds.stream("crashes"));
        let counts = Counts::default();
        let observed = ObservedStore::new(trace.clone(), violations.clone(), counts.clone());
        let store = Arc::new(observed);
        let faults = FaultyStore::new(store.clone());
        let cell = CellId(seeds.id("cell"));
        let bookie_setup = BookieSetup {
            cell,
            seeds,
            metadata: Arc::new(faults.clone()),
            clock: clock.clone(),
            crashes: crashes.clone(),
            observed: store.clone(),
            counts: counts.clone(),
            trace: trace.clone(),
            violations: violations.clone(),
            mutant: setup.mutant,
        };
        let bookies = (1..=setup.bookies).map(|number| {
            let name = NodeName::new(&format!("k{number}")).expect("a short name is a name");
            SimBookie::new(name, bookie_setup.clone())
        });
        let bookies: Vec<_> = bookies.collect();
        let departed = Departed::new(&bookies, violations.clone(), counts.clone());
        store.judge_departures(departed);
        store.judge_chains(Chains::new(cell, &bookies, violations.clone()));
        Self {
            network: Network::new(seeds.stream("network")),
            bookies,
            starved: Arc::default(),
            quorums: setup.quorums,
            mutant: setup.mutant,
            seeds,
            trace,
            violations,
            clock,
            crashes,
            store,
            faults,
            cell,
            counts,
            healed: AtomicBool::new(false),
            silences: AtomicU32::new(0),
        }
    }

    /// True once [`World::heal`] was called.
    pub fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    /// E, Qw, Qa.
    pub fn quorums(&self) -> Quorums {
        self.quorums
    }

    /// Metadata answer nothing until everyone who silenced them lets them speak.
    pub fn silence(&self) {
        self.silences.fetch_add(1, Ordering::Relaxed);
        self.faults.silence();
    }

    /// True while somebody keeps metadata silent.
    pub fn is_silent(&self) -> bool {
        self.silences.load(Ordering::Relaxed) > 0
    }

    /// Takes one silence back.
    pub fn speak(&self) {
        if self.silences.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.faults.speak();
        }
    }

    /// The record of the cell, which the first node makes.
    async fn make_cell(&self) {
        let settings = CellSettings {
            quorums: self.quorums,
            group_shards: 1,
            transaction_shards: 1,
        };
        let made = ensure_cell(&*self.store, settings, self.cell, 0).await;
        made.expect("the store itself never fails");
    }

    /// Starts every bookie.
    pub async fn start_bookies(&self) {
        self.make_cell().await;
        for bookie in &self.bookies {
            bookie.start().await;
        }
    }

    /// Metadata as a process sees it.
    pub fn metadata(&self, process: &Process) -> Arc<dyn MetadataStore> {
        let role = Role::Client;
        Arc::new(self.process_store(process, role, Arc::new(self.faults.clone())))
    }

    fn process_store(
        &self,
        process: &Process,
        role: Role,
        store: Arc<dyn MetadataStore>,
    ) -> ProcessStore {
        ProcessStore::new(
            process.clone(),
            role,
            store,
            self.crashes.clone(),
            self.trace.clone(),
        )
    }

    /// The rule that is switched off.
    pub fn mutation(&self) -> Mutation {
        Mutation::of(self.mutant)
    }

    /// Metadata as repair sees it.
    pub fn upkeep_metadata(&self, process: &Process) -> Arc<dyn MetadataStore> {
        Arc::new(self.process_store(process, Role::Upkeep, Arc::new(self.faults.clone())))
    }

    /// Who can be called and placed, for a process.
    pub fn directory(&self, process: &Process) -> SimDirectory {
        let client = self.client_side(process);
        let (bookies, starved) = (self.bookies.clone(), self.starved.clone());
        SimDirectory::new(client, bookies, self.store.clone(), starved)
    }

    fn client_side(&self, process: &Process) -> ClientSide {
        ClientSide {
            process: process.clone(),
            network: self.network.clone(),
            crashes: self.crashes.clone(),
            ack_quorum: self.quorums.ack,
            progress: Arc::default(),
            trace: self.trace.clone(),
        }
    }

    /// From now on bookies call something stored in this sense; before they are started.
    pub fn set_sync(&self, mode: SyncMode) {
        self.trace.line(format_args!("sync mode {mode:?}"));
        for bookie in &self.bookies {
            bookie.set_sync(mode);
        }
    }

    /// True when unsynced records that were called stored may have been lost (amended B5).
    pub fn may_lack_tails(&self) -> bool {
        self.bookies.iter().any(|bookie| bookie.has_lost_tail())
    }

    /// A ledger client inside a process.
    pub fn client(&self, process: &Process) -> LedgerClient {
        let directory = self.directory(process);
        let mut config = client_config(self.quorums);
        config.mutation = self.mutation();
        LedgerClient::new(
            self.cell,
            config,
            self.metadata(process),
            Arc::new(directory),
            self.clock.clone(),
            self.seeds.bytes(process.name()),
        )
    }

    /// From now on metadata is as bad as this.
    pub fn set_metadata_rates(&self, rates: MetadataRates) {
        let mut rng = self.seeds.stream("metadata");
        self.faults.choose(move |call| draw(&mut rng, rates, call));
    }

    /// Everything works from now on, and every bookie is up. What was late stays late: messages and, in half of the worlds,
    /// transactions of unknown outcome arrive when they will.
    pub async fn heal(&self) {
        self.trace.line(format_args!("the world heals"));
        self.healed.store(true, Ordering::Relaxed);
        self.crashes.disarm();
        self.network.heal();
        self.faults.speak();
        self.faults.choose(|_| Fate::Pass);
        self.starved.store(false, Ordering::Relaxed);
        if self.seeds.0.is_multiple_of(2) {
            // What still waits lands now, or is refused by its compares.
            self.faults.land_all().await;
        }
        for bookie in &self.bookies {
            bookie.pardon();
            bookie.free_disk();
            bookie.disk().fail_syncs(0);
            bookie.start().await;
        }
        let settled = |bookie: &Arc<SimBookie>| bookie.is_up() || bookie.is_retired();
        while !self.bookies.iter().all(settled) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The end of a run.
    pub fn finish(&self, stored: u64) -> Run {
        Run {
            fingerprint: self.trace.fingerprint(),
            text: self.trace.text(),
            violations: self.violations.all(),
            hits: self.crashes.hits(),
            counts: self.counts.all(),
            stored,
        }
    }
}

/// Times that fit a run of some virtual seconds.
fn client_config(quorums: Quorums) -> ClientConfig {
    let mut config = ClientConfig::new(quorums);
    config.add_timeout = Duration::from_secs(6);
    config.answer_timeout = Duration::from_millis(800);
    config.read_timeout = Duration::from_millis(900);
    config.recovery_deadline = Duration::from_secs(8);
    config.metadata_deadline = Duration::from_secs(5);
    config.recovery_read_ahead = 4;
    config.late_time_max = Duration::from_millis(700);
    config
}

fn draw(rng: &mut ChaCha12Rng, rates: MetadataRates, call: Call<'_>) -> Fate {
    let delay = Duration::from_millis(rng.random_range(0..=rates.delay_max_ms));
    let point: f64 = rng.random();
    if point < rates.unavailable {
        return Fate::Unavailable;
    }
    let unknown = point < rates.unavailable + rates.unknown;
    if !unknown || !matches!(call, Call::Txn(_)) {
        return Fate::Slow(delay);
    }
    match rng.random_range(0..4) {
        0 => Fate::UnknownCommitted,
        1 => Fate::UnknownNever,
        2 => Fate::UnknownLater(Late::AfterReads(rng.random_range(1..4))),
        _ => {
            let late = rng.random_range(0..=rates.late_max_ms);
            Fate::UnknownLater(Late::After(Duration::from_millis(late)))
        }
    }
}
