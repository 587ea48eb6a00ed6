//! Group commit: what waits in the queue becomes one redb transaction, written by one thread of the blocking pool at a time.
//!
//! The blocking pool and not a thread of our own: it needs no shutdown, and tokio's paused clock waits for it in tests.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::engine::{self, Engine, Snapshot};
use super::rows::RowError;
use super::store::Inner;
use crate::basis::apply;
use crate::basis::history::Change;
use crate::store::{LeaseId, MetadataError, Revision, Txn, TxnOutcome};

/// Transactions that wait at most; more callers wait for a place.
pub(super) const QUEUE_TXNS_MAX: usize = 256;
/// Transactions in one redb commit at most.
const GROUP_TXNS_MAX: usize = 64;

/// An answer to a caller.
pub(super) type Answer = Result<TxnOutcome, MetadataError>;

/// What the writer is asked for.
pub(super) enum Work {
    /// Apply a transaction.
    Txn(Txn),
    /// End the leases that are due.
    Expire,
    /// A read failed on the file as opened for the given time; open it anew.
    Reopen(u64),
}

/// A caller that waits.
pub(super) struct Job {
    /// What for.
    pub(super) work: Work,
    /// The caller's time.
    pub(super) now: Instant,
    /// Where to answer.
    pub(super) reply: oneshot::Sender<Answer>,
    /// Its place in the queue.
    pub(super) _place: OwnedSemaphorePermit,
}

/// Callers that wait, and whether a writer is at work.
#[derive(Default)]
pub(super) struct Queue {
    /// In order.
    pub(super) jobs: VecDeque<Job>,
    /// A writer will look again before it goes.
    pub(super) writing: bool,
}

/// What a group would change.
struct Staged {
    answers: Vec<Answer>,
    changes: Vec<Change>,
    revision: Revision,
    ended: Vec<LeaseId>,
}

/// One turn at writing. Its end, however it comes, lets the next writer start.
pub(super) struct Turn {
    inner: Arc<Inner>,
    over: bool,
}

