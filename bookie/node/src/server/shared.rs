//! The core under its lock, who waits for which ticket, and what is done with effects.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use hulse_proto::bookie::{BookieError, FenceAnswer, RecoveryReadAnswer};
use hulse_proto::entry::EntryDigest;
use hulse_proto::id::LedgerId;
use tokio::sync::{oneshot, watch};

use super::read_pool::{ReadJob, ReadPool};
use crate::core::{Answer, Effect, Event, NodeCore, Ticket};
use crate::disk::DiskLock;
use crate::index::Wanted;
use crate::log::FileKind;
use crate::log::compacted::FinishedFile;
use crate::log::driver::LogDriver;
use crate::log::recovery::LogError;
use crate::metrics::NodeMetrics;

/// Where an answer goes.
pub(super) enum Reply {
    Add(oneshot::Sender<Result<(), BookieError>>),
    Fence(oneshot::Sender<Result<FenceAnswer, BookieError>>),
    RecoveryRead(oneshot::Sender<Result<RecoveryReadAnswer, BookieError>>),
    Delete(oneshot::Sender<Result<(), BookieError>>),
}

/// The locked part.
pub(super) struct Inner {
    pub core: NodeCore,
    replies: HashMap<Ticket, Reply>,
    next_ticket: u64,
    /// The log thread sleeps and must be woken.
    pub log_sleeps: bool,
    pub stopping: bool,
    /// Files whose removal is on record, and durable if every group is.
    pub recorded: Vec<(FileKind, u32)>,
    /// Files whose removal is durable on record, for the reclaim thread.
    pub unlink: Vec<(FileKind, u32)>,
    /// A compacted file that the log thread is to name, and whether it had room for it.
    pub adopt: Option<Box<FinishedFile>>,
    pub adopted: Option<bool>,
    /// A log file is being made.
    pub making: bool,
    /// A piece of work on a whole file was carried out, and the log thread has not looked since.
    pub file_done: bool,
}

/// What one side of the node knows of the other.
pub(super) struct Shared {
    inner: Mutex<Inner>,
    pub wake: Condvar,
    /// Wakes the reclaim thread.
    pub reclaim_wake: Condvar,
    pub reads: ReadPool,
    pub metrics: NodeMetrics,
    /// In inline mode the calls drive the log themselves.
    pub inline: Option<Mutex<LogDriver>>,
    pub started: tokio::time::Instant,
    pub failed: watch::Sender<Option<String>>,
    pub verify: Box<dyn Fn(LedgerId) + Send + Sync>,
    /// Held as long as any thread may touch the disk.
    disk_lock: Mutex<Option<Box<dyn DiskLock>>>,
}

/// Effects whose reply was found, to be carried out without the lock.
enum Todo {
    Answer(Reply, Answer),
    Verify(LedgerId),
    Read(Reply, LedgerId, Wanted),
    Compare(Reply, LedgerId, Wanted, EntryDigest),
}

