//! Whether the metadata store at an address is still the one that a process began with: another cell's data, or none, may be put there
//! while the process runs. It may not hear of this process (ARCHITECTURE D4).

use bookie_metadata::cell::{CellError, read_cell};
use bookie_metadata::{MetadataError, MetadataStore};
use hulse_proto::id::CellId;

/// The store has other metadata than when the process began. Asked again, it may be the right one again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the metadata store has {found} where it had the metadata of cell {home}; is it the right store, with its own data?"
)]
pub(crate) struct OtherCell {
    home: CellId,
    found: String,
}

/// The cell that a store served at first; `None`: it had no record of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Home(Option<CellId>);

impl Home {
    /// Reads it.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn of(store: &dyn MetadataStore) -> Result<Self, MetadataError> {
        match read_cell(store).await {
            Ok(found) => Ok(Self(found.map(|record| record.cell))),
            Err(CellError::Metadata(error)) => Err(error),
            Err(error) => Err(MetadataError::Corrupt {
                why: error.to_string(),
            }),
        }
    }

    /// Whether the store still serves it.
    ///
    /// # Errors
    /// The store's; inside, [`OtherCell`].
    pub(super) async fn check(
        self,
        store: &dyn MetadataStore,
    ) -> Result<Result<(), OtherCell>, MetadataError> {
        let Some(home) = self.0 else {
            return Ok(Ok(()));
        };
        let found = Self::of(store).await?.0;
        if found == Some(home) {
            return Ok(Ok(()));
        }
        let found = match found {
            Some(found) => format!("the metadata of cell {found}"),
            None => "no cell".to_owned(),
        };
        Ok(Err(OtherCell { home, found }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use bookie_metadata::cell::{CELL_KEY, CellSettings, ensure_cell};
    use bookie_metadata::{LeaseId, MemoryStore, Op, Txn};
    use hulse_proto::ledger::Quorums;
    use tokio::time::sleep;
    use tokio_util::sync::CancellationToken;

    use super::super::presence::{Presence, Registered};
    use super::*;

    const KEY: &str = "node/bookie/a";

    async fn store_of(cell: u128) -> Arc<dyn MetadataStore> {
        let store: Arc<dyn MetadataStore> = Arc::new(MemoryStore::new());
        let settings = CellSettings {
            quorums: Quorums {
                ensemble: 1,
                write: 1,
                ack: 1,
            },
            group_shards: 1,
            transaction_shards: 1,
        };
        let cell = CellId(uuid::Uuid::from_u128(cell));
        ensure_cell(&*store, settings, cell, 0).await.unwrap();
        store
    }

    async fn put(store: &Arc<dyn MetadataStore>, value: bytes::Bytes) {
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![Op::put(CELL_KEY, value)],
        };
        store.txn(txn).await.unwrap();
    }

    /// Says whether it stands.
    #[derive(Clone, Default)]
    struct Row(Arc<AtomicBool>);

    impl Registered for Row {
        fn ops(&self, lease: LeaseId) -> Vec<Op> {
            vec![Op::Put {
                key: KEY.to_owned(),
                value: "a".into(),
                lease: Some(lease),
            }]
        }

        fn mode(&self) -> &'static str {
            "normal"
        }

        fn standing(&self, stands: bool) {
            self.0.store(stands, Ordering::Relaxed);
        }
    }

    /// Another cell's store at the same address, while the process runs: it was registered there, and said to be full.
    #[tokio::test(start_paused = true)]
    async fn another_cells_store_does_not_hear_of_this_process_and_the_right_one_does_again() {
        let store = store_of(1).await;
        let row = Row::default();
        let presence = Presence::register(Arc::clone(&store), row.clone());
        let presence = presence.await.unwrap();
        let home = store.get(CELL_KEY).await.unwrap().unwrap().value;
        let other = store_of(2).await.get(CELL_KEY).await.unwrap().unwrap();
        put(&store, other.value).await;
        store.end_lease(presence.lease()).await.unwrap();
        let kept = tokio::spawn(presence.keep(CancellationToken::new()));
        sleep(Duration::from_secs(30)).await;
        assert_eq!(store.get(KEY).await.unwrap(), None);
        assert!(!row.0.load(Ordering::Relaxed));
        assert!(!kept.is_finished());
        put(&store, home).await;
        sleep(Duration::from_secs(3)).await;
        assert!(store.get(KEY).await.unwrap().is_some());
        assert!(row.0.load(Ordering::Relaxed));
        kept.abort();
    }
}
