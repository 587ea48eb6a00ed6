//! The thread that frees space and checks what is stored (storage.md §6, E2), at one rate and behind everything else (G14); and that
//! looks at the volume (D5).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::size::about;
use hulse_proto::time::WallClock;
use rand::RngCore;
use rand_chacha::ChaCha12Rng;

use super::freeing::free;
use super::shared::Shared;
use crate::config::NodeConfig;
use crate::core::{Event, Level, NodeCore};
use crate::disk::{Disk, DiskError};
use crate::index::Locator;
use crate::log::compacted::{CompactedSetup, FinishedFile};
use crate::log::unlink;
use crate::reclaim::{Ground, Pace, Work, Worker};

/// How often the volume is looked at, and whether there is something to free.
const TICK: Duration = Duration::from_secs(1);

/// What the thread is built on.
pub(super) struct ReclaimerSeams {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn WallClock>,
    pub rng: ChaCha12Rng,
}

/// Runs until the node stops. A panic ends the process, as that of the log thread does.
pub(super) fn run(shared: &Arc<Shared>, seams: ReclaimerSeams, config: &NodeConfig) {
    let work = || {
        Reclaimer {
            worker: Worker::new(config.scrub_interval),
            pace: Pace::new(config.background_rate),
            ground: SharedGround { shared, seams },
            level: Level::Normal,
        }
        .run()
    };
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => shared.log_failed(&error.to_string()),
        Err(_) => {
            tracing::error!("bookie's reclaim thread panicked");
            (config.on_panic.0)();
        }
    }
}

struct Reclaimer<'a> {
    worker: Worker,
    pace: Pace,
    ground: SharedGround<'a>,
    level: Level,
}

impl Reclaimer<'_> {
    fn run(mut self) -> Result<(), DiskError> {
        let mut looked = None;
        loop {
            let freed = self.unlink()?;
            let now = self.ground.shared.now();
            if freed || looked.is_none_or(|at| now.saturating_sub(at) >= TICK) {
                self.look_at_volume()?;
                looked = Some(now);
            }
            if freed {
                self.worker.wake();
            }
            let wait = match self.worker.step(&mut self.ground, now)? {
                Work::Nothing => TICK,
                Work::Did { read, written } => {
                    let metrics = &self.ground.shared.metrics;
                    metrics.compaction_bytes.inc_by(written);
                    metrics.scrubbed.inc_by(if written == 0 { read } else { 0 });
                    self.pace.spend(read + written, now)
                }
                Work::Adopt(finished) => {
                    let Some(named) = self.ground.shared.hand_over(finished) else {
                        return Ok(());
                    };
                    self.worker.adopted(named, &mut self.ground, now);
                    Duration::ZERO
                }
            };
            if !self.ground.shared.rest(wait) {
                return Ok(());
            }
        }
    }

    /// Removes the files whose removal is durable on record.
    fn unlink(&mut self) -> Result<bool, DiskError> {
        let files = self.ground.shared.take_unlinks();
        let disk = self.ground.seams.disk.as_ref();
        for file in unlink(disk, self.ground.locator().files(), &files)? {
            let bytes = file.bytes().unwrap_or(0);
            self.ground.shared.metrics.reclaimed.inc_by(bytes);
            free(file, |time| self.ground.shared.sleep(time))?;
        }
        Ok(!files.is_empty())
    }

    fn look_at_volume(&mut self) -> Result<(), DiskError> {
        let space = self.ground.seams.disk.space()?;
        if !self.ground.shared.lock().making {
            self.ground.feed(Event::SpaceSeen(space));
        }
        let (held, dead) = self.ground.look(NodeCore::held_and_dead_bytes);
        let level = self.ground.look(NodeCore::level);
        let metrics = &self.ground.shared.metrics;
        metrics.level.set(level as i64);
        metrics.disk_free.set(gauge(space.free));
        let kept = self.ground.look(NodeCore::kept_free_bytes);
        metrics.disk_reserve.set(gauge(kept));
        metrics.log_held.set(gauge(held));
        metrics.log_dead.set(gauge(dead));
        let unchecked = self.worker.unchecked(&self.ground);
        metrics.scrub_unchecked.set(gauge(unchecked as u64));
        if level != self.level {
            let was = std::mem::replace(&mut self.level, level);
            let (free, kept) = (about(space.free), about(kept));
            match level >= Level::ReadOnly {
                true => tracing::warn!(
                    %was, %level,
                    "no records are taken: {free} are free on the bookie's disk, {kept} are to stay free (bookie.disk_reserve, or two log files)"
                ),
                false => tracing::info!(%was, %level, free, "the level of the bookie's disk"),
            }
        }
        Ok(())
    }
}

fn gauge(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

struct SharedGround<'a> {
    shared: &'a Arc<Shared>,
    seams: ReclaimerSeams,
}

impl Ground for SharedGround<'_> {
    fn look<T>(&self, look: impl FnOnce(&NodeCore) -> T) -> T {
        look(&self.shared.lock().core)
    }

    fn feed(&mut self, event: Event) {
        if let Event::EntryDamaged { .. } = event {
            self.shared.metrics.damage.inc();
        }
        self.shared.feed(event);
    }

    fn locator(&self) -> Locator {
        self.shared.reads.locator().clone()
    }

    fn setup(&mut self) -> CompactedSetup {
        CompactedSetup {
            disk: Arc::clone(&self.seams.disk),
            identity: self.look(NodeCore::identity),
            salt: self.seams.rng.next_u64(),
            created_at: self.seams.clock.now_ms(),
            replaces: Vec::new(),
            newest: 0,
            bytes: 0,
        }
    }
}

impl Shared {
    /// Lets the log's thread name a compacted file, and waits for it: whether there was room. `None`: the node stops.
    fn hand_over(&self, finished: Box<FinishedFile>) -> Option<bool> {
        let mut inner = self.lock();
        inner.adopt = Some(finished);
        inner.log_sleeps = false;
        self.wake.notify_one();
        loop {
            if let Some(named) = inner.adopted.take() {
                return Some(named);
            }
            if inner.stopping {
                return None;
            }
            let woken = self.reclaim_wake.wait(inner);
            inner = woken.expect("a panic under the lock aborts the process");
        }
    }

    fn take_unlinks(&self) -> Vec<(crate::log::FileKind, u32)> {
        std::mem::take(&mut self.lock().unlink)
    }

    /// Sleeps for so long. `false`: the node stops.
    fn sleep(&self, time: Duration) -> bool {
        let inner = self.lock();
        let woken = self
            .reclaim_wake
            .wait_timeout_while(inner, time, |inner| !inner.stopping);
        let (inner, _) = woken.expect("a panic under the lock aborts the process");
        !inner.stopping
    }

    /// Rests for so long, or until there is something to unlink. `false`: the node stops.
    fn rest(&self, time: Duration) -> bool {
        let inner = self.lock();
        let idle = |inner: &mut super::shared::Inner| !inner.stopping && inner.unlink.is_empty();
        let woken = self.reclaim_wake.wait_timeout_while(inner, time, idle);
        let (inner, _) = woken.expect("a panic under the lock aborts the process");
        !inner.stopping && inner.core.failed().is_none()
    }
}
