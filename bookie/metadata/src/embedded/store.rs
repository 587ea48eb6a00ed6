//! [`EmbeddedStore`]: the face, and what readers see.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::backend::FileMedium;
use super::engine::{self, Beside, Engine, Opened, Snapshot};
use super::error::OpenError;
use super::files::{self, Lock, Reserve};
use super::group::{QUEUE_TXNS_MAX, Queue, Work};
use super::rows::RowError;
use crate::basis::history::History;
use crate::basis::leases::Leases;
use crate::basis::watch::{Source, stream};
use crate::basis::{check, page};
use crate::store::{
    BoxFuture, LeaseId, ListRequest, MetadataError, MetadataStore, Page, Revision, Txn, TxnOutcome,
    Versioned, WatchEvent, WatchStream,
};

/// A read is tried once more after the file was opened anew.
const READ_TRIES: u32 = 2;

/// How an [`EmbeddedStore`] behaves.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Memory for pages of the file, bytes.
    pub cache_bytes: usize,
    /// Room kept for a repair on a full disk, bytes; 0: none.
    pub reserve_bytes: u64,
    /// Openings tried after an I/O error before `abort`; the pauses between them double from 20 ms.
    pub reopen_tries: u32,
    /// Ends the process when the file cannot be reopened or the writer broke. If it returns, the store answers
    /// `Unavailable` from then on.
    pub abort: fn(),
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 16 << 20,
            reserve_bytes: 1 << 20,
            reopen_tries: 5,
            abort: || std::process::abort(),
        }
    }
}

/// A metadata store in one file. Clones share it.
///
/// [`EmbeddedStore::close`] closes the file at a known moment; without it, that happens when the last clone, the last watch
/// and the writer, which may still tidy up after its last answer, are gone.
#[derive(Clone)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
}

// Fields drop in order: the snapshot before the file it reads.
pub(super) struct Inner {
    view: Mutex<View>,
    signal: watch::Sender<u64>,
    pub(super) queue: Mutex<Queue>,
    pub(super) places: Arc<Semaphore>,
    pub(super) engine: Mutex<Engine>,
    abort: fn(),
}

/// What readers see; replaced whole after each commit.
pub(super) struct View {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) leases: Leases,
    pub(super) history: History,
    /// Grows when the file is opened anew.
    pub(super) generation: u64,
    /// Why it ended, should the abort hook return.
    failed: Option<String>,
}

impl Inner {
    fn new(opened: Opened, abort: fn()) -> Self {
        let mut history = History::new(opened.floor);
        history.extend(opened.changes);
        let view = View {
            snapshot: Arc::new(opened.snapshot),
            leases: Leases::new((opened.boot << 32) | 1),
            history,
            generation: 0,
            failed: None,
        };
        Self {
            view: Mutex::new(view),
            signal: watch::Sender::new(0),
            queue: Mutex::new(Queue::default()),
            places: Arc::new(Semaphore::new(QUEUE_TXNS_MAX)),
            engine: Mutex::new(opened.engine),
            abort,
        }
    }

    pub(super) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the view unless the store has failed.
    pub(super) fn seen<T>(&self, look: impl FnOnce(&mut View) -> T) -> Result<T, MetadataError> {
        let mut view = self.view();
        match &view.failed {
            Some(why) => Err(MetadataError::Unavailable { why: why.clone() }),
            None => Ok(look(&mut view)),
        }
    }

    pub(super) fn wake(&self) {
        self.signal.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Ends the process; if the hook returns, the store.
    pub(super) fn fail(&self, why: String) {
        tracing::error!(why, "the metadata store cannot go on");
        self.view().failed.get_or_insert(why);
        self.wake();
        (self.abort)();
    }

    async fn expire_due(self: &Arc<Self>) -> Result<(), MetadataError> {
        let now = Instant::now();
        if self.seen(|view| view.leases.any_due(now))? {
            self.submit(Work::Expire).await?;
        }
        Ok(())
    }

    /// Reads what `prepare` saw under the lock. Runs inline: pages are cached, and a miss is one read from the page cache.
    async fn read<P, T>(
        self: &Arc<Self>,
        prepare: impl Fn(&View) -> Result<P, MetadataError> + Send,
        read: impl Fn(&Snapshot, P) -> Result<T, RowError> + Send,
    ) -> Result<T, MetadataError> {
        let mut tries = 0;
        loop {
            self.expire_due().await?;
            let (prepared, snapshot, generation) = self.seen(|view| {
                let prepared = prepare(view);
                (prepared, Arc::clone(&view.snapshot), view.generation)
            })?;
            let error = match read(&snapshot, prepared?) {
                Ok(found) => return Ok(found),
                Err(RowError::Damaged(why) | RowError::Redb(redb::Error::Corrupted(why))) => {
                    return Err(MetadataError::Corrupt { why });
                }
                Err(RowError::Redb(error)) => error.to_string(),
            };
            drop(snapshot);
            tries += 1;
            if tries >= READ_TRIES {
                return Err(MetadataError::Unavailable { why: error });
            }
            self.submit(Work::Reopen(generation)).await?;
        }
    }
}

impl EmbeddedStore {
    /// Opens the file at `path`, or makes one there. Blocks for some milliseconds. Keys bound to leases of earlier boots
    /// are gone afterwards.
    ///
    /// # Errors
    /// [`OpenError`] says what, why and what to do; the facts are as they were.
    pub fn open(path: impl AsRef<Path>, options: EmbeddedOptions) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let lock = Lock::take(path)?;
        let empty = match std::fs::metadata(path) {
            Ok(found) if found.is_file() => found.len() == 0,
            Ok(_) => {
                return Err(OpenError::NotMetadata {
                    path: path.to_owned(),
                    why: "not a file".to_owned(),
                });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
            Err(error) => return Err(OpenError::io(path, "look at", error)),
        };
        if empty {
            files::make_new(path, |new| engine::format(new, &FileMedium(new.to_owned())))?;
        }
        let medium = Box::new(FileMedium(path.to_owned()));
        let beside = Beside {
            reserve: Some(Reserve::new(path, options.reserve_bytes)),
            lock: Some(lock),
        };
        let opened = Engine::open(path, medium, &options, beside)?;
        Ok(Self {
            inner: Arc::new(Inner::new(opened, options.abort)),
        })
    }

