//! The thread that appends: takes a group, writes, syncs, answers. While it syncs, the next group collects (K9).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::file_thread::FileThread;
use super::shared::{Inner, Shared};
use crate::config::NodeConfig;
use crate::core::Event;
use crate::log::driver::LogDriver;
use crate::log::recovery::LogError;

/// How often a full disk is tried again.
const SPARE_RETRY: Duration = Duration::from_secs(1);

/// Runs until the node stops. A panic ends the process by the configured hook: a node with a broken invariant must not go on.
pub(super) fn run(shared: &Arc<Shared>, driver: LogDriver, files: FileThread, config: &NodeConfig) {
    let work = || {
        LogThread {
            shared,
            driver,
            files,
            config,
            begun: tokio::time::Instant::now(),
            retried: tokio::time::Instant::now(),
        }
        .run()
    };
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => shared.log_failed(&error.to_string()),
        Err(_) => {
            tracing::error!("bookie's log thread panicked");
            (config.on_panic.0)();
        }
    }
}

struct LogThread<'a> {
    shared: &'a Arc<Shared>,
    driver: LogDriver,
    files: FileThread,
    config: &'a NodeConfig,
    begun: tokio::time::Instant,
    /// When it was last tried what the disk was too full for.
    retried: tokio::time::Instant,
}

impl LogThread<'_> {
    fn run(mut self) -> Result<(), LogError> {
        loop {
            let files = &self.files;
            let wait = |driver: &mut LogDriver| files.wait(driver);
            if self.shared.step(&mut self.driver, wait) {
                if self.shared.failed.borrow().is_some() {
                    return Ok(());
                }
                self.after_group()?;
            } else if !self.idle()? {
                break;
            }
        }
        self.files.wait(&mut self.driver)?;
        self.driver.close()
    }

    /// Off the ack path: whole files, and the sync of the interval mode.
    fn after_group(&mut self) -> Result<(), LogError> {
        self.hand_over_removals()?;
        self.turn_files(false)?;
        self.sync_if_due()
    }

    /// A full disk is tried again now and then, also by a log that never rests; and whenever it does.
    fn turn_files(&mut self, rests: bool) -> Result<(), LogError> {
        let again = rests || self.retried.elapsed() >= SPARE_RETRY;
        if again {
            self.retried = tokio::time::Instant::now();
        }
        self.files.turn(&mut self.driver, again)
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

    fn sync_if_due(&mut self) -> Result<(), LogError> {
        self.driver.sync_if_due(self.begun.elapsed())
    }

    /// How long the thread may sleep before something is due.
    fn patience(&self) -> Option<Duration> {
        let mark = self.driver.wants_mark().then_some(self.config.mark_after);
        let writer = &self.driver.writer;
        let wanting = writer.wants_spare() || writer.wants_seal(true);
        let spare = (wanting && !writer.is_working()).then_some(SPARE_RETRY);
        let sync = self.driver.sync_due_in(self.begun.elapsed());
        [mark, spare, sync].into_iter().flatten().min()
    }

    /// Sleeps until there is a group or something is due; `false` when the node stops.
    fn idle(&mut self) -> Result<bool, LogError> {
        let patience = self.patience();
        let mut inner = self.shared.lock();
        let mut late = false;
        let working = self.driver.writer.is_working();
        let idle = |inner: &Inner| {
            let adopts = inner.adopt.is_some() && !working;
            !inner.core.group_ready() && !adopts && !inner.file_done
        };
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
        inner.file_done = false;
        let ready = inner.core.group_ready();
        let stopping = inner.stopping;
        drop(inner);
        if late && self.driver.wants_mark() {
            self.driver.mark()?;
            let room = self.driver.writer.room();
            self.shared.feed(Event::RoomChanged(room));
        }
        if late {
            self.sync_if_due()?;
        }
        self.turn_files(late)?;
        Ok(ready || !stopping)
    }
}
