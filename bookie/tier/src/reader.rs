//! Entries of a tiered ledger by their numbers (storage.md O9, K6).
//!
//! # Invariants
//! 1. Nothing at or above the ledger's end is returned, and every entry is the one that was asked for.
//! 2. An idle ledger costs nothing here: its index is in a cache that is bounded for all ledgers together, and what a reader holds goes
//!    with it.
//! 3. A block is walked once by whoever reads on: the reader remembers where it is.

use std::sync::{Arc, Mutex, PoisonError};

use foyer::{Cache, CacheBuilder};
use hulse_proto::entry::Entry;
use hulse_proto::error::ErrorKind;
use hulse_proto::id::{EntryId, LedgerId, Offset, SegmentId};
use hulse_proto::tier::Segment;
use hulse_proto::time::TimestampMs;
use tokio::task::JoinSet;

use crate::cache::{BlockCache, CacheConfig, CacheError};
use crate::format::{Entries, FormatError, Index};
use crate::protocol::ObjectError;
use crate::store::{Fetcher, read_index};

/// Blocks that are fetched before they are asked for, while entries are read in order.
pub const READ_AHEAD_DEFAULT: usize = 4;

/// Why a tiered ledger gave no entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TierReadError {
    /// The ledger ends before it.
    #[error("ledger {ledger} has no entry {entry}: it ends at {end}")]
    BeyondEnd {
        /// Which.
        ledger: LedgerId,
        /// Asked for.
        entry: EntryId,
        /// Exclusive.
        end: EntryId,
    },
    /// Its object. When it is absent: look at metadata anew, once, and read where they say (storage.md O9).
    #[error("ledger {ledger}: {error}")]
    Object {
        /// Which.
        ledger: LedgerId,
        /// What.
        error: ObjectError,
    },
    /// A block whose checksum is right holds what cannot be.
    #[error("ledger {ledger}: {error}")]
    Format {
        /// Which.
        ledger: LedgerId,
        /// How.
        error: FormatError,
    },
}

impl TierReadError {
    /// What the caller should do, in the words that all layers share.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::BeyondEnd { .. } => ErrorKind::NotFound,
            Self::Object { error, .. } => error.kind(),
            Self::Format { .. } => ErrorKind::Corrupt,
        }
    }
}

/// All tiered reads of a process: indexes, blocks, and the way to the store.
#[derive(Debug)]
pub struct TierReads {
    fetcher: Fetcher,
    blocks: BlockCache,
    indexes: Cache<(SegmentId, LedgerId), Arc<Index>>,
    read_ahead: usize,
}

impl TierReads {
    /// Opens the caches.
    ///
    /// # Errors
    /// [`CacheError`].
    pub async fn open(
        config: &CacheConfig,
        fetcher: Fetcher,
        read_ahead: usize,
    ) -> Result<Arc<Self>, CacheError> {
        let weight = |_: &(SegmentId, LedgerId), index: &Arc<Index>| index_bytes(index);
        let indexes = CacheBuilder::new(config.index_bytes)
            .with_name("tier-index")
            .with_weighter(weight)
            .build();
        Ok(Arc::new(Self {
            blocks: BlockCache::open(config, fetcher.clone()).await?,
            fetcher,
            indexes,
            read_ahead,
        }))
    }

    /// The cache of blocks.
    pub fn blocks(&self) -> &BlockCache {
        &self.blocks
    }

    /// The way to the store.
    pub fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }

    /// Bytes of indexes in memory.
    pub fn index_usage(&self) -> usize {
        self.indexes.usage()
    }

    /// A reader of a ledger, at the segment that its metadata name.
    pub fn reader(self: &Arc<Self>, ledger: LedgerId, segment: Segment) -> TieredReader {
        TieredReader {
            reads: Arc::clone(self),
            ledger,
            segment: Arc::new(segment),
            place: Mutex::new(Place::default()),
        }
    }

    async fn index(
        &self,
        ledger: LedgerId,
        segment: &Arc<Segment>,
    ) -> Result<Arc<Index>, ObjectError> {
        let key = (segment.attempt.id, ledger);
        let fetch = {
            let (fetcher, segment) = (self.fetcher.clone(), Arc::clone(segment));
            move || async move { read_index(&fetcher, ledger, &segment).await.map(Arc::new) }
        };
        match self.indexes.get_or_fetch(&key, fetch).await {
            Ok(entry) => Ok(Arc::clone(entry.value())),
            Err(error) => match error.downcast_ref::<ObjectError>() {
                Some(error) => Err(error.clone()),
                None => read_index(&self.fetcher, ledger, segment)
                    .await
                    .map(Arc::new),
            },
        }
    }
}

/// What an index takes in memory.
fn index_bytes(index: &Index) -> usize {
    size_of::<Index>() + size_of_val(&*index.blocks) + size_of_val(&*index.aborted)
}

/// Where a reader stands.
#[derive(Default)]
struct Place {
    /// The entry that a read in order asks for next.
    next: EntryId,
    /// Its block, from there on.
    entries: Option<Entries>,
    /// Blocks below this one were asked for ahead.
    ahead: usize,
    fetching: JoinSet<()>,
}

