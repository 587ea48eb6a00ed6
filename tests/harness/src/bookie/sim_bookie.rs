//! A bookie: a disk that outlives its processes, and the process that serves it now.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bookie_metadata::MetadataStore;
use bookie_node::core::Verdict;
use bookie_node::disk::{Disk, MemoryDisk, Survival};
use bookie_node::step::StepNode;
use bookie_node::{BookieNode, NodeConfig, NodeMetrics, NodeSeams, Threads};
use hulse_proto::bookie::{BookieError, EntryHead, Origin, ReadRequest, StoredEntry};
use hulse_proto::id::{CellId, EntryId, LedgerId, NodeName};
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Member, ledger_key};
use hulse_proto::time::WallClock;
use prometheus_client::registry::Registry;
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::life::Life;
use super::request::{Reply, Request};
use crate::crash_point::{CrashPlan, CrashPoint, Side};
use crate::metadata::{ProcessStore, Role};
use crate::process::Process;
use crate::seed::Seeds;
use crate::trace;
use crate::trace::Trace;
use crate::violations::Violations;

/// Log files this short make a run roll often.
const FILE_BYTES: u64 = 96 << 10;
/// A start that crashed so often is a bug.
const STARTS_MAX: u32 = 200;
/// A call of the disk waits up to this long, ms.
const DISK_DELAY_MS: u64 = 4;

/// A lie that a test tells to show that the oracles see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Adds are answered when they are accepted, not when they are durable.
    AckBeforeSync,
    /// Recovery reads are answered from what is there, without a fence.
    NegativeWithoutFence,
    /// Fences do not stop the writer.
    FenceForgotten,
}

/// What a crash does to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerLoss {
    /// The machine dies: any subset of the unsynced bytes survives.
    Yes,
    /// The process dies, the page cache lives.
    No,
}

/// What all bookies of a world are given.
#[derive(Clone)]
pub struct BookieSetup {
    /// The cell.
    pub cell: CellId,
    /// Root of chance.
    pub seeds: Seeds,
    /// The store behind its faults.
    pub metadata: Arc<dyn MetadataStore>,
    /// The wall.
    pub clock: Arc<dyn WallClock>,
    /// Crash points.
    pub crashes: CrashPlan,
    /// The trace.
    pub trace: Trace,
    /// What the oracles found.
    pub violations: Violations,
    /// A mutant.
    pub lie: Option<Lie>,
}

pub(super) struct State {
    pub(super) life: Option<Life>,
    /// Number of the boot; answers of an earlier one are void.
    pub(super) boot: u64,
    pub(super) process: Process,
    pub(super) rng: ChaCha12Rng,
    kernel: u64,
    member: Option<Member>,
    /// Told to stay down.
    held_down: bool,
    /// The boot whose start is under way.
    starting: Option<u64>,
    /// Entries that this bookie promised never to take from the writer (storage.md §12, 3).
    promised: BTreeSet<(LedgerId, EntryId)>,
}

/// The bookie.
pub struct SimBookie {
    name: NodeName,
    pub(super) setup: BookieSetup,
    disk: MemoryDisk,
    pub(super) state: Mutex<State>,
    started: Instant,
}

