//! [`BookieNode`]: start, status, shutdown.

use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use bookie_metadata::MetadataStore;
use hulse_proto::id::{Incarnation, LedgerId};
use hulse_proto::ledger::Member;
use hulse_proto::time::WallClock;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha12Rng;
use tokio::sync::watch;
use uuid::Uuid;

use super::file_thread::FileThread;
use super::read_pool::ReadPool;
use super::reclaimer::ReclaimerSeams;
use super::shared::{Shared, SharedSeams};
use super::verify::verify;
use super::{collector, log_thread, reclaimer, withdrawing};
use crate::config::{NodeConfig, Threads};
use crate::core::{Event, KnownDamage};
use crate::disk::{Disk, DiskLock};
use crate::identity::{Boot, Identity, write_boot};
use crate::index::Locator;
use crate::log::driver::LogDriver;
use crate::log::{DamagedRange, LimboKind};
use crate::metrics::NodeMetrics;
use crate::start::{
    BootFacts, Booted, StartError, boot_in_metadata, check_numbers, identify, limbo_scope,
    open_log, recover_log,
};

/// What a node is built on.
pub struct NodeSeams {
    /// The directory.
    pub disk: Arc<dyn Disk>,
    /// The facts all nodes agree on.
    pub metadata: Arc<dyn MetadataStore>,
    /// The date.
    pub clock: Arc<dyn WallClock>,
    /// Every random choice: uuids and salts.
    pub rng: ChaCha12Rng,
    /// What is counted.
    pub metrics: NodeMetrics,
}

/// What a start found.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeStatus {
    /// Damaged ranges of the log, known ones included.
    pub damage: Vec<DamagedRange>,
    /// Ledgers put into limbo by this start.
    pub limbo_ledgers: u64,
    /// Bytes the recovery read.
    pub scanned_bytes: u64,
    /// How long it took, seconds.
    pub scan_seconds: f64,
    /// Boot counter of this start.
    pub boot_counter: u64,
}

/// A running storage node. Dropping it without [`BookieNode::shutdown`] is as safe as a crash; the directory stays locked until its
/// threads have ended.
pub struct BookieNode {
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Arc<dyn WallClock>,
    pub(super) boot_uuid: Uuid,
    pub(super) boot_counter: u64,
    me: Member,
    status: NodeStatus,
    disk: Arc<dyn Disk>,
    kernel: String,
    threads: Arc<Mutex<NodeThreads>>,
}

/// The node's threads that were not joined yet.
#[derive(Default)]
struct NodeThreads {
    running: Vec<JoinHandle<()>>,
    panicked: bool,
}

impl NodeThreads {
    /// Waits for all of them; blocks. True if none panicked.
    fn join(&mut self) -> bool {
        for thread in self.running.drain(..) {
            self.panicked |= thread.join().is_err();
        }
        !self.panicked
    }
}

impl std::fmt::Debug for BookieNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BookieNode")
            .field("me", &self.me)
            .finish_non_exhaustive()
    }
}

impl BookieNode {
    /// Locks the directory, checks or makes its identity, recovers the log and begins to serve. Blocks its thread while the log is
    /// scanned.
    ///
    /// # Errors
    /// [`StartError`] says what, why and what to do.
    pub async fn start(
        mut config: NodeConfig,
        mut seams: NodeSeams,
    ) -> Result<Arc<Self>, StartError> {
        let lock = seams.disk.lock()?;
        let space = seams.disk.space()?;
        config.fit(space);
        let metadata = Arc::clone(&seams.metadata);
        let disk = Arc::clone(&seams.disk);
        let registered =
            identify(&config, disk.as_ref(), metadata.as_ref(), &mut seams.rng).await?;
        let facts = BootFacts {
            identity: registered.identity.clone(),
            boot_in_metadata: registered.value.boot_counter,
            log_file_in_metadata: registered.value.highest_log_file,
        };
        let begun = tokio::time::Instant::now();
        let booted = recover_log(&config, disk.as_ref(), facts)?;
        check_numbers(metadata.as_ref(), booted.newest_ledger()).await?;
        let scope = scope(&booted, metadata.as_ref(), &registered.identity).await?;
        let status = NodeStatus {
            damage: booted.recovered().damage.clone(),
            limbo_ledgers: scope.len() as u64,
            scanned_bytes: booted.recovered().scanned_bytes,
            scan_seconds: begun.elapsed().as_secs_f64(),
            boot_counter: booted.counter,
        };
        tell(&booted, scope.len(), &seams.metrics);
        let boot_uuid = Uuid::from_u64_pair(seams.rng.next_u64(), seams.rng.next_u64());
        let salts = Box::new(ChaCha12Rng::from_rng(&mut seams.rng));
        let now = seams.clock.now_ms();
        let (mut core, writer) = open_log(&config, &disk, booted, &scope, (salts, now))?;
        core.on_event(Event::SpaceSeen(space), &mut Vec::new());
        let limbo = core.limbo_ledgers();
        seams.metrics.limbo_ledgers.set(limbo as i64);
        let counter = status.boot_counter;
        let file = writer.current_file();
        boot_in_metadata(
            &config,
            metadata.as_ref(),
            &registered.identity,
            counter,
            file,
        )
        .await?;
        let driver = LogDriver::new(writer, config.sync);
        let node = Self::assemble(
            config,
            seams,
            Parts {
                core,
                driver,
                lock,
                boot_uuid,
                status,
                incarnation: registered.identity.incarnation,
            },
        );
        Ok(node)
    }

