//! Reads of tiered ledgers; how fast they and uploads are stands in `speed`.

mod speed;

use std::sync::Arc;

use hulse_proto::entry::Entry;
use hulse_proto::error::ErrorKind;
use hulse_proto::id::{EntryId, LedgerId, Offset};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt as _};

use crate::cache::CacheConfig;
use crate::store::Fetcher;
use crate::testing::{StoredLedgers, closed_ledger, stored};
use crate::{READ_AHEAD_DEFAULT, TierReadError, TierReads, TieredReader};

const LEDGER: LedgerId = LedgerId(3);

struct Scene {
    store: Arc<InMemory>,
    stored: StoredLedgers,
    reads: Arc<TierReads>,
}

impl Scene {
    async fn new(bodies: &[usize], block_bytes: usize) -> Self {
        let store = Arc::new(InMemory::new());
        let ledgers = vec![
            closed_ledger(LedgerId(2), Offset(0), &[50; 3]),
            closed_ledger(LEDGER, Offset(9), bodies),
        ];
        let clone: Arc<dyn ObjectStore> = Arc::clone(&store) as _;
        let stored = stored(clone, ledgers, block_bytes).await;
        let fetcher = Fetcher::new(Arc::clone(&stored.buckets), 4 << 20);
        let config = CacheConfig::default();
        let reads = TierReads::open(&config, fetcher, READ_AHEAD_DEFAULT).await;
        Self {
            store,
            stored,
            reads: reads.unwrap(),
        }
    }

    fn reader(&self) -> TieredReader {
        self.reads.reader(LEDGER, self.stored.ledgers[1].1.clone())
    }

    fn entries(&self) -> &[Entry] {
        &self.stored.ledgers[1].0.entries
    }
}

fn numbers(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.header().entry.0).collect()
}

#[tokio::test]
async fn ledger_is_read_in_order_and_each_block_once() {
    let scene = Scene::new(&[1000; 60], 5000).await;
    let reader = scene.reader();
    let mut found = Vec::new();
    while found.len() < 60 {
        let next = EntryId(found.len() as u64);
        found.extend(reader.read(next, EntryId(u64::MAX), 2500).await.unwrap());
    }
    assert_eq!(numbers(&found), (0..60).collect::<Vec<_>>());
    assert!(
        found
            .iter()
            .zip(scene.entries())
            .all(|(a, b)| a.body() == b.body())
    );
    let index = reader.index().await.unwrap();
    assert_eq!(
        scene.reads.fetcher().requests(),
        index.blocks.len() as u64 + 1
    );
}

#[tokio::test]
async fn run_begins_where_it_is_asked_and_keeps_its_bounds() {
    let scene = Scene::new(&[1000; 60], 5000).await;
    let reader = scene.reader();
    let read = async |first, end, bytes| {
        let found = reader.read(EntryId(first), EntryId(end), bytes).await;
        found.map(|found| numbers(&found))
    };
    assert_eq!(read(17, 60, 1).await, Ok(vec![17]));
    assert_eq!(read(18, 22, 1 << 20).await, Ok(vec![18, 19, 20, 21]));
    assert_eq!(read(59, 100, 1 << 20).await, Ok(vec![59]));
    assert_eq!(read(3, 60, 2000).await, Ok(vec![3, 4]));
    for first in [60, 1000, u64::MAX] {
        let error = read(first, u64::MAX, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(matches!(
            error,
            TierReadError::BeyondEnd {
                end: EntryId(60),
                ..
            }
        ));
    }
    assert!(matches!(
        read(5, 5, 1).await,
        Err(TierReadError::BeyondEnd { .. })
    ));
}

#[tokio::test]
async fn many_readers_of_one_ledger_do_not_disturb_each_other() {
    let scene = Scene::new(&[1000; 60], 5000).await;
    let reader = Arc::new(scene.reader());
    let reads = (0..60_u64).map(|first| {
        let reader = Arc::clone(&reader);
        async move {
            let found = reader
                .read(EntryId(first), EntryId(first + 3), 1 << 20)
                .await;
            let expected: Vec<u64> = (first..60.min(first + 3)).collect();
            assert_eq!(numbers(&found.unwrap()), expected);
        }
    });
    futures::future::join_all(reads).await;
}

#[tokio::test]
async fn offsets_and_times_lead_to_a_block_below_them() {
    let scene = Scene::new(&[1000; 60], 5000).await;
    let reader = scene.reader();
    let index = reader.index().await.unwrap();
    for (number, entry) in scene.entries().iter().enumerate() {
        let number = number as u64;
        for offset in entry.header().first_offset.0..entry.header().end_offset().0 {
            let first = reader
                .entry_below_offset(Offset(offset))
                .await
                .unwrap()
                .unwrap();
            let block = index.block_of(first).unwrap();
            assert!(first.0 <= number && number < index.end_of(block).0);
        }
        let time = number as i64 * 1000 + 5;
        let first = reader.entry_before_time(time).await.unwrap().unwrap();
        let block = index.block_of(first).unwrap();
        assert!(first.0 <= number && number < index.end_of(block).0);
    }
    assert_eq!(reader.entry_below_offset(Offset(8)).await, Ok(None));
    assert_eq!(reader.entry_before_time(60_000).await, Ok(None));
}

#[tokio::test]
async fn object_that_is_gone_is_told_apart_from_one_that_is_damaged() {
    let scene = Scene::new(&[1000; 20], 5000).await;
    let path = object_store::path::Path::parse(&scene.reader().segment().attempt.object).unwrap();
    let whole = scene.store.get(&path).await.unwrap().bytes().await.unwrap();
    scene.store.delete(&path).await.unwrap();
    let gone = scene
        .reader()
        .read(EntryId(0), EntryId(9), 1)
        .await
        .unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let mut bytes = whole.to_vec();
    let at = scene.reader().segment().first_byte as usize + 300;
    bytes[at] ^= 1;
    scene.store.put(&path, bytes.into()).await.unwrap();
    let damaged = scene
        .reader()
        .read(EntryId(0), EntryId(9), 1)
        .await
        .unwrap_err();
    assert_eq!(damaged.kind(), ErrorKind::Corrupt);
    // Nothing of that stays in a cache.
    scene.store.put(&path, whole.into()).await.unwrap();
    let found = scene.reader().read(EntryId(0), EntryId(20), 1 << 20).await;
    assert_eq!(found.unwrap().len(), 20);
}

#[tokio::test]
async fn indexes_of_many_ledgers_keep_their_bound() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let config = CacheConfig {
        index_bytes: 64 << 10,
        ..CacheConfig::default()
    };
    let mut reads = None;
    for number in 0..300 {
        let ledger = closed_ledger(LedgerId(number), Offset(0), &[100; 20]);
        let stored = stored(Arc::clone(&store), vec![ledger], 300).await;
        let fetcher = Fetcher::new(Arc::clone(&stored.buckets), 4 << 20);
        if reads.is_none() {
            reads = Some(TierReads::open(&config, fetcher, 0).await.unwrap());
        }
        let reads = reads.as_ref().unwrap();
        let reader = reads.reader(LedgerId(number), stored.ledgers[0].1.clone());
        assert_eq!(
            reader
                .read(EntryId(19), EntryId(20), 1)
                .await
                .unwrap()
                .len(),
            1
        );
        assert!(reads.index_usage() <= 64 << 10, "{}", reads.index_usage());
    }
}