    /// Answers what is under way, closes the file and frees its lock, also when clones or watches are left; those get
    /// `Unavailable` from then on. Dropped before it returns, the store may be closed or open.
    pub async fn close(self) {
        let all = u32::try_from(QUEUE_TXNS_MAX).unwrap_or(u32::MAX);
        // All places: nobody waits in the queue. An error is impossible, as nothing closes the semaphore.
        let places = Arc::clone(&self.inner.places).acquire_many_owned(all).await;
        self.inner
            .view()
            .failed
            .get_or_insert_with(|| "the metadata store is closed".to_owned());
        let inner = Arc::clone(&self.inner);
        let closing = tokio::task::spawn_blocking(move || {
            let mut engine = inner.engine.lock().unwrap_or_else(PoisonError::into_inner);
            engine.close();
        });
        // An error means that the runtime ends, and with it the process or the last clone.
        let _ = closing.await;
        drop(places);
        self.inner.wake();
    }

    /// Opens what lies on a medium of a test.
    #[cfg(test)]
    pub(super) fn on_medium(
        medium: Box<dyn super::backend::Medium>,
        options: &EmbeddedOptions,
    ) -> Result<Self, OpenError> {
        let opened = Engine::open(Path::new("memory"), medium, options, Beside::default())?;
        Ok(Self {
            inner: Arc::new(Inner::new(opened, options.abort)),
        })
    }
}

impl Source for Inner {
    fn signal(&self) -> watch::Receiver<u64> {
        self.signal.subscribe()
    }

    fn events(
        &self,
        prefix: &str,
        after: Revision,
    ) -> Result<(Vec<WatchEvent>, Revision), MetadataError> {
        self.seen(|view| view.history.events(prefix, after))?
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.view().leases.next_deadline()
    }

    fn expire(self: &Arc<Self>) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(self.expire_due())
    }
}

impl MetadataStore for EmbeddedStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check::key(&key)?;
            let read = |snapshot: &Snapshot, ()| snapshot.get(&key);
            self.inner.read(|_| Ok(()), read).await
        })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        Box::pin(async move {
            check::txn(&txn)?;
            self.inner.submit(Work::Txn(txn)).await
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        Box::pin(async move {
            check::list(&request)?;
            let prepare = |view: &View| {
                let newest = view.snapshot.revision;
                let at = request.at.unwrap_or(newest);
                if at > newest {
                    return Err(MetadataError::Invalid {
                        why: format!("revision {} is not reached yet", at.0),
                    });
                }
                Ok((view.history.undo(&request.prefix, at)?, at))
            };
            let read = |snapshot: &Snapshot, (undo, at)| {
                let rows = snapshot.from(page::start(&request))?;
                page::fill(&request, rows, undo, at)
            };
            self.inner.read(prepare, read).await
        })
    }

    fn watch(&self, prefix: &str, after: Revision) -> WatchStream {
        stream(Arc::clone(&self.inner), prefix.to_owned(), after)
    }

    fn grant_lease(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, MetadataError>> {
        Box::pin(async move {
            let now = Instant::now();
            let lease = self.inner.seen(|view| view.leases.grant(ttl, now))??;
            // Waiting watches learn the new deadline.
            self.inner.wake();
            Ok(lease)
        })
    }

    fn renew_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(async move {
            let now = Instant::now();
            self.inner.seen(|view| view.leases.renew(lease, now))?
        })
    }

    fn end_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(async move {
            let now = Instant::now();
            self.inner.seen(|view| view.leases.end(lease, now))?;
            self.inner.expire_due().await
        })
    }
}