    fn assemble(config: NodeConfig, seams: NodeSeams, parts: Parts) -> Arc<Self> {
        let me = Member {
            bookie: config.name.clone(),
            incarnation: parts.incarnation,
        };
        let inline = config.threads == Threads::Inline;
        let disk = Arc::clone(&seams.disk);
        let files = parts.driver.writer.files();
        let locator = Locator::new(disk, files, config.index_cache_bytes);
        let reads = ReadPool::new(locator, inline);
        let (inline_driver, thread_driver) = match inline {
            true => (Some(parts.driver), None),
            false => (None, Some(parts.driver)),
        };
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            let verify = verifier(
                shared.clone(),
                Arc::clone(&seams.metadata),
                me.clone(),
                &config,
            );
            let metrics = seams.metrics.clone();
            Shared::new(
                parts.core,
                SharedSeams {
                    reads,
                    metrics,
                    inline: inline_driver,
                    verify,
                    lock: parts.lock,
                },
            )
        });
        let kernel = config.kernel_boot_id.clone();
        let reclaimer = ReclaimerSeams {
            disk: Arc::clone(&seams.disk),
            clock: Arc::clone(&seams.clock),
            rng: seams.rng,
        };
        if !inline {
            let metadata = Arc::clone(&seams.metadata);
            let weak = Arc::downgrade(&shared);
            let begun = (config.clone(), seams.clock.now_ms());
            let collecting = collector::run(weak, Arc::clone(&metadata), me.clone(), begun);
            tokio::spawn(collecting);
            let weak = Arc::downgrade(&shared);
            tokio::spawn(withdrawing::run(weak, metadata, me.clone()));
        }
        let threads = start_threads(&shared, thread_driver, config, reclaimer);
        Arc::new(Self {
            shared,
            clock: seams.clock,
            boot_uuid: parts.boot_uuid,
            boot_counter: parts.status.boot_counter,
            me,
            status: parts.status,
            disk: seams.disk,
            kernel,
            threads: Arc::new(Mutex::new(NodeThreads {
                running: threads,
                panicked: false,
            })),
        })
    }

    /// Who this node is in ensembles.
    pub fn member(&self) -> &Member {
        &self.me
    }

    /// Bytes of index pages in memory.
    #[cfg(test)]
    pub(crate) fn index_cache_used(&self) -> usize {
        self.shared.reads.locator().pages().bytes()
    }

    /// What the start found.
    pub fn status(&self) -> &NodeStatus {
        &self.status
    }

    /// What is damaged, as far as it is known now. Others have the lock between its pages.
    pub fn damage(&self) -> KnownDamage {
        let mut known = KnownDamage::default();
        let mut after = None;
        loop {
            after = self.shared.lock().core.damage_page(after, &mut known);
            if after.is_none() {
                return known;
            }
        }
    }

    /// Sealed files, and how many of them scrub has not read since the start.
    pub fn scrub_progress(&self) -> (usize, usize) {
        let files = self.shared.lock().core.sealed_files().len();
        let unchecked = self.shared.metrics.scrub_unchecked.get();
        (files, usize::try_from(unchecked).unwrap_or(0).min(files))
    }

    /// Becomes `Some` when the log failed (E1); the process should then exit non-zero, and restart.
    pub fn failed(&self) -> watch::Receiver<Option<String>> {
        self.shared.failed.subscribe()
    }

    /// Finishes what was accepted, syncs, and marks the stop as clean. Later calls are answered `Failed`.
    ///
    /// Dropping the future stops the node all the same; the mark is then missing, as after a crash. Calling again waits for the threads
    /// and makes up for it.
    ///
    /// # Errors
    /// When the last sync or the mark failed; everything confirmed before is safe all the same.
    pub async fn shutdown(&self) -> Result<(), StartError> {
        self.shared.lock().stopping = true;
        self.shared.wake.notify_all();
        self.shared.reclaim_wake.notify_all();
        self.shared.reads.stop();
        let threads = Arc::clone(&self.threads);
        // A second caller waits for the lock, that is until the first has joined them all.
        let joined = tokio::task::spawn_blocking(move || {
            threads.lock().expect("joining does not panic").join()
        });
        let joined = joined
            .await
            .map_err(|error| StartError::Interrupted(error.to_string()))?;
        if !joined {
            let why = "a thread panicked".to_owned();
            return Err(StartError::Interrupted(why));
        }
        if let Some(driver) = &self.shared.inline {
            driver.lock().expect("nothing panics under it").close()?;
        }
        if let Some(why) = self.shared.failed.borrow().clone() {
            return Err(StartError::Interrupted(why));
        }
        self.shared.log_stopped();
        let boot = Boot {
            counter: self.boot_counter,
            kernel: self.kernel.clone(),
            clean: true,
        };
        write_boot(self.disk.as_ref(), &boot)?;
        self.shared.unlock_disk();
        Ok(())
    }
}

