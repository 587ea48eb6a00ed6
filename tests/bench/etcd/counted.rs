//! The product's store in etcd, and how often and for how long it was asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bookie_metadata::{
    BoxFuture, EtcdStore, LeaseId, ListRequest, MetadataError, MetadataStore, Page, Revision, Txn,
    TxnOutcome, Versioned, WatchStream,
};

/// The store. Clones share their counts.
#[derive(Clone)]
pub(crate) struct Counted {
    store: EtcdStore,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    transactions: Mutex<Vec<Duration>>,
}

impl Counted {
    pub(crate) fn new(store: EtcdStore) -> Self {
        Self {
            store,
            counts: Arc::default(),
        }
    }

    /// Requests since the last call, and the times of the transactions among them, sorted.
    pub(crate) fn take(&self) -> (u64, Vec<Duration>) {
        let mut times = std::mem::take(&mut *self.transactions());
        times.sort_unstable();
        (self.counts.requests.swap(0, Ordering::Relaxed), times)
    }

    fn transactions(&self) -> std::sync::MutexGuard<'_, Vec<Duration>> {
        let times = self.counts.transactions.lock();
        times.unwrap_or_else(PoisonError::into_inner)
    }

    fn one_more(&self) {
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
    }
}

impl MetadataStore for Counted {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        self.one_more();
        self.store.get(key)
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        self.one_more();
        Box::pin(async move {
            let began = Instant::now();
            let done = self.store.txn(txn).await;
            self.transactions().push(began.elapsed());
            done
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        self.one_more();
        self.store.list(request)
    }

    fn watch(&self, prefix: &str, after: Revision) -> WatchStream {
        self.store.watch(prefix, after)
    }

    fn grant_lease(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, MetadataError>> {
        self.store.grant_lease(ttl)
    }

    fn renew_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        self.store.renew_lease(lease)
    }

    fn end_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        self.store.end_lease(lease)
    }
}
