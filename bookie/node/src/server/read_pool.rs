//! The read threads: a bounded queue per class, recovery before tail before catch-up (ARCHITECTURE D5).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

use hulse_proto::bookie::{
    Address, BookieError, EntryHead, Inventory, ReadClass, ReadRequest, RecoveryReadAnswer,
    StoredEntry,
};
use hulse_proto::entry::EntryDigest;
use hulse_proto::id::{EntryId, LedgerId};
use tokio::sync::oneshot;

use super::read_entries::{
    Found, digest_of, digest_of_run, heads, read_entry, read_heads, read_run,
};
use super::shared::Shared;
use crate::core::{Event, Part};
use crate::index::{Locator, ReadFault, Wanted};

/// Reads that may wait per class; more are answered BUSY.
const QUEUE_MAX: usize = 1024;

/// A read and where its answer goes.
pub(super) enum ReadJob {
    Recovery {
        reply: oneshot::Sender<Result<RecoveryReadAnswer, BookieError>>,
        ledger: LedgerId,
        wanted: Wanted,
    },
    /// Is what is held the same as what came?
    Compare {
        reply: oneshot::Sender<Result<(), BookieError>>,
        ledger: LedgerId,
        wanted: Wanted,
        offered: EntryDigest,
    },
    Entries {
        reply: oneshot::Sender<Result<Vec<StoredEntry>, BookieError>>,
        request: ReadRequest,
        wanted: Wanted,
    },
    Heads {
        reply: oneshot::Sender<Result<Vec<EntryHead>, BookieError>>,
        request: ReadRequest,
        wanted: Wanted,
    },
    /// What is held gets its digests.
    Digests {
        reply: oneshot::Sender<Result<Inventory, BookieError>>,
        to: Address,
        held: Inventory,
    },
}

#[derive(Default)]
struct Queues {
    recovery: VecDeque<ReadJob>,
    tail: VecDeque<ReadJob>,
    catch_up: VecDeque<ReadJob>,
    stopping: bool,
}

/// The pool.
pub(super) struct ReadPool {
    locator: Locator,
    inline: bool,
    queues: Mutex<Queues>,
    wake: Condvar,
}

