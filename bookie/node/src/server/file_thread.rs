//! The thread that carries out the work on whole log files (`log::file_work`), so that no group waits for it.
//!
//! The log's thread hands it one piece at a time and ends each itself: numbers, index and room change on that thread alone.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::shared::Shared;
use crate::config::PanicHook;
use crate::core::Event;
use crate::disk::{DiskError, DiskErrorKind};
use crate::log::FileWorkEnd;
use crate::log::driver::LogDriver;
use crate::log::file_work::{FileWork, FileWorkDone};
use crate::log::recovery::LogError;

/// The log thread's end of it. The thread ends when this is dropped, after the piece that it has.
pub(super) struct FileThread {
    shared: Arc<Shared>,
    work: Sender<FileWork>,
    done: Receiver<FileWorkDone>,
    /// Of log files and footers the last piece was a file. On a disk too full for one, a footer may still find room.
    made_file: Cell<bool>,
}

impl FileThread {
    /// Starts the thread. A panic in it ends the process by the hook.
    pub fn start(shared: &Arc<Shared>, on_panic: PanicHook) -> (Self, JoinHandle<()>) {
        let (to_thread, work) = channel();
        let (from_thread, done) = channel();
        let own = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("bookie-files".to_owned());
        let thread = thread.spawn(move || {
            let run = || run(&own, &work, &from_thread);
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                tracing::error!("bookie's thread for log files panicked");
                (on_panic.0)();
            }
        });
        let this = Self {
            shared: Arc::clone(shared),
            work: to_thread,
            done,
            made_file: Cell::new(false),
        };
        let thread = thread.expect("the operating system gives a thread at start");
        (this, thread)
    }

    /// Ends what was carried out, and begins the next piece: the next file first, for groups may soon wait for it. `again`: also what
    /// the disk was too full for the last time.
    ///
    /// # Errors
    /// Final.
    pub fn turn(&self, driver: &mut LogDriver, again: bool) -> Result<(), LogError> {
        if let Ok(done) = self.done.try_recv() {
            self.end(driver, done)?;
        }
        if driver.writer.is_working() {
            return Ok(());
        }
        let full = driver.writer.room().full;
        let wants_spare = driver.writer.wants_spare() && (again || !full);
        let footer_first = full && driver.writer.wants_seal(again) && self.made_file.get();
        if wants_spare
            && !footer_first
            && let Some(work) = driver.writer.begin_spare()?
        {
            self.made_file.set(true);
            // Meanwhile the file counts on neither side.
            self.shared.lock().making = true;
            return self.begin(work);
        }
        let adopt = self.shared.lock().adopt.take();
        if let Some(finished) = adopt {
            let work = driver.writer.begin_name(*finished)?;
            return self.begin(work);
        }
        if driver.writer.wants_seal(again)
            && let Some(work) = driver.writer.begin_seal()?
        {
            self.made_file.set(false);
            return self.begin(work);
        }
        Ok(())
    }

    fn begin(&self, work: FileWork) -> Result<(), LogError> {
        self.work.send(work).map_err(|_| gone())
    }

    /// Waits for the piece that is under way, if there is one.
    ///
    /// # Errors
    /// Final.
    pub fn wait(&self, driver: &mut LogDriver) -> Result<(), LogError> {
        if !driver.writer.is_working() {
            return Ok(());
        }
        let done = self.done.recv().map_err(|_| gone())?;
        self.end(driver, done)
    }

    fn end(&self, driver: &mut LogDriver, done: FileWorkDone) -> Result<(), LogError> {
        let sealed = match driver.writer.end(done)? {
            FileWorkEnd::Room => {
                let room = driver.writer.room();
                self.shared.feed(Event::RoomChanged(room));
                self.shared.lock().making = false;
                return Ok(());
            }
            FileWorkEnd::Sealed(sealed) => sealed,
            FileWorkEnd::Named(sealed) => {
                // The index takes the places before the sources may be removed.
                let named = sealed.is_some();
                self.announce(sealed);
                self.shared.lock().adopted = Some(named);
                self.shared.reclaim_wake.notify_one();
                return Ok(());
            }
        };
        self.announce(sealed);
        Ok(())
    }

    fn announce(&self, sealed: Option<Box<crate::log::SealedFile>>) {
        if let Some(sealed) = sealed {
            self.shared.feed_quietly(Event::FileSealed(sealed));
        }
    }
}

fn run(shared: &Shared, work: &Receiver<FileWork>, done: &Sender<FileWorkDone>) {
    for piece in work {
        if done.send(piece.run()).is_err() {
            return;
        }
        shared.lock().file_done = true;
        shared.wake.notify_one();
    }
}

/// Only after a panic there.
fn gone() -> LogError {
    LogError::Disk(DiskError {
        kind: DiskErrorKind::Io,
        operation: "work on log files",
        name: String::new(),
        why: "its thread is gone".to_owned(),
    })
}