impl Drop for BookieNode {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

struct Parts {
    core: crate::core::NodeCore,
    driver: LogDriver,
    lock: Box<dyn DiskLock>,
    boot_uuid: Uuid,
    status: NodeStatus,
    incarnation: Incarnation,
}

/// The ledgers that go into limbo at this start; metadata are asked only if there are reasons for any.
async fn scope(
    booted: &Booted,
    metadata: &dyn MetadataStore,
    identity: &Identity,
) -> Result<Vec<LedgerId>, StartError> {
    if booted.limbo.is_empty() {
        return Ok(Vec::new());
    }
    let named = limbo_scope(metadata, identity).await?;
    Ok(booted.limbo_scope(&named))
}

/// Asks metadata in a task of its own and feeds the verdict back.
fn verifier(
    shared: Weak<Shared>,
    metadata: Arc<dyn MetadataStore>,
    me: Member,
    config: &NodeConfig,
) -> Box<dyn Fn(LedgerId) + Send + Sync> {
    let timeout = config.verify_timeout;
    let runtime = tokio::runtime::Handle::current();
    Box::new(move |ledger| {
        let (shared, metadata, me) = (shared.clone(), Arc::clone(&metadata), me.clone());
        runtime.spawn(async move {
            let verdict = verify(metadata.as_ref(), &me, ledger, timeout).await;
            if let Some(shared) = shared.upgrade() {
                let now = shared.now();
                shared.feed(Event::Verified {
                    ledger,
                    verdict,
                    now,
                });
            }
        });
    })
}

fn start_threads(
    shared: &Arc<Shared>,
    driver: Option<LogDriver>,
    config: NodeConfig,
    seams: ReclaimerSeams,
) -> Vec<JoinHandle<()>> {
    let Some(driver) = driver else {
        return Vec::new();
    };
    let readers = match config.threads {
        Threads::Dedicated { readers } => readers.max(1),
        Threads::Inline => 0,
    };
    let mut threads = Vec::new();
    let (files, file_thread) = FileThread::start(shared, config.on_panic.clone());
    threads.push(file_thread);
    let own = Arc::clone(shared);
    let log = std::thread::Builder::new().name("bookie-log".to_owned());
    let of_log = config.clone();
    let log = log.spawn(move || log_thread::run(&own, driver, files, &of_log));
    threads.push(log.expect("the operating system gives a thread at start"));
    let own = Arc::clone(shared);
    let reclaim = std::thread::Builder::new().name("bookie-reclaim".to_owned());
    let reclaim = reclaim.spawn(move || reclaimer::run(&own, seams, &config));
    threads.push(reclaim.expect("the operating system gives a thread at start"));
    for index in 0..readers {
        let own = Arc::clone(shared);
        let reader = std::thread::Builder::new().name(format!("bookie-read-{index}"));
        let reader = reader.spawn(move || own.reads.work(&own));
        threads.push(reader.expect("the operating system gives a thread at start"));
    }
    threads
}

/// Says what is wrong with the log that was recovered.
fn tell(booted: &Booted, limbo_ledgers: usize, metrics: &NodeMetrics) {
    for range in booted.new_damage() {
        tracing::error!(
            ?range,
            ledgers = limbo_ledgers,
            "log is damaged; ledgers are in limbo"
        );
        metrics.damage.inc();
    }
    for rotten in &booted.recovered().rotten {
        let (ledger, entry, file) = (rotten.ledger, rotten.entry, rotten.location.file);
        tracing::error!(%ledger, %entry, file, "a stored entry is damaged; nothing else in its group is");
        metrics.damage.inc();
    }
    for kind in &booted.limbo {
        match kind {
            LimboKind::Damage => {}
            LimboKind::Stale => tracing::error!(
                ledgers = limbo_ledgers,
                "the disk is older than metadata remember it, a copy was put back or files are missing; ledgers that were open are in limbo: bring the right disk back, or see `hulse ledgers list`"
            ),
            LimboKind::Unsynced => tracing::warn!(
                ledgers = limbo_ledgers,
                "the machine failed, and bookie.sync is not always; ledgers that were open may have lost their end and are in limbo"
            ),
        }
    }
}
