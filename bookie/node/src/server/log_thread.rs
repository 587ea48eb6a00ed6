//! The thread that appends: takes a group, writes, syncs, answers. While it syncs, the next group collects (K9).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::shared::{Inner, Shared};
use crate::config::{NodeConfig, SyncMode};
use crate::core::Event;
use crate::log::driver::LogDriver;
use crate::log::recovery::LogError;

/// How often a full disk is tried again.
const SPARE_RETRY: Duration = Duration::from_secs(1);

/// Runs until the node stops. A panic ends the process by the configured hook: a node with a broken invariant must not go on.
pub(super) fn run(shared: &Arc<Shared>, driver: LogDriver, config: &NodeConfig) {
    let work = || {
        LogThread {
            shared,
            driver,
            config,
            last_sync: tokio::time::Instant::now(),
        }
        .run()
    };
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!("bookie's log thread panicked");
        (config.on_panic.0)();
    }
}

struct LogThread<'a> {
    shared: &'a Arc<Shared>,
    driver: LogDriver,
    config: &'a NodeConfig,
    last_sync: tokio::time::Instant,
}

impl LogThread<'_> {
    fn run(mut self) {
        loop {
            if self.shared.step(&mut self.driver) {
                if let Err(error) = self.after_group() {
                    self.shared.log_failed(&error.to_string());
                    return;
                }
                if self.shared.failed.borrow().is_some() {
                    return;
                }
                continue;
            }
            match self.idle() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.shared.log_failed(&error.to_string());
                    return;
                }
            }
        }
        if let Err(error) = self.driver.close() {
            self.shared.log_failed(&error.to_string());
        }
    }

    /// Off the ack path: the next file, and the sync of the interval mode.
    fn after_group(&mut self) -> Result<(), LogError> {
        self.hand_over_removals()?;
        if self.driver.writer.wants_spare() && !self.driver.writer.room().full {
            self.make_spare()?;
        }
        self.name_compacted()?;
        self.sync_if_due()
    }

    /// Lets the reclaim thread unlink what is on record as removed: durable, whatever stored means.
    fn hand_over_removals(&mut self) -> Result<(), LogError> {
        let files = std::mem::take(&mut self.shared.lock().recorded);
        if files.is_empty() {
            return Ok(());
        }
        if !self.config.sync.always() {
            self.driver.writer.sync()?;
        }
        self.shared.lock().unlink.extend(files);
        self.shared.reclaim_wake.notify_one();
        Ok(())
    }

    /// Gives a compacted file its number and name, and the index its places.
    fn name_compacted(&mut self) -> Result<(), LogError> {
        let Some(finished) = self.shared.lock().adopt.take() else {
            return Ok(());
        };
        let sealed = self.driver.writer.adopt(*finished)?;
        let named = sealed.is_some();
        if let Some(sealed) = sealed {
            self.shared
                .feed_quietly(Event::FileSealed(Box::new(sealed)));
        }
        self.shared.lock().adopted = Some(named);
        self.shared.reclaim_wake.notify_one();
        Ok(())
    }

    fn make_spare(&mut self) -> Result<(), LogError> {
        // Meanwhile the file counts on neither side.
        self.shared.lock().making = true;
        let made = self.driver.writer.make_spare();
        self.shared
            .feed(Event::RoomChanged(self.driver.writer.room()));
        self.shared.lock().making = false;
        made
    }

    fn sync_if_due(&mut self) -> Result<(), LogError> {
        if let SyncMode::Interval(every) = self.config.sync
            && self.driver.writer.is_dirty()
            && self.last_sync.elapsed() >= every
        {
            self.driver.writer.sync()?;
            self.last_sync = tokio::time::Instant::now();
        }
        Ok(())
    }

    /// How long the thread may sleep before something is due.
    fn patience(&self) -> Option<Duration> {
        let mark = self.driver.wants_mark().then_some(self.config.mark_after);
        let wanting = self.driver.writer.wants_spare() || self.driver.writer.wants_seal(true);
        let spare = wanting.then_some(SPARE_RETRY);
        let sync = match self.config.sync {
            SyncMode::Interval(every) if self.driver.writer.is_dirty() => {
                Some(every.saturating_sub(self.last_sync.elapsed()))
            }
            _ => None,
        };
        [mark, spare, sync].into_iter().flatten().min()
    }

    /// Sleeps until there is a group or something is due; `false` when the node stops.
    fn idle(&mut self) -> Result<bool, LogError> {
        let patience = self.patience();
        let mut inner = self.shared.lock();
        let mut late = false;
        let idle = |inner: &Inner| !inner.core.group_ready() && inner.adopt.is_none();
        while idle(&inner) && !inner.stopping && !late {
            inner.log_sleeps = true;
            inner = match patience {
                None => {
                    let woken = self.shared.wake.wait(inner);
                    woken.expect("a panic under the lock aborts the process")
                }
                Some(patience) => {
                    let woken = self.shared.wake.wait_timeout(inner, patience);
                    let (inner, timeout) =
                        woken.expect("a panic under the lock aborts the process");
                    late = timeout.timed_out();
                    inner
                }
            };
        }
        inner.log_sleeps = false;
        let ready = inner.core.group_ready();
        let stopping = inner.stopping;
        drop(inner);
        self.name_compacted()?;
        if ready {
            return Ok(true);
        }
        if late {
            if self.driver.wants_mark() {
                self.driver.mark()?;
                self.shared
                    .feed(Event::RoomChanged(self.driver.writer.room()));
            }
            if self.driver.writer.wants_spare() {
                self.make_spare()?;
            }
            self.sync_if_due()?;
            self.shared.seal(&mut self.driver, true)?;
        }
        Ok(!stopping)
    }
}