impl SimBookie {
    /// One on an empty disk, not started.
    pub fn new(name: NodeName, setup: BookieSetup) -> Arc<Self> {
        let rng = setup.seeds.stream(&format!("bookie {name}"));
        Arc::new(Self {
            state: Mutex::new(State {
                life: None,
                boot: 0,
                process: Process::new(name.as_str()),
                rng,
                kernel: 0,
                member: None,
                held_down: false,
                starting: None,
                promised: BTreeSet::new(),
            }),
            name,
            setup,
            disk: MemoryDisk::default(),
            started: Instant::now(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Who it is in ensembles, once it was started.
    pub fn member(&self) -> Option<Member> {
        self.state().member.clone()
    }

    /// True while it serves.
    pub fn is_up(&self) -> bool {
        self.state().life.is_some()
    }

    /// The disk.
    pub fn disk(&self) -> &MemoryDisk {
        &self.disk
    }

    /// Virtual time since the beginning of the run.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Asks this bookie; `None` when it was down, or died before it answered.
    pub async fn ask(self: &Arc<Self>, request: Request) -> Option<Reply> {
        let answer = self.submit(request)?;
        answer.await.ok()
    }

    fn submit(self: &Arc<Self>, request: Request) -> Option<oneshot::Receiver<Reply>> {
        let mut state = self.state();
        let now = self.now();
        let boot = state.boot;
        let life = state.life.as_mut()?;
        let (answer, heard) = oneshot::channel();
        let lie = self.setup.lie;
        let (ask, replies) = life.submit(now, request, answer, lie);
        life.wake.notify_one();
        self.settle(&mut state, replies);
        drop(state);
        for ledger in ask {
            let this = self.clone();
            tokio::spawn(async move { this.verify(boot, ledger).await });
        }
        Some(heard)
    }

    /// Hands replies to the network, after the oracle saw them.
    pub(super) fn settle(&self, state: &mut State, replies: Vec<Reported>) {
        for Reported {
            request,
            reply,
            answer,
        } in replies
        {
            let (kind, ledger) = (request.kind(), request.ledger());
            let entry = request.entry().map(|entry| entry.0);
            trace!(
                self.setup.trace,
                "{} {kind:?} {ledger} {entry:?}: {}",
                self.name,
                reply.summary()
            );
            if self.setup.lie.is_none() {
                self.watch(state, &request, &reply);
            }
            // Who asked may have died.
            let _ = answer.send(reply);
        }
    }

    /// After a NEGATIVE for an entry, no add of it is ever accepted from the writer.
    fn watch(&self, state: &mut State, request: &Request, reply: &Reply) {
        use hulse_proto::bookie::RecoveryReadAnswer::Negative;
        match (request, reply) {
            (Request::RecoveryRead(read), Reply::RecoveryRead(Ok(Negative { .. }))) => {
                state.promised.insert((read.to.ledger, read.entry));
            }
            (Request::Add(add), Reply::Add(Ok(()))) if add.origin == Origin::Normal => {
                let (ledger, entry) = (add.to.ledger, add.entry.header().entry);
                let broken = state.promised.contains(&(ledger, entry));
                self.setup.violations.check(!broken, || {
                    format!(
                        "{}: entry {entry} of ledger {ledger} was taken after a negative",
                        self.name
                    )
                });
            }
            _ => {}
        }
    }

    /// First contact (B2), with its crash point.
    async fn verify(self: Arc<Self>, boot: u64, ledger: LedgerId) {
        let (process, hit) = {
            let state = self.state();
            (
                state.process.clone(),
                self.setup.crashes.pass(CrashPoint(5)),
            )
        };
        if hit == Some(Side::Before) {
            return self.die(boot, CrashPoint(5), Side::Before);
        }
        let store = self.store(&process);
        let Some(verdict) = process.heard(self.ask_metadata(&store, ledger)).await else {
            return;
        };
        if hit == Some(Side::After) {
            return self.die(boot, CrashPoint(5), Side::After);
        }
        let mut state = self.state();
        if state.boot != boot {
            return;
        }
        let now = self.now();
        if let Some(life) = state.life.as_mut() {
            let replies = life.verified(now, ledger, verdict);
            life.wake.notify_one();
            self.settle(&mut state, replies);
        }
    }

    /// As the node's own shell asks and judges.
    async fn ask_metadata(&self, store: &dyn MetadataStore, ledger: LedgerId) -> Verdict {
        let key = ledger_key(ledger);
        let asked = tokio::time::timeout(Duration::from_secs(3), store.get(&key)).await;
        let Ok(Ok(found)) = asked else {
            return Verdict::Unavailable;
        };
        let Some(metadata) = found.and_then(|found| LedgerMetadata::decode(&found.value).ok())
        else {
            return Verdict::Deleted;
        };
        let me = self.member();
        let last = &metadata.last_fragment().ensemble;
        match metadata.state {
            LedgerState::Deleting => Verdict::Deleted,
            LedgerState::InRecovery | LedgerState::Closed => Verdict::Fenced {
                token: metadata.recovery_token,
            },
            LedgerState::Open if me.is_some_and(|me| last.contains(&me)) => Verdict::Open,
            LedgerState::Open => Verdict::NotInEnsemble,
        }
    }

    fn store(&self, process: &Process) -> ProcessStore {
        ProcessStore::new(
            process.clone(),
            Role::Bookie,
            self.setup.metadata.clone(),
            self.setup.crashes.clone(),
            self.setup.trace.clone(),
        )
    }

    /// Dies at a crash point, in a power loss, and comes back.
    pub(super) fn die(self: &Arc<Self>, boot: u64, point: CrashPoint, side: Side) {
        trace!(
            self.setup.trace,
            "{} dies {side:?} crash point {}", self.name, point.0
        );
        if self.state().boot == boot {
            self.crash(PowerLoss::Yes);
        }
    }

    /// Dies now and comes back after a while, unless it is held down.
    pub fn crash(self: &Arc<Self>, loss: PowerLoss) {
        let mut state = self.state();
        state.fall(&self.disk, loss);
        let boot = state.boot;
        let wait = Duration::from_millis(state.rng.random_range(20..1500));
        trace!(
            self.setup.trace,
            "{} crashes, power loss {loss:?}", self.name
        );
        if state.held_down {
            return;
        }
        drop(state);
        let this = self.clone();
        tokio::spawn(async move {
            sleep(wait).await;
            this.start_boot(boot).await;
        });
    }

    /// Dies and stays down until [`SimBookie::start`].
    pub fn hold_down(self: &Arc<Self>, loss: PowerLoss) {
        self.state().held_down = true;
        self.crash(loss);
    }

    /// Starts it, if it is down.
    pub async fn start(self: &Arc<Self>) {
        let boot = {
            let mut state = self.state();
            state.held_down = false;
            if state.life.is_some() {
                return;
            }
            state.boot
        };
        self.start_boot(boot).await;
    }

    /// Starts until it serves, or somebody else started or crashed it meanwhile.
    async fn start_boot(self: &Arc<Self>, boot: u64) {
        for _ in 0..STARTS_MAX {
            {
                let mut state = self.state();
                if state.boot != boot || state.life.is_some() || state.starting == Some(boot) {
                    return;
                }
                state.starting = Some(boot);
            }
            let started = self.try_start(boot).await;
            {
                let mut state = self.state();
                if state.starting == Some(boot) {
                    state.starting = None;
                }
            }
            if started {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        let words = format!("{} does not start after {STARTS_MAX} tries", self.name);
        self.setup.violations.add(words);
    }

    /// One start: the real one for identity and registration, then the steps that serve. False: it crashed or was refused.
    async fn try_start(self: &Arc<Self>, boot: u64) -> bool {
        let armed = self.arm_disk();
        let (process, seed, config) = {
            let mut state = self.state();
            state.process = Process::new(self.name.as_str());
            (
                state.process.clone(),
                state.rng.random(),
                self.config(state.kernel),
            )
        };
        let registered = process.heard(self.register(&process, config.clone())).await;
        if self.state().boot != boot {
            return true;
        }
        let opened = match registered {
            Some(Ok(member)) => {
                self.state().member = Some(member);
                StepNode::open(config, Arc::new(self.disk.clone()), seed, &[])
                    .map_err(|error| error.to_string())
            }
            Some(Err(words)) => Err(words),
            None => Err("killed while it registered".to_owned()),
        };
        let mut state = self.state();
        match opened {
            Ok(node) if !armed => {
                self.check_log(&node);
                let life = Life::new(node, self.now());
                let wake = life.wake.clone();
                state.life = Some(life);
                trace!(self.setup.trace, "{} serves", self.name);
                drop(state);
                let this = self.clone();
                tokio::spawn(async move { this.serve(boot, wake).await });
                true
            }
            other => {
                let words = other
                    .err()
                    .unwrap_or_else(|| "killed right after".to_owned());
                trace!(self.setup.trace, "{} does not start: {words}", self.name);
                state.process.kill();
                state.power_off(&self.disk, PowerLoss::Yes);
                false
            }
        }
    }

    /// Lets the disk stop in the middle of this start, when crash point 9 or 13 is armed.
    fn arm_disk(&self) -> bool {
        let empty = self.disk.list().is_ok_and(|names| names.is_empty());
        let point = CrashPoint(if empty { 13 } else { 9 });
        if self.setup.crashes.pass(point).is_none() {
            return false;
        }
        let changes = self.state().rng.random_range(0..14);
        trace!(
            self.setup.trace,
            "{} dies in its start, crash point {}", self.name, point.0
        );
        self.disk.stop_after(changes);
        true
    }

    fn config(&self, kernel: u64) -> NodeConfig {
        let mut config = NodeConfig::new(self.setup.cell, self.name.clone());
        config.format_if_empty = true;
        config.kernel_boot_id = format!("{}-{kernel}", self.name);
        config.file_bytes = FILE_BYTES;
        config.threads = Threads::Inline;
        config
    }

    /// The real start: identity, registration, boot counters. Its node is dropped at once, as a crash would.
    async fn register(&self, process: &Process, config: NodeConfig) -> Result<Member, String> {
        let rng = {
            use rand::SeedableRng;
            ChaCha12Rng::from_rng(&mut self.state().rng)
        };
        let seams = NodeSeams {
            disk: Arc::new(self.disk.clone()),
            metadata: Arc::new(self.store(process)),
            clock: self.setup.clock.clone(),
            rng,
            metrics: NodeMetrics::new(&mut Registry::default()),
        };
        let node = BookieNode::start(config, seams)
            .await
            .map_err(|error| error.to_string())?;
        self.setup
            .violations
            .check(node.status().damage.is_empty(), || {
                format!(
                    "{} calls its log damaged: {:?}",
                    self.name,
                    node.status().damage
                )
            });
        Ok(node.member().clone())
    }

    /// No fault of these runs damages a log.
    fn check_log(&self, node: &StepNode) {
        let (damage, limbo) = (node.damage(), node.new_limbo());
        self.setup
            .violations
            .check(damage.is_empty() && limbo.is_empty(), || {
                format!("{} finds damage {damage:?}, limbo {limbo:?}", self.name)
            });
    }

    /// The newest log file with bytes that no sync covers.
    pub(super) fn newest_unsynced(&self) -> Option<String> {
        let names = self.disk.list().unwrap_or_default();
        let mut logs = names
            .into_iter()
            .filter(|name| name.starts_with(|c: char| c.is_ascii_digit()));
        logs.rfind(|name| !self.disk.unsynced(name).is_empty())
    }

    /// A wait for the disk.
    pub(super) fn disk_delay(&self) -> Duration {
        Duration::from_millis(self.state().rng.random_range(0..=DISK_DELAY_MS))
    }

    /// Looks at what it holds, past the network.
    ///
    /// # Errors
    /// As `BookieCalls::read`; `Failed` while it is down.
    pub fn look(&self, request: &ReadRequest) -> Result<Vec<StoredEntry>, BookieError> {
        let mut state = self.state();
        let down = || BookieError::Failed {
            why: "it is down".to_owned(),
        };
        state.life.as_mut().ok_or_else(down)?.node.read(request)
    }
}

impl State {
    fn fall(&mut self, disk: &MemoryDisk, loss: PowerLoss) {
        self.boot += 1;
        self.life = None;
        self.process.kill();
        self.power_off(disk, loss);
    }

    fn power_off(&mut self, disk: &MemoryDisk, loss: PowerLoss) {
        match loss {
            PowerLoss::Yes => {
                self.kernel += 1;
                disk.crash(Survival::Random(&mut self.rng));
            }
            PowerLoss::No => disk.crash(Survival::Everything),
        }
    }
}

/// A reply and who waits for it.
pub(super) struct Reported {
    pub(super) request: Request,
    pub(super) reply: Reply,
    pub(super) answer: oneshot::Sender<Reply>,
}

/// A head of each entry, as a node cuts it.
pub(super) fn heads(entries: Vec<StoredEntry>) -> Vec<EntryHead> {
    let head = |stored: StoredEntry| EntryHead {
        header: *stored.entry.header(),
        envelope: stored.entry.envelope(),
    };
    entries.into_iter().map(head).collect()
}