impl Shared {
    pub fn new(core: NodeCore, seams: SharedSeams) -> Self {
        Self {
            inner: Mutex::new(Inner {
                core,
                replies: HashMap::new(),
                next_ticket: 0,
                log_sleeps: false,
                stopping: false,
                recorded: Vec::new(),
                unlink: Vec::new(),
                adopt: None,
                adopted: None,
                making: false,
                file_done: false,
            }),
            wake: Condvar::new(),
            reclaim_wake: Condvar::new(),
            reads: seams.reads,
            metrics: seams.metrics,
            inline: seams.inline.map(Mutex::new),
            started: tokio::time::Instant::now(),
            failed: watch::Sender::new(None),
            verify: seams.verify,
            disk_lock: Mutex::new(Some(seams.lock)),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner
            .lock()
            .expect("a panic under the lock is the core's, and aborts the process")
    }

    /// Since the node's start.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Judges a request; it takes its place in the order before this returns.
    pub fn submit(self: &Arc<Self>, reply: Reply, event: impl FnOnce(Ticket) -> Event) {
        let mut inner = self.lock();
        let ticket = Ticket(inner.next_ticket);
        inner.next_ticket += 1;
        inner.replies.insert(ticket, reply);
        self.run(inner, event(ticket));
    }

    /// Feeds an event that nobody waits for.
    pub fn feed(self: &Arc<Self>, event: Event) {
        self.run(self.lock(), event);
    }

    fn run(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>, event: Event) {
        let mut effects = Vec::new();
        inner.core.on_event(event, &mut effects);
        let todo = inner.resolve(effects);
        let wake = inner.log_sleeps && inner.core.group_ready();
        if wake {
            inner.log_sleeps = false;
        }
        self.metrics
            .queue_bytes
            .set(inner.core.queued_bytes() as i64);
        drop(inner);
        if wake {
            self.wake.notify_one();
        }
        self.carry_out(todo);
        self.drive_inline();
    }

    /// Takes the lock's part of some effects' delivery, then the rest.
    pub fn deliver(self: &Arc<Self>, effects: Vec<Effect>) {
        if effects.is_empty() {
            return;
        }
        let todo = self.lock().resolve(effects);
        self.carry_out(todo);
    }

    fn carry_out(self: &Arc<Self>, todo: Vec<Todo>) {
        for item in todo {
            match item {
                Todo::Answer(reply, answer) => self.answer(reply, answer),
                Todo::Verify(ledger) => (self.verify)(ledger),
                Todo::Read(Reply::RecoveryRead(reply), ledger, wanted) => {
                    let job = ReadJob::Recovery {
                        reply,
                        ledger,
                        wanted,
                    };
                    self.reads.push(self, job);
                }
                Todo::Compare(Reply::Add(reply), ledger, wanted, offered) => {
                    let job = ReadJob::Compare {
                        reply,
                        ledger,
                        wanted,
                        offered,
                    };
                    self.reads.push(self, job);
                }
                Todo::Read(..) | Todo::Compare(..) => {
                    unreachable!("the core answers in the kind of the request")
                }
            }
        }
    }

    /// Whoever dropped the future does not want the answer; the effect stands.
    fn answer(&self, reply: Reply, answer: Answer) {
        match (reply, answer) {
            (Reply::Add(to), Answer::Add(result)) => {
                self.count_add(&result);
                let _ = to.send(result);
            }
            (Reply::Fence(to), Answer::Fence(result)) => {
                let _ = to.send(result);
            }
            (Reply::RecoveryRead(to), Answer::RecoveryRead(result)) => {
                let _ = to.send(result);
            }
            (Reply::Delete(to), Answer::Delete(result)) => {
                let _ = to.send(result);
            }
            _ => unreachable!("the core answers in the kind of the request"),
        }
    }

    pub fn count_add(&self, result: &Result<(), BookieError>) {
        match result {
            Ok(()) => self.metrics.adds.inc(),
            Err(_) => self.metrics.add_failures.inc(),
        };
        if let Err(BookieError::Conflict { .. }) = result {
            self.metrics.conflicts.inc();
        }
    }

    /// In inline mode: writes and stores everything that waits.
    fn drive_inline(self: &Arc<Self>) {
        let Some(driver) = &self.inline else {
            return;
        };
        // Someone up the stack, or another caller, is driving already and will see the new group.
        while let Ok(mut driver) = driver.try_lock() {
            if !self.step(&mut driver, |_| Ok(())) || self.failed.borrow().is_some() {
                return;
            }
            if let Err(error) = self.seal(&mut driver) {
                self.log_failed(&error.to_string());
                return;
            }
        }
    }

    /// One group through the log; `false` when none waits. `make_way` is called if the group needs a file that is being made.
    pub fn step(
        self: &Arc<Self>,
        driver: &mut LogDriver,
        make_way: impl FnOnce(&mut LogDriver) -> Result<(), LogError>,
    ) -> bool {
        let mut effects = Vec::new();
        let group = self.lock().core.take_group(self.now(), &mut effects);
        self.deliver(effects);
        let Some(group) = group else {
            return false;
        };
        let begun = tokio::time::Instant::now();
        let bytes = group.bytes.bytes();
        let snapshot = || self.lock().core.state().snapshot();
        let way = match driver.writer.rolls_for(bytes) && !driver.writer.has_spare() {
            true => make_way(driver),
            false => Ok(()),
        };
        let result = way
            .and_then(|()| driver.write(group, snapshot))
            .and_then(|buffer| Ok((buffer, driver.store()?)));
        self.metrics
            .sync_seconds
            .observe(begun.elapsed().as_secs_f64());
        self.metrics.group_bytes.observe(bytes as f64);
        self.metrics.log_bytes.inc_by(bytes as u64);
        let lacks = driver.writer.lacks_snapshot();
        self.metrics.snapshot_missing.set(i64::from(lacks));
        match result {
            Ok((buffer, event)) => {
                let room = driver.writer.room();
                let mut effects = Vec::new();
                let mut inner = self.lock();
                inner.core.recycle(buffer);
                inner.core.on_event(Event::RoomChanged(room), &mut effects);
                if let Some(event) = event {
                    inner.core.on_event(event, &mut effects);
                }
                let todo = inner.resolve(effects);
                drop(inner);
                self.carry_out(todo);
            }
            Err(error) => {
                self.log_failed(&error.to_string());
                return true;
            }
        }
        true
    }

    /// In inline mode: what is full gets its footer, and the index lets go of its places.
    fn seal(&self, driver: &mut LogDriver) -> Result<(), LogError> {
        while driver.writer.wants_seal(false) {
            let Some(sealed) = driver.writer.seal()? else {
                break;
            };
            self.feed_quietly(Event::FileSealed(Box::new(sealed)));
        }
        Ok(())
    }

    /// An event without effects, from within the log's work.
    pub fn feed_quietly(&self, event: Event) {
        let mut effects = Vec::new();
        self.lock().core.on_event(event, &mut effects);
        debug_assert!(effects.is_empty(), "a sealed file answers nobody");
    }

    /// After a clean stop nothing more is taken.
    pub fn log_stopped(self: &Arc<Self>) {
        let why = "the bookie was stopped".to_owned();
        self.feed(Event::LogFailed { why });
    }

    /// After a clean stop another process may have the directory.
    pub fn unlock_disk(&self) {
        *self
            .disk_lock
            .lock()
            .expect("nothing panics under this lock") = None;
    }

    /// The node is dropped without a clean stop: its threads end.
    pub fn abandon(&self) {
        self.lock().stopping = true;
        self.wake.notify_all();
        self.reclaim_wake.notify_all();
        self.reads.stop();
    }

    /// E1: nothing is confirmed any more; whoever watches ends the process.
    pub fn log_failed(self: &Arc<Self>, why: &str) {
        tracing::error!(why, "bookie's log failed; nothing is confirmed any more");
        let mut effects = Vec::new();
        let mut inner = self.lock();
        inner.core.on_event(
            Event::LogFailed {
                why: why.to_owned(),
            },
            &mut effects,
        );
        let todo = inner.resolve(effects);
        drop(inner);
        self.failed.send_replace(Some(why.to_owned()));
        self.carry_out(todo);
    }
}

/// What [`Shared`] is made from besides the core.
pub(super) struct SharedSeams {
    pub reads: ReadPool,
    pub metrics: NodeMetrics,
    pub inline: Option<LogDriver>,
    pub verify: Box<dyn Fn(LedgerId) + Send + Sync>,
    pub lock: Box<dyn DiskLock>,
}

impl Inner {
    fn resolve(&mut self, effects: Vec<Effect>) -> Vec<Todo> {
        let mut todo = Vec::with_capacity(effects.len());
        for effect in effects {
            match effect {
                Effect::Answer { ticket, answer } => {
                    if let Some(reply) = self.replies.remove(&ticket) {
                        todo.push(Todo::Answer(reply, answer));
                    }
                }
                Effect::Verify { ledger } => todo.push(Todo::Verify(ledger)),
                Effect::Unlink { files } => self.recorded.extend(files),
                Effect::ReadEntry {
                    ticket,
                    ledger,
                    wanted,
                } => {
                    if let Some(reply) = self.replies.remove(&ticket) {
                        todo.push(Todo::Read(reply, ledger, wanted));
                    }
                }
                Effect::CompareEntry {
                    ticket,
                    ledger,
                    wanted,
                    offered,
                } => {
                    if let Some(reply) = self.replies.remove(&ticket) {
                        todo.push(Todo::Compare(reply, ledger, wanted, offered));
                    }
                }
            }
        }
        todo
    }
}
