//! The cache itself.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use foyer::{
    BlockEngineConfig, DeviceBuilder as _, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    LfuConfig, Source,
};
use hulse_proto::id::LedgerId;
use hulse_proto::tier::Attempt;

use super::folder::prepare;
use super::value::{BlockKey, CachedBlock};
use crate::format::{BLOCK_BYTES_MAX, Block, BlockRow};
use crate::protocol::ObjectError;
use crate::store::Fetcher;
use crate::store::checked_block;

/// What one block costs besides its bytes.
const OVERHEAD_BYTES: usize = 128;
/// Unit of the disk's space: longer than any block, and one file each.
const FILE_BYTES: usize = 16 << 20;
/// Tasks that write blocks to disk, and the bytes that wait for them; with more they are not written (K5).
const WRITERS: usize = 2;

const _: () = assert!(BLOCK_BYTES_MAX + (64 << 10) < FILE_BYTES);

/// Where the second level is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskConfig {
    /// A directory that may be lost at any time.
    pub directory: PathBuf,
    /// At least 64 MiB.
    pub bytes: usize,
}

/// Bounds of the cache, bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// Blocks in memory.
    pub memory_bytes: usize,
    /// Indexes in memory.
    pub index_bytes: usize,
    /// Blocks that wait to be written to disk.
    pub writing_bytes: usize,
    /// None: memory alone.
    pub disk: Option<DiskConfig>,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            index_bytes: 16 << 20,
            writing_bytes: 16 << 20,
            disk: None,
        }
    }
}

/// Why there is no cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Its directory.
    #[error("cache directory {path}: {source}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Its disk is too small for what the cache writes at once.
    #[error("a cache of {bytes} bytes on disk is too small; give it at least 64MiB, or none")]
    Small {
        /// Asked for.
        bytes: usize,
    },
    /// Anything else.
    #[error("block cache: {0}")]
    Library(#[from] foyer::Error),
}

/// How reads went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounts {
    /// Found in memory.
    pub memory_hits: u64,
    /// Found on disk.
    pub disk_hits: u64,
    /// Read from the store.
    pub misses: u64,
    /// Found, and not what was stored: read from the store.
    pub bad_hits: u64,
}

/// The cache of blocks, and the way to those that are not in it.
#[derive(Debug)]
pub struct BlockCache {
    cache: HybridCache<BlockKey, CachedBlock>,
    fetcher: Fetcher,
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    misses: AtomicU64,
    bad_hits: AtomicU64,
}

impl BlockCache {
    /// Opens it, with what an earlier process left on its disk.
    ///
    /// # Errors
    /// [`CacheError`].
    pub async fn open(config: &CacheConfig, fetcher: Fetcher) -> Result<Self, CacheError> {
        let memory = HybridCacheBuilder::new()
            .with_name("tier")
            .memory(config.memory_bytes)
            // One pass over a long log does not push out what is read again and again.
            .with_eviction_config(LfuConfig::default())
            .with_weighter(|_, block: &CachedBlock| block.0.len() + OVERHEAD_BYTES);
        let mut storage = memory.storage();
        if let Some(disk) = &config.disk {
            if disk.bytes < FILE_BYTES * 4 {
                return Err(CacheError::Small { bytes: disk.bytes });
            }
            let folder = prepare(&disk.directory).map_err(|source| CacheError::Directory {
                path: disk.directory.clone(),
                source,
            })?;
            let device = FsDeviceBuilder::new(folder)
                .with_capacity(disk.bytes)
                .build()?;
            let engine = BlockEngineConfig::new(device)
                .with_block_size(FILE_BYTES)
                .with_flushers(WRITERS)
                .with_buffer_pool_size(config.writing_bytes.max(FILE_BYTES * WRITERS))
                .with_submit_queue_size_threshold(config.writing_bytes);
            storage = storage.with_engine_config(engine);
        }
        Ok(Self {
            cache: storage.build().await?,
            fetcher,
            memory_hits: AtomicU64::new(0),
            disk_hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            bad_hits: AtomicU64::new(0),
        })
    }

