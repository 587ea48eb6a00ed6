//! A store whose listings lack rows, as listings of real stores did (storage.md §12 test 16), and whose answers may be old when they are
//! heard. What its own key says of a thing stands.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bookie_metadata::{
    BoxFuture, LeaseId, ListRequest, MetadataError, MetadataStore, Page, Revision, Txn, TxnOutcome,
    Versioned, WatchStream,
};
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use tokio::time::sleep;

/// How poor.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Poverty {
    /// Of each listing this share of rows is missing.
    pub missing_rows: f64,
    /// What a key says is heard so much later at most, ms.
    pub late_ms: u64,
}

/// Such a store over another.
pub struct PoorStore<S> {
    store: S,
    poverty: Poverty,
    rng: Mutex<ChaCha12Rng>,
}

impl<S> PoorStore<S> {
    /// As poor as that.
    pub fn new(store: S, poverty: Poverty, rng: ChaCha12Rng) -> Self {
        Self {
            store,
            poverty,
            rng: Mutex::new(rng),
        }
    }

    fn rng(&self) -> MutexGuard<'_, ChaCha12Rng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: MetadataStore> MetadataStore for PoorStore<S> {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        let key = key.to_owned();
        Box::pin(async move {
            let found = self.store.get(&key).await;
            let late = self.rng().random_range(0..=self.poverty.late_ms);
            sleep(Duration::from_millis(late)).await;
            found
        })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        self.store.txn(txn)
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        Box::pin(async move {
            let mut page = self.store.list(request).await?;
            let mut rng = self.rng();
            page.items
                .retain(|_| !rng.random_bool(self.poverty.missing_rows));
            Ok(page)
        })
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