impl ReadPool {
    pub fn new(locator: Locator, inline: bool) -> Self {
        Self {
            locator,
            inline,
            queues: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// Finds entries and the open files.
    pub fn locator(&self) -> &Locator {
        &self.locator
    }

    /// Queues a read, or does it at once in inline mode.
    pub fn push(&self, shared: &Arc<Shared>, job: ReadJob) {
        if self.inline {
            job.run(shared, &self.locator);
            return;
        }
        let mut queues = self.queues.lock().expect("nothing panics under this lock");
        if queues.stopping {
            drop(queues);
            let why = "the bookie stopped".to_owned();
            job.refuse(&BookieError::NoAnswer { why });
            return;
        }
        let queue = queues.of(job.class());
        if queue.len() >= QUEUE_MAX {
            drop(queues);
            job.refuse(&BookieError::Busy { queued_bytes: 0 });
            return;
        }
        queue.push_back(job);
        drop(queues);
        self.wake.notify_one();
    }

    /// Runs reads until the pool stops.
    pub fn work(&self, shared: &Arc<Shared>) {
        loop {
            let mut queues = self.queues.lock().expect("nothing panics under this lock");
            let job = loop {
                if let Some(job) = queues.pop() {
                    break job;
                }
                if queues.stopping {
                    return;
                }
                queues = self
                    .wake
                    .wait(queues)
                    .expect("nothing panics under this lock");
            };
            drop(queues);
            job.run(shared, &self.locator);
        }
    }

    /// Ends the threads once the queues are empty.
    pub fn stop(&self) {
        self.queues
            .lock()
            .expect("nothing panics under this lock")
            .stopping = true;
        self.wake.notify_all();
    }
}

impl Queues {
    fn of(&mut self, class: ReadClass) -> &mut VecDeque<ReadJob> {
        match class {
            ReadClass::Recovery => &mut self.recovery,
            ReadClass::Tail => &mut self.tail,
            ReadClass::CatchUp => &mut self.catch_up,
        }
    }

    fn pop(&mut self) -> Option<ReadJob> {
        let first = self.recovery.pop_front().or_else(|| self.tail.pop_front());
        first.or_else(|| self.catch_up.pop_front())
    }
}

impl ReadJob {
    fn class(&self) -> ReadClass {
        match self {
            Self::Recovery { .. } | Self::Compare { .. } => ReadClass::Recovery,
            Self::Entries { request, .. } | Self::Heads { request, .. } => request.class,
            Self::Digests { .. } => ReadClass::CatchUp,
        }
    }

    fn refuse(self, error: &BookieError) {
        match self {
            Self::Recovery { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Compare { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Entries { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Heads { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Digests { reply, .. } => drop(reply.send(Err(error.clone()))),
        }
    }

    fn run(self, shared: &Arc<Shared>, locator: &Locator) {
        match self {
            Self::Recovery {
                reply,
                ledger,
                wanted,
            } => {
                let read = on_one(shared, ledger, wanted, |wanted| read_entry(locator, wanted));
                let _ = reply.send(read.map(RecoveryReadAnswer::Positive));
            }
            Self::Compare {
                reply,
                ledger,
                wanted,
                offered,
            } => {
                let entry = wanted.first;
                let held = on_one(shared, ledger, wanted, |wanted| digest_of(locator, wanted));
                // What cannot be read now is damaged, so that the next try is stored anew.
                let held = held.map_err(|_| BookieError::Busy { queued_bytes: 0 });
                let same = held.and_then(|held| same_bytes((ledger, entry), held, offered));
                shared.count_add(&same);
                let _ = reply.send(same);
            }
            Self::Entries {
                reply,
                request,
                wanted,
            } => {
                let (found, unread) = on_run(shared, &request, Part::Whole, wanted, |wanted| {
                    read_run(locator, wanted)
                });
                let bytes = found.iter().map(|e| e.entry.header().entry_len() as u64);
                shared.metrics.read_bytes.inc_by(bytes.sum());
                let _ = reply.send(finish(shared, found, unread));
            }
            Self::Heads {
                reply,
                request,
                wanted,
            } => {
                let head = heads();
                let (found, unread) = on_run(shared, &request, head, wanted, |wanted| {
                    read_heads(locator, wanted)
                });
                let _ = reply.send(finish(shared, found, unread));
            }
            Self::Digests { reply, to, held } => {
                let _ = reply.send(Ok(with_digests(shared, locator, to, held)));
            }
        }
    }
}

fn with_digests(
    shared: &Arc<Shared>,
    locator: &Locator,
    to: Address,
    mut held: Inventory,
) -> Inventory {
    for found in &mut held.ledgers {
        let to = Address {
            ledger: found.ledger,
            ..to
        };
        for run in &mut found.runs {
            let want = |first| {
                shared
                    .lock()
                    .core
                    .want(&slots_of(to, first, run.end), Part::Slot)
                    .ok()
            };
            run.digest = digest_of_run(locator, run, want);
        }
    }
    held
}

/// A request for the places of entries, whatever their size.
pub fn slots_of(to: Address, first: EntryId, end: EntryId) -> ReadRequest {
    ReadRequest {
        to,
        first,
        end,
        max_bytes: 0,
        class: ReadClass::CatchUp,
    }
}

/// An entry that could not be had.
struct Unread {
    ledger: LedgerId,
    entry: EntryId,
    /// Where it was looked for.
    file: Option<u32>,
    fault: ReadFault,
}

impl Unread {
    fn of(ledger: LedgerId, wanted: &Wanted, (entry, fault): (EntryId, ReadFault)) -> Self {
        Self {
            ledger,
            entry,
            file: wanted.file_of(entry),
            fault,
        }
    }

    /// Reports damage; the error to answer.
    fn report(self, shared: &Arc<Shared>) -> BookieError {
        let (ledger, entry, fault) = (self.ledger, self.entry, self.fault);
        let Some(file) = self.file.filter(|_| fault.is_damage()) else {
            return BookieError::Busy { queued_bytes: 0 };
        };
        tracing::warn!(%ledger, %entry, file, ?fault, "stored entry is damaged");
        shared.metrics.damage.inc();
        shared.feed(Event::EntryDamaged {
            ledger,
            entry,
            file,
        });
        BookieError::Damaged { ledger, entry }
    }
}

/// A file that went away between look-up and read is no fault: its entries were moved before. They are looked up anew, once
/// (storage.md G11).
fn on_one<T>(
    shared: &Arc<Shared>,
    ledger: LedgerId,
    mut wanted: Wanted,
    read: impl Fn(&Wanted) -> Result<T, ReadFault>,
) -> Result<T, BookieError> {
    let entry = wanted.first;
    let mut result = read(&wanted);
    if let Err(ReadFault::Gone) = result {
        let again = shared.lock().core.want_again(ledger, entry);
        if let Some(again) = again {
            result = read(&again);
            wanted = again;
        }
    }
    result.map_err(|fault| Unread::of(ledger, &wanted, (entry, fault)).report(shared))
}

fn on_run<T>(
    shared: &Arc<Shared>,
    request: &ReadRequest,
    part: Part,
    mut wanted: Wanted,
    read: impl Fn(&Wanted) -> Found<T>,
) -> (Vec<T>, Option<Unread>) {
    let (mut found, mut fault) = read(&wanted);
    if let Some((_, ReadFault::Gone)) = fault
        && found.is_empty()
    {
        let again = shared.lock().core.want(request, part);
        if let Ok(again) = again {
            (found, fault) = read(&again);
            wanted = again;
        }
    }
    let ledger = request.to.ledger;
    (found, fault.map(|fault| Unread::of(ledger, &wanted, fault)))
}

/// A fault of the first entry is the answer; a later one just ends the run.
fn finish<T>(
    shared: &Arc<Shared>,
    found: Vec<T>,
    unread: Option<Unread>,
) -> Result<Vec<T>, BookieError> {
    if let Some(unread) = unread {
        let error = unread.report(shared);
        if found.is_empty() {
            return Err(error);
        }
    }
    shared.metrics.read_entries.inc_by(found.len() as u64);
    Ok(found)
}

/// A duplicate: the same bytes are stored; others are a bug of a writer, or changed on their way past every checksum, and somebody
/// must look (storage.md B7).
///
/// # Errors
/// [`BookieError::Conflict`].
pub fn same_bytes(
    (ledger, entry): (LedgerId, EntryId),
    held: EntryDigest,
    offered: EntryDigest,
) -> Result<(), BookieError> {
    if held == offered {
        return Ok(());
    }
    tracing::error!(%ledger, %entry, ?held, ?offered, "an entry came with other bytes than are held; nothing was overwritten");
    Err(BookieError::Conflict { ledger, entry })
}
