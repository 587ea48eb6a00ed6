//! The cache over a store in memory, with a real directory as its disk.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use hulse_proto::id::{LedgerId, Offset};
use object_store::memory::InMemory;

use super::*;
use crate::format::Index;
use crate::store::{Fetcher, read_index};
use crate::testing::{StoredLedgers, closed_ledger, stored};

const LEDGER: LedgerId = LedgerId(3);
const BLOCKS: usize = 24;

struct Scene {
    stored: StoredLedgers,
    fetcher: Fetcher,
    index: Index,
}

async fn scene() -> Scene {
    let ledger = closed_ledger(LEDGER, Offset(0), &[100_000; BLOCKS]);
    let stored = stored(Arc::new(InMemory::new()), vec![ledger], 1000).await;
    let fetcher = Fetcher::new(Arc::clone(&stored.buckets), 8 << 20);
    let index = read_index(&fetcher, LEDGER, &stored.ledgers[0].1)
        .await
        .unwrap();
    assert_eq!(index.blocks.len(), BLOCKS);
    Scene {
        stored,
        fetcher,
        index,
    }
}

fn config(memory_bytes: usize, directory: Option<&Path>) -> CacheConfig {
    CacheConfig {
        memory_bytes,
        disk: directory.map(|directory| DiskConfig {
            directory: directory.to_owned(),
            bytes: 64 << 20,
        }),
        ..CacheConfig::default()
    }
}

impl Scene {
    async fn open(&self, config: &CacheConfig) -> BlockCache {
        BlockCache::open(config, self.fetcher.clone())
            .await
            .unwrap()
    }

    async fn read(&self, cache: &BlockCache, number: usize) {
        let row = &self.index.blocks[number];
        let attempt = &self.stored.ledgers[0].1.attempt;
        let block = cache.get(LEDGER, attempt, row).await.unwrap();
        let entry = block.entries().next().unwrap().unwrap();
        let written = &self.stored.ledgers[0].0.entries[number];
        assert_eq!(entry.header(), written.header());
        assert_eq!(entry.body(), written.body());
    }

    async fn read_all(&self, cache: &BlockCache) {
        for number in 0..BLOCKS {
            self.read(cache, number).await;
        }
    }
}

#[tokio::test]
async fn block_that_many_want_is_read_once() {
    let scene = scene().await;
    let cache = scene.open(&config(16 << 20, None)).await;
    let before = scene.fetcher.requests();
    futures::future::join_all((0..32).map(|_| scene.read(&cache, 5))).await;
    assert_eq!(scene.fetcher.requests() - before, 1);
    scene.read(&cache, 5).await;
    assert_eq!(scene.fetcher.requests() - before, 1);
    assert!(cache.counts().memory_hits >= 1);
}

#[tokio::test]
async fn hit_that_is_not_the_block_is_read_anew() {
    let scene = scene().await;
    let cache = scene.open(&config(16 << 20, None)).await;
    let attempt = &scene.stored.ledgers[0].1.attempt;
    let good = |number: usize| {
        let row = scene.index.blocks[number];
        let range = row.at..row.at + u64::from(row.bytes);
        let (fetcher, attempt) = (scene.fetcher.clone(), attempt.clone());
        async move { fetcher.range(&attempt, range).await.unwrap() }
    };
    let mut flipped = good(7).await.to_vec();
    flipped[60_000] ^= 4;
    // A bit, another block, a part of one, nothing.
    let wrong = [
        flipped.into(),
        good(8).await,
        good(7).await.slice(..500),
        Bytes::new(),
    ];
    for (bad, bytes) in (1..).zip(wrong) {
        cache.poison(attempt, &scene.index.blocks[7], bytes);
        scene.read(&cache, 7).await;
        assert_eq!(cache.counts().bad_hits, bad);
        let before = scene.fetcher.requests();
        scene.read(&cache, 7).await;
        assert_eq!(scene.fetcher.requests(), before);
    }
}

#[tokio::test]
async fn memory_is_bounded_and_disk_has_what_it_let_go() {
    let scene = scene().await;
    let directory = tempfile::tempdir().unwrap();
    let config = config(1 << 20, Some(directory.path()));
    let cache = scene.open(&config).await;
    for _ in 0..3 {
        scene.read_all(&cache).await;
        assert!(cache.memory_usage() <= 1 << 20);
        cache.settle().await;
    }
    let counts = cache.counts();
    assert!(
        counts.disk_hits > 0 && counts.misses < 3 * BLOCKS as u64,
        "{counts:?}"
    );
    cache.close().await.unwrap();
    drop(cache);
    let again = scene.open(&config).await;
    scene.read_all(&again).await;
    assert!(again.counts().disk_hits > 0, "{:?}", again.counts());
    assert_eq!(again.counts().bad_hits, 0);
    again.close().await.unwrap();
}

#[tokio::test]
async fn cache_whose_disk_rotted_gives_right_blocks() {
    let scene = scene().await;
    let directory = tempfile::tempdir().unwrap();
    let config = config(1 << 20, Some(directory.path()));
    let cache = scene.open(&config).await;
    scene.read_all(&cache).await;
    cache.settle().await;
    cache.close().await.unwrap();
    drop(cache);
    let folder = std::fs::read_dir(directory.path()).unwrap().next().unwrap();
    for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes
            .iter_mut()
            .step_by(5000)
            .for_each(|byte| *byte ^= 0x10);
        std::fs::write(&path, bytes).unwrap();
    }
    let again = scene.open(&config).await;
    scene.read_all(&again).await;
    again.close().await.unwrap();
}

#[tokio::test]
async fn disk_that_is_too_small_is_refused() {
    let scene = scene().await;
    let directory = tempfile::tempdir().unwrap();
    let small = CacheConfig {
        disk: Some(DiskConfig {
            directory: directory.path().to_owned(),
            bytes: 1 << 20,
        }),
        ..CacheConfig::default()
    };
    let refused = BlockCache::open(&small, scene.fetcher.clone()).await;
    assert!(matches!(refused, Err(CacheError::Small { .. })));
}