    /// How reads went until now.
    pub fn counts(&self) -> CacheCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheCounts {
            memory_hits: read(&self.memory_hits),
            disk_hits: read(&self.disk_hits),
            misses: read(&self.misses),
            bad_hits: read(&self.bad_hits),
        }
    }

    /// Bytes of blocks in memory.
    pub fn memory_usage(&self) -> usize {
        self.cache.memory().usage()
    }

    /// True when a block is at hand; a hint.
    pub(crate) fn holds(&self, attempt: &Attempt, row: &BlockRow) -> bool {
        self.cache.contains(&key(attempt, row))
    }

    /// A block, from wherever it is nearest. Cancel-safe.
    ///
    /// # Errors
    /// [`ObjectError`]: of the object itself, never of the cache.
    pub async fn get(
        &self,
        ledger: LedgerId,
        attempt: &Attempt,
        row: &BlockRow,
    ) -> Result<Block, ObjectError> {
        let key = key(attempt, row);
        let range = row.at..row.at + u64::from(row.bytes);
        let fetch = {
            let (fetcher, attempt) = (self.fetcher.clone(), attempt.clone());
            let range = range.clone();
            move || async move { fetcher.range(&attempt, range).await.map(CachedBlock) }
        };
        let (bytes, source) = match self.cache.get_or_fetch(&key, fetch).await {
            Ok(entry) => (entry.value().0.clone(), entry.source()),
            Err(error) => {
                if let Some(error) = error.downcast_ref::<ObjectError>() {
                    return Err(error.clone());
                }
                tracing::warn!(%error, "the block cache fails; blocks are read past it");
                (
                    self.fetcher.range(attempt, range.clone()).await?,
                    Source::Outer,
                )
            }
        };
        self.checked(ledger, attempt, row, (bytes, source)).await
    }

    async fn checked(
        &self,
        ledger: LedgerId,
        attempt: &Attempt,
        row: &BlockRow,
        (bytes, source): (Bytes, Source),
    ) -> Result<Block, ObjectError> {
        let counter = match source {
            Source::Outer => &self.misses,
            Source::Memory => &self.memory_hits,
            Source::Disk => &self.disk_hits,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let error = match checked_block(ledger, row, bytes) {
            Ok(block) => return Ok(block),
            Err(error) => error,
        };
        let key = key(attempt, row);
        self.cache.remove(&key);
        if !matches!(source, Source::Outer) {
            self.bad_hits.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(object = %attempt.object, at = row.at, %error, "the cache gave a bad block; it is read anew");
        }
        // Also what came from the store may have been damaged on the way, or by whoever fetched it for us.
        let range = row.at..row.at + u64::from(row.bytes);
        let bytes = self.fetcher.range(attempt, range).await?;
        match checked_block(ledger, row, bytes.clone()) {
            Ok(block) => {
                self.cache.insert(key, CachedBlock(bytes));
                Ok(block)
            }
            Err(error) => Err(ObjectError::Damaged {
                object: attempt.object.clone(),
                error,
            }),
        }
    }

    /// Writes what it holds to its disk and ends.
    ///
    /// # Errors
    /// [`CacheError`].
    pub async fn close(&self) -> Result<(), CacheError> {
        Ok(self.cache.close().await?)
    }

    #[cfg(test)]
    pub(super) fn poison(&self, attempt: &Attempt, row: &BlockRow, bytes: Bytes) {
        self.cache.insert(key(attempt, row), CachedBlock(bytes));
    }

    #[cfg(test)]
    pub(super) async fn settle(&self) {
        self.cache.memory().flush().await;
        self.cache.storage().wait().await;
    }
}

fn key(attempt: &Attempt, row: &BlockRow) -> BlockKey {
    BlockKey {
        segment: attempt.id,
        at: row.at,
    }
}
