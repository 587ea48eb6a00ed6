//! A bookie: a disk that outlives its processes, and the process that serves it now.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bookie_metadata::MetadataStore;
use bookie_node::SyncMode;
use bookie_node::core::{Verdict, Withdrawn};
use bookie_node::disk::{Disk, MemoryDisk, Survival};
use hulse_proto::bookie::{BookieError, EntryHead, ReadRequest, StoredEntry};
use hulse_proto::id::{CellId, LedgerId, NodeName};
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Member, ledger_key};
use hulse_proto::mutant::Mutant;
use hulse_proto::time::WallClock;
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::life::Life;
use super::media::Scars;
use super::promises::Promises;
use super::request::{Reply, Request};
use crate::counts::Counts;
use crate::crash_point::{CrashPlan, CrashPoint, Side};
use crate::metadata::{ObservedStore, Poverty, ProcessStore, Role};
use crate::process::Process;
use crate::seed::Seeds;
use crate::trace;
use crate::trace::Trace;
use crate::violations::Violations;

/// A call of the disk waits up to this long, ms.
const DISK_DELAY_MS: u64 = 4;

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
    /// Metadata, as they are.
    pub observed: Arc<ObservedStore>,
    /// What was brought about.
    pub counts: Counts,
    /// The trace.
    pub trace: Trace,
    /// What the oracles found.
    pub violations: Violations,
    /// A rule that is switched off.
    pub mutant: Option<Mutant>,
}

pub(super) struct State {
    pub(super) life: Option<Life>,
    /// Number of the boot; answers of an earlier one are void.
    pub(super) boot: u64,
    pub(super) process: Process,
    pub(super) rng: ChaCha12Rng,
    pub(super) kernel: u64,
    pub(super) member: Option<Member>,
    /// Told to stay down.
    pub(super) held_down: bool,
    /// The boot whose start is under way.
    pub(super) starting: Option<u64>,
    /// What it has promised so far.
    pub(super) promises: Promises,
    /// What became of its disk besides crashes.
    pub(super) scars: Scars,
    /// It dies after so many turns of the disk.
    pub(super) doom: Option<u32>,
    /// When something is stored.
    pub(super) sync: SyncMode,
    /// Until then its disk does nothing.
    pub(super) stalled_until: Option<Instant>,
    /// It asks metadata which ledgers are gone at most so long after it did, ms.
    pub(super) collect_ms: u64,
    /// How poorly metadata answer it about its ledgers.
    pub(super) poverty: Poverty,
    /// Passes over such metadata.
    pub(super) passes: u64,
    /// The operator's word, as far as it has heard it.
    pub(super) withdrawn: Withdrawn,
    /// It is retired: once down it stays down.
    pub(super) retired: bool,
}

/// The bookie.
pub struct SimBookie {
    pub(super) name: NodeName,
    pub(super) setup: BookieSetup,
    pub(super) disk: MemoryDisk,
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
                promises: Promises::default(),
                scars: Scars::default(),
                doom: None,
                sync: SyncMode::Always,
                collect_ms: super::collect::REST_MS,
                poverty: Poverty::default(),
                passes: 0,
                withdrawn: Withdrawn::No,
                retired: false,
                stalled_until: None,
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

    /// True while it takes records: it serves, and its disk is not full.
    pub fn is_writable(&self) -> bool {
        let state = self.state();
        let life = state.life.as_ref();
        life.is_some_and(|life| life.node.core().read_only().is_none())
    }

    /// When it calls something stored from its next start on.
    pub fn set_sync(&self, mode: SyncMode) {
        self.state().sync = mode;
    }

    /// It will die at its `turns`-th turn of the disk from now on.
    pub fn doom(&self, turns: u32) {
        self.state().doom = Some(turns);
    }

    /// It lives on.
    pub fn pardon(&self) {
        self.state().doom = None;
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
        let (ask, replies) = life.submit(now, request, answer);
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
            self.watch(state, &request, &reply);
            // Who asked may have died.
            let _ = answer.send(reply);
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

    pub(super) fn store(&self, process: &Process) -> ProcessStore {
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
        self.crash_and(loss, |_| {});
    }

    /// Dies now; something happens to its disk; it comes back.
    pub(super) fn crash_and(self: &Arc<Self>, loss: PowerLoss, then: impl FnOnce(&mut State)) {
        let mut state = self.state();
        state.fall(&self.disk, loss);
        then(&mut state);
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
        let mut state = self.state();
        let delay = Duration::from_millis(state.rng.random_range(0..=DISK_DELAY_MS));
        let stalled = state.stalled_until.take_if(|until| *until > Instant::now());
        stalled.map_or(delay, |until| until - Instant::now())
    }

    /// True when it holds entries of a ledger, and would give them; false also while it is down.
    pub fn holds(&self, ledger: LedgerId) -> bool {
        let state = self.state();
        let held = state.life.as_ref().and_then(|life| {
            let ledger = life.node.core().state().ledgers.get(&ledger)?;
            Some(!ledger.deleted && !ledger.entries.is_empty())
        });
        held.unwrap_or(false)
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

    /// Without syncs, what was called stored may be gone now.
    pub(super) fn note_lost_tail(&mut self) {
        self.scars.tail |= !self.sync.always();
    }

    pub(super) fn power_off(&mut self, disk: &MemoryDisk, loss: PowerLoss) {
        match loss {
            PowerLoss::Yes => {
                self.kernel += 1;
                self.note_lost_tail();
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
