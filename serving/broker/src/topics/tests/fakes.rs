//! A clock that stands, a remover that remembers, and a process that dies after so many calls.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use bookie_metadata::testing::FaultyStore;
use bookie_metadata::{
    BoxFuture, LeaseId, ListRequest, MemoryStore, MetadataError, MetadataStore, Page, Revision,
    Txn, TxnOutcome, Versioned, WatchStream,
};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{PartitionId, TopicName};
use hulse_proto::time::{TimestampMs, WallClock};

use crate::topics::{PartitionRemover, Topic, Topics, TopicsConfig};

pub(super) struct Wall;

impl WallClock for Wall {
    fn now_ms(&self) -> TimestampMs {
        1_700_000_000_000
    }
}

pub(super) fn topics(store: Arc<dyn MetadataStore>, seed: u8) -> Topics {
    let config = TopicsConfig {
        default_partitions: 3,
        auto_create: true,
        seed: [seed; 32],
    };
    Topics::new(store, config, Arc::new(Wall))
}

pub(super) fn memory() -> (Topics, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    (topics(store.clone(), 1), store)
}

pub(super) fn faulty() -> (Topics, Arc<FaultyStore<MemoryStore>>) {
    let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
    (topics(store.clone(), 1), store)
}

pub(super) fn name(name: &str) -> TopicName {
    name.parse().unwrap()
}

pub(super) fn reason<T: std::fmt::Debug>(result: Result<T, Fault>) -> Reason {
    result.unwrap_err().reason
}

/// Remembers what was closed and removed; can be told to fail.
#[derive(Default)]
pub(super) struct Remover {
    pub(super) closed: Mutex<Vec<PartitionId>>,
    pub(super) removed: Mutex<BTreeSet<PartitionId>>,
    pub(super) refuses: Mutex<Option<u32>>,
    pub(super) fuse: Option<Arc<Fuse>>,
}

impl PartitionRemover for Remover {
    fn close(&self, partition: PartitionId, _why: Fault) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.burn().await;
            self.closed.lock().unwrap().push(partition);
        })
    }

    fn changed(&self, _topic: &Topic) {}

    fn remove(&self, partition: PartitionId) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(async move {
            self.burn().await;
            if *self.refuses.lock().unwrap() == Some(partition.index) {
                return Err(Fault::new(Reason::StorageUnavailable, "for a test"));
            }
            self.removed.lock().unwrap().insert(partition);
            Ok(())
        })
    }
}

impl Remover {
    async fn burn(&self) {
        tokio::task::yield_now().await;
        if let Some(fuse) = &self.fuse {
            fuse.burn().await;
        }
    }
}

/// Lets a number of calls pass; the next one and all later ones never come to an end, as in a process that died there.
pub(super) struct Fuse(pub(super) AtomicI64);

impl Fuse {
    async fn burn(&self) {
        if self.0.fetch_sub(1, Ordering::SeqCst) <= 0 {
            std::future::pending::<()>().await;
        }
    }
}

/// A store whose transactions burn a fuse.
pub(super) struct FusedStore(pub(super) Arc<MemoryStore>, pub(super) Arc<Fuse>);

impl MetadataStore for FusedStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        self.0.get(key)
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        Box::pin(async move {
            self.1.burn().await;
            self.0.txn(txn).await
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        self.0.list(request)
    }

    fn watch(&self, prefix: &str, after: Revision) -> WatchStream {
        self.0.watch(prefix, after)
    }

    fn grant_lease(
        &self,
        ttl: std::time::Duration,
    ) -> BoxFuture<'_, Result<LeaseId, MetadataError>> {
        self.0.grant_lease(ttl)
    }

    fn renew_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        self.0.renew_lease(lease)
    }

    fn end_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        self.0.end_lease(lease)
    }
}
