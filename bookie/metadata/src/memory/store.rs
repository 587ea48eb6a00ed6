//! [`MemoryStore`]: everything under one lock that is never held over an await.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::ready;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::basis::apply::{self, Rows};
use crate::basis::history::{Change, History};
use crate::basis::leases::Leases;
use crate::basis::watch::{Source, stream};
use crate::basis::{check, page};
use crate::store::{
    BoxFuture, LeaseId, ListRequest, MetadataError, MetadataStore, Page, Revision, Txn, TxnOutcome,
    Versioned, WatchEvent, WatchStream,
};

/// A metadata store in memory. Clones share the same facts.
#[derive(Clone)]
pub struct MemoryStore {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    signal: watch::Sender<u64>,
}

struct State {
    rows: MemoryRows,
    revision: Revision,
    leases: Leases,
    history: History,
}

#[derive(Default)]
struct MemoryRows(BTreeMap<String, Versioned>);

impl Rows for MemoryRows {
    type Error = Infallible;

    fn get(&mut self, key: &str) -> Result<Option<Versioned>, Infallible> {
        Ok(self.0.get(key).cloned())
    }

    fn put(&mut self, row: &Versioned, _before: Option<&Versioned>) -> Result<(), Infallible> {
        self.0.insert(row.key.clone(), row.clone());
        Ok(())
    }

    fn delete(&mut self, before: &Versioned) -> Result<(), Infallible> {
        self.0.remove(&before.key);
        Ok(())
    }
}

impl State {
    fn publish(&mut self, changes: Vec<Change>, revision: Revision) {
        self.revision = revision;
        for change in &changes {
            self.leases.observe(change);
        }
        self.history.extend(changes);
    }

    /// Ends due leases; `true` when a key went.
    fn expire(&mut self, now: Instant) -> bool {
        let before = self.revision;
        for (id, keys) in self.leases.end_due(now) {
            let revision = Revision(self.revision.0 + 1);
            let Ok(changes) = apply::remove(&mut self.rows, keys, revision);
            if !changes.is_empty() {
                self.publish(changes, revision);
            }
            self.leases.forget(id);
        }
        self.revision > before
    }

    fn list(&self, request: &ListRequest) -> Result<Page, MetadataError> {
        let at = request.at.unwrap_or(self.revision);
        if at > self.revision {
            return Err(MetadataError::Invalid {
                why: format!("revision {} is not reached yet", at.0),
            });
        }
        let undo = self.history.undo(&request.prefix, at)?;
        let rows = self
            .rows
            .0
            .range::<str, _>((page::start(request), Bound::Unbounded));
        let rows = rows.map(|(_, row)| Ok::<_, Infallible>(row.clone()));
        let Ok(page) = page::fill(request, rows, undo, at);
        Ok(page)
    }
}

impl Inner {
    /// The state with nothing due in it.
    fn lock(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.leases.any_due(now) && state.expire(now) {
            self.wake();
        }
        state
    }

    fn wake(&self) {
        self.signal.send_modify(|n| *n = n.wrapping_add(1));
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
        self.lock(Instant::now()).history.events(prefix, after)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.lock(Instant::now()).leases.next_deadline()
    }

    fn expire(self: &Arc<Self>) -> BoxFuture<'_, Result<(), MetadataError>> {
        drop(self.lock(Instant::now()));
        Box::pin(ready(Ok(())))
    }
}

impl MemoryStore {
    /// An empty store at revision 0.
    pub fn new() -> Self {
        let state = State {
            rows: MemoryRows::default(),
            revision: Revision(0),
            leases: Leases::new(1),
            history: History::new(Revision(0)),
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                signal: watch::Sender::new(0),
            }),
        }
    }

    fn apply(&self, txn: Txn) -> Result<TxnOutcome, MetadataError> {
        check::txn(&txn)?;
        let now = Instant::now();
        let mut guard = self.inner.lock(now);
        let state = &mut *guard;
        let leases = &state.leases;
        let Ok(applied) = apply::apply(&mut state.rows, txn, state.revision, |id| {
            leases.alive(id, now)
        });
        state.publish(applied.changes, applied.revision);
        drop(guard);
        self.inner.wake();
        applied.answer
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

// Each method does its work when polled, not when called: a future that is dropped unpolled did nothing.
impl MetadataStore for MemoryStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check::key(&key)?;
            Ok(self.inner.lock(Instant::now()).rows.0.get(&key).cloned())
        })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        Box::pin(async move { self.apply(txn) })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        Box::pin(async move {
            check::list(&request)?;
            self.inner.lock(Instant::now()).list(&request)
        })
    }

    fn watch(&self, prefix: &str, after: Revision) -> WatchStream {
        stream(Arc::clone(&self.inner), prefix.to_owned(), after)
    }

    fn grant_lease(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, MetadataError>> {
        Box::pin(async move {
            let now = Instant::now();
            let lease = self.inner.lock(now).leases.grant(ttl, now)?;
            // Waiting watches learn the new deadline.
            self.inner.wake();
            Ok(lease)
        })
    }

    fn renew_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(async move {
            let now = Instant::now();
            self.inner.lock(now).leases.renew(lease, now)
        })
    }

    fn end_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(async move {
            let now = Instant::now();
            let mut state = self.inner.lock(now);
            state.leases.end(lease, now);
            state.expire(now);
            drop(state);
            self.inner.wake();
            Ok(())
        })
    }
}