impl Turn {
    /// A turn for which `writing` was just set.
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, over: false }
    }

    /// Writes until nothing waits. Blocks.
    pub(super) fn run(mut self) {
        let inner = Arc::clone(&self.inner);
        let mut engine = inner.engine.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(jobs) = self.take() {
            inner.write_group(&mut engine, jobs);
        }
    }

    fn take(&mut self) -> Option<Vec<Job>> {
        let mut queue = self.inner.queue();
        if queue.jobs.is_empty() {
            queue.writing = false;
            self.over = true;
            return None;
        }
        let count = queue.jobs.len().min(GROUP_TXNS_MAX);
        Some(queue.jobs.drain(..count).collect())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // The runtime went away, or a broken invariant: then the metadata task ends the process (ARCHITECTURE D16).
        self.inner.queue().writing = false;
        if std::thread::panicking() {
            self.inner.fail("the metadata writer panicked".to_owned());
        }
    }
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues work and waits for its answer. Dropped before it has a place: nothing happened; later: unknown.
    pub(super) async fn submit(self: &Arc<Self>, work: Work) -> Answer {
        let place = Arc::clone(&self.places);
        let unavailable = |_| MetadataError::Unavailable {
            why: "the store is closed".to_owned(),
        };
        let place = place.acquire_owned().await.map_err(unavailable)?;
        let (reply, answer) = oneshot::channel();
        let job = Job {
            work,
            now: Instant::now(),
            reply,
            _place: place,
        };
        let first = {
            let mut queue = self.queue();
            queue.jobs.push_back(job);
            !mem::replace(&mut queue.writing, true)
        };
        if first {
            let turn = Turn::new(Arc::clone(self));
            tokio::task::spawn_blocking(move || turn.run());
        }
        answer.await.unwrap_or_else(|_| {
            Err(MetadataError::OutcomeUnknown {
                why: "the metadata writer ended without an answer".to_owned(),
            })
        })
    }

    fn write_group(&self, engine: &mut Engine, jobs: Vec<Job>) {
        let now = jobs.iter().map(|job| job.now).max();
        let now = now.unwrap_or_else(Instant::now);
        let (works, replies): (Vec<_>, Vec<_>) =
            jobs.into_iter().map(|job| (job.work, job.reply)).unzip();
        let count = works.len();
        let answers = match self.write(engine, works, now) {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); count],
        };
        for (reply, answer) in replies.into_iter().zip(answers) {
            // A caller that went away does not want it.
            let _ = reply.send(answer);
        }
    }

    fn write(
        &self,
        engine: &mut Engine,
        works: Vec<Work>,
        now: Instant,
    ) -> Result<Vec<Answer>, MetadataError> {
        let (base, generation) = self.seen(|view| (view.snapshot.revision, view.generation))?;
        if works
            .iter()
            .any(|work| matches!(work, Work::Reopen(seen) if *seen == generation))
        {
            self.reopen(engine, base, None)?;
        }
        let txn = match engine.begin() {
            Ok(txn) => txn,
            Err(error) => return Err(self.nothing_written(engine, base, error)),
        };
        let staged = match self.stage(&txn, base, works, now) {
            Ok(staged) => staged,
            Err(error) => {
                drop(txn);
                return Err(self.nothing_written(engine, base, error));
            }
        };
        if staged.changes.is_empty() && staged.revision == base {
            drop(txn);
            self.forget(&staged.ended);
            return Ok(staged.answers);
        }
        let committed = engine::finish(txn, staged.revision).and_then(|()| engine.snapshot());
        match committed {
            Ok(snapshot) => {
                let answers = self.publish(staged, snapshot);
                engine.refill_reserve();
                Ok(answers)
            }
            Err(error) => {
                tracing::error!(?error, "metadata commit");
                self.reopen(engine, base, Some(staged))
            }
        }
    }

    /// Applies the group to the open transaction; nothing is durable yet.
    fn stage(
        &self,
        txn: &redb::WriteTransaction,
        base: Revision,
        works: Vec<Work>,
        now: Instant,
    ) -> Result<Staged, RowError> {
        let mut tables = engine::tables(txn)?;
        let mut staged = Staged {
            answers: Vec::with_capacity(works.len()),
            changes: Vec::new(),
            revision: base,
            ended: Vec::new(),
        };
        let due = self.view().leases.end_due(now);
        for (lease, keys) in due {
            let next = Revision(staged.revision.0 + 1);
            let gone = apply::remove(&mut tables, keys, next)?;
            if !gone.is_empty() {
                staged.revision = next;
                staged.changes.extend(gone);
            }
            staged.ended.push(lease);
        }
        for work in works {
            let Work::Txn(txn) = work else {
                let revision = staged.revision;
                staged.answers.push(Ok(TxnOutcome::Committed { revision }));
                continue;
            };
            let alive = |lease| self.view().leases.alive(lease, now);
            match apply::apply(&mut tables, txn, staged.revision, alive) {
                Ok(applied) => {
                    staged.revision = applied.revision;
                    staged.changes.extend(applied.changes);
                    staged.answers.push(applied.answer);
                }
                // Only this one read the damaged row, and it wrote nothing.
                Err(RowError::Damaged(why)) => {
                    staged.answers.push(Err(MetadataError::Corrupt { why }));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(staged)
    }

    fn publish(&self, staged: Staged, snapshot: Snapshot) -> Vec<Answer> {
        let mut view = self.view();
        for change in &staged.changes {
            view.leases.observe(change);
        }
        for lease in &staged.ended {
            view.leases.forget(*lease);
        }
        view.history.extend(staged.changes);
        view.snapshot = Arc::new(snapshot);
        drop(view);
        self.wake();
        staged.answers
    }

    fn forget(&self, leases: &[LeaseId]) {
        let mut view = self.view();
        for lease in leases {
            view.leases.forget(*lease);
        }
    }

    /// An error before the commit: certainly nothing was written. The handle may be poisoned, so the file is opened anew.
    fn nothing_written(
        &self,
        engine: &mut Engine,
        base: Revision,
        error: RowError,
    ) -> MetadataError {
        let answer = match error {
            RowError::Damaged(why) => return MetadataError::Corrupt { why },
            RowError::Redb(redb::Error::Corrupted(why)) => MetadataError::Corrupt { why },
            RowError::Redb(error) => MetadataError::Unavailable {
                why: error.to_string(),
            },
        };
        tracing::error!(%answer, "metadata write");
        self.reopen(engine, base, None).err().unwrap_or(answer)
    }

    /// Opens the file anew and learns from its revision what became of the group: all of it or nothing, and durably so.
    fn reopen(
        &self,
        engine: &mut Engine,
        base: Revision,
        caught: Option<Staged>,
    ) -> Result<Vec<Answer>, MetadataError> {
        let unknown = |why: String| {
            self.fail(why.clone());
            MetadataError::OutcomeUnknown { why }
        };
        let snapshot = engine
            .reopen()
            .map_err(|error| unknown(format!("the metadata file cannot be reopened: {error:?}")))?;
        self.view().generation += 1;
        match caught {
            Some(staged) if snapshot.revision == staged.revision => {
                Ok(self.publish(staged, snapshot))
            }
            caught if snapshot.revision == base => {
                self.view().snapshot = Arc::new(snapshot);
                match caught {
                    Some(_) => Err(MetadataError::Unavailable {
                        why: "the disk failed; the transaction was not written".to_owned(),
                    }),
                    None => Ok(Vec::new()),
                }
            }
            _ => Err(unknown(format!(
                "the reopened metadata file shows revision {}, expected {}",
                snapshot.revision.0, base.0
            ))),
        }
    }
}
