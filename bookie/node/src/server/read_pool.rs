//! The read threads: a bounded queue per class, recovery before tail before catch-up (ARCHITECTURE D5).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

use hulse_proto::bookie::{BookieError, EntryHead, ReadClass, RecoveryReadAnswer, StoredEntry};
use hulse_proto::id::{EntryId, LedgerId};
use tokio::sync::oneshot;

use super::read_entries::{ReadFault, read_entry, read_heads, read_run};
use super::shared::Shared;
use crate::core::{Event, Located};
use crate::log::files::FileTable;

/// Reads that may wait per class; more are answered BUSY.
const QUEUE_MAX: usize = 1024;

/// A read and where its answer goes.
pub(super) enum ReadJob {
    Recovery {
        reply: oneshot::Sender<Result<RecoveryReadAnswer, BookieError>>,
        ledger: LedgerId,
        located: Located,
    },
    Entries {
        reply: oneshot::Sender<Result<Vec<StoredEntry>, BookieError>>,
        class: ReadClass,
        ledger: LedgerId,
        wanted: Vec<Located>,
    },
    Heads {
        reply: oneshot::Sender<Result<Vec<EntryHead>, BookieError>>,
        class: ReadClass,
        ledger: LedgerId,
        wanted: Vec<Located>,
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
    files: FileTable,
    inline: bool,
    queues: Mutex<Queues>,
    wake: Condvar,
}

impl ReadPool {
    pub fn new(files: FileTable, inline: bool) -> Self {
        Self {
            files,
            inline,
            queues: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// Queues a read, or does it at once in inline mode.
    pub fn push(&self, shared: &Arc<Shared>, job: ReadJob) {
        if self.inline {
            job.run(shared, &self.files);
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
            job.run(shared, &self.files);
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
            Self::Recovery { .. } => ReadClass::Recovery,
            Self::Entries { class, .. } | Self::Heads { class, .. } => *class,
        }
    }

    fn refuse(self, error: &BookieError) {
        match self {
            Self::Recovery { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Entries { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Heads { reply, .. } => drop(reply.send(Err(error.clone()))),
        }
    }

    fn run(self, shared: &Arc<Shared>, files: &FileTable) {
        match self {
            Self::Recovery {
                reply,
                ledger,
                located,
            } => {
                let read = read_entry(files, &located);
                let answer = read.map(RecoveryReadAnswer::Positive).map_err(|fault| {
                    report(shared, ledger, located.entry, &fault);
                    BookieError::Damaged {
                        ledger,
                        entry: located.entry,
                    }
                });
                let _ = reply.send(answer);
            }
            Self::Entries {
                reply,
                ledger,
                wanted,
                ..
            } => {
                let (found, fault) = read_run(files, &wanted);
                let bytes = found
                    .iter()
                    .map(|e| e.entry.header().entry_len() as u64)
                    .sum();
                shared.metrics.read_bytes.inc_by(bytes);
                let _ = reply.send(finish(shared, ledger, found, fault));
            }
            Self::Heads {
                reply,
                ledger,
                wanted,
                ..
            } => {
                let (found, fault) = read_heads(files, &wanted);
                let _ = reply.send(finish(shared, ledger, found, fault));
            }
        }
    }
}

/// A fault of the first entry is the answer; a later one just ends the run.
fn finish<T>(
    shared: &Arc<Shared>,
    ledger: LedgerId,
    found: Vec<T>,
    fault: Option<(EntryId, ReadFault)>,
) -> Result<Vec<T>, BookieError> {
    if let Some((entry, fault)) = fault {
        report(shared, ledger, entry, &fault);
        if found.is_empty() {
            return Err(BookieError::Damaged { ledger, entry });
        }
    }
    shared.metrics.read_entries.inc_by(found.len() as u64);
    Ok(found)
}

fn report(shared: &Arc<Shared>, ledger: LedgerId, entry: EntryId, fault: &ReadFault) {
    tracing::warn!(%ledger, %entry, ?fault, "stored entry is damaged");
    shared.metrics.damage.inc();
    shared.feed(Event::EntryDamaged { ledger, entry });
}