/// Reads entries of one ledger from its segment.
///
/// An entry is a slice of its block: whoever keeps one for long copies it (storage.md K3).
pub struct TieredReader {
    reads: Arc<TierReads>,
    ledger: LedgerId,
    segment: Arc<Segment>,
    place: Mutex<Place>,
}

impl TieredReader {
    /// Its number.
    pub fn ledger(&self) -> LedgerId {
        self.ledger
    }

    /// Where it reads.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    fn object(&self, error: ObjectError) -> TierReadError {
        let ledger = self.ledger;
        TierReadError::Object { ledger, error }
    }

    /// The ledger's index.
    ///
    /// # Errors
    /// [`TierReadError::Object`].
    pub async fn index(&self) -> Result<Arc<Index>, TierReadError> {
        let index = self.reads.index(self.ledger, &self.segment).await;
        index.map_err(|error| self.object(error))
    }

    /// The first entry of the block that holds an offset; reading on from it comes to the record.
    ///
    /// # Errors
    /// As [`TieredReader::index`].
    pub async fn entry_below_offset(
        &self,
        offset: Offset,
    ) -> Result<Option<EntryId>, TierReadError> {
        let index = self.index().await?;
        let block = index.block_of_offset(offset);
        Ok(block.map(|block| index.blocks[block].first))
    }

    /// The first entry of the first block in which a record may be as late as a time; `None`: all are earlier.
    ///
    /// # Errors
    /// As [`TieredReader::index`].
    pub async fn entry_before_time(
        &self,
        timestamp: TimestampMs,
    ) -> Result<Option<EntryId>, TierReadError> {
        let index = self.index().await?;
        let block = index.block_at_time(timestamp);
        Ok(block.map(|block| index.blocks[block].first))
    }

    /// Reads a run of entries that begins at `first`: at least one, those below `end`, until `bytes_max` bytes are reached. Cancel-safe.
    ///
    /// # Errors
    /// [`TierReadError`]. What was read before an error is returned first.
    pub async fn read(
        &self,
        first: EntryId,
        end: EntryId,
        bytes_max: usize,
    ) -> Result<Vec<Entry>, TierReadError> {
        let index = self.index().await?;
        let ledger = self.ledger;
        let last = index.head.totals.end;
        let end = end.min(last);
        if first >= end {
            return Err(TierReadError::BeyondEnd {
                ledger,
                entry: first,
                end: last,
            });
        }
        let mut place = self.take_place();
        if place.next != first {
            // A seek: what was fetched ahead is for nobody.
            place = Place::default();
        }
        let mut found = Vec::new();
        let read = self.read_on(&index, &mut place, (first, end, bytes_max), &mut found);
        let read = read.await;
        place.next = found
            .last()
            .map_or(first, |entry: &Entry| entry.header().entry.next());
        self.put_place(place);
        match read {
            Err(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    async fn read_on(
        &self,
        index: &Arc<Index>,
        place: &mut Place,
        (first, end, bytes_max): (EntryId, EntryId, usize),
        found: &mut Vec<Entry>,
    ) -> Result<(), TierReadError> {
        let ledger = self.ledger;
        let format = |error| TierReadError::Format { ledger, error };
        let (mut next, mut bytes) = (first, 0);
        while next < end && (found.is_empty() || bytes < bytes_max) {
            let read = place.entries.as_mut().and_then(Iterator::next);
            let Some(entry) = read else {
                let mut entries = self.open_block(index, place, next).await?;
                entries.seek(next).map_err(format)?;
                place.entries = Some(entries);
                continue;
            };
            let entry = entry.map_err(format)?;
            bytes += entry.header().entry_len();
            next = entry.header().entry.next();
            found.push(entry);
        }
        Ok(())
    }

    async fn open_block(
        &self,
        index: &Arc<Index>,
        place: &mut Place,
        entry: EntryId,
    ) -> Result<Entries, TierReadError> {
        let (ledger, end) = (self.ledger, index.head.totals.end);
        let block = index.block_of(entry);
        let block = block.ok_or(TierReadError::BeyondEnd { ledger, entry, end })?;
        if index.blocks[block].first == entry {
            self.read_ahead(index, place, block + 1);
        }
        let row = &index.blocks[block];
        let attempt = &self.segment.attempt;
        let found = self.reads.blocks.get(ledger, attempt, row).await;
        Ok(found.map_err(|error| self.object(error))?.entries())
    }

    /// Fetches the next blocks into the cache, as far as the store's permits are free: who needs a block now comes first.
    fn read_ahead(&self, index: &Arc<Index>, place: &mut Place, from: usize) {
        while place.fetching.try_join_next().is_some() {}
        let to = (from + self.reads.read_ahead).min(index.blocks.len());
        for block in from.max(place.ahead)..to {
            let row = index.blocks[block];
            if self.reads.fetcher.is_busy(u64::from(row.bytes)) {
                return;
            }
            place.ahead = block + 1;
            let (reads, segment) = (Arc::clone(&self.reads), Arc::clone(&self.segment));
            let ledger = self.ledger;
            place.fetching.spawn(async move {
                if !reads.blocks.holds(&segment.attempt, &row) {
                    // Whoever reads the block sees why it cannot be had.
                    let _ = reads.blocks.get(ledger, &segment.attempt, &row).await;
                }
            });
        }
    }

    fn take_place(&self) -> Place {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *place)
    }

    fn put_place(&self, found: Place) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}
