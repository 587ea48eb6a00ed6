//! Batches that were read and wait for consumers: the shell keeps their bytes, this which ones and how many records of each are wanted.

use std::collections::BTreeMap;

use crate::facts::Batch;
use crate::range::OffsetRange;

/// A batch whose bytes the shell keeps.
#[derive(Debug)]
struct Buffered {
    end: u64,
    bytes: u32,
    /// Records of it that wait and are not stalled.
    wanted: u64,
}

/// Batches whose bytes the shell keeps, by first offset.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    batches: BTreeMap<u64, Buffered>,
    bytes: u64,
    /// Nobody wants them, maybe.
    idle: Vec<u64>,
}

impl Buffer {
    /// The batch that holds an offset, and its bytes.
    pub(crate) fn at(&self, offset: u64) -> Option<(OffsetRange, u32)> {
        let (first, batch) = self.batches.range(..=offset).next_back()?;
        (batch.end > offset).then(|| (OffsetRange::new(*first, batch.end), batch.bytes))
    }

    fn at_mut(&mut self, offset: u64) -> Option<(u64, &mut Buffered)> {
        let (first, batch) = self.batches.range_mut(..=offset).next_back()?;
        (batch.end > offset).then_some((*first, batch))
    }

    pub(crate) fn want(&mut self, offset: u64, records: u64) {
        if let Some((_, batch)) = self.at_mut(offset) {
            batch.wanted += records;
        }
    }

    pub(crate) fn unwant(&mut self, offset: u64, records: u64) {
        if let Some((first, batch)) = self.at_mut(offset) {
            batch.wanted -= records;
            if batch.wanted == 0 {
                self.idle.push(first);
            }
        }
    }

    pub(crate) fn insert(&mut self, batch: &Batch, wanted: u64) {
        let buffered = Buffered {
            end: batch.range.end.0,
            bytes: batch.bytes,
            wanted,
        };
        self.bytes += u64::from(batch.bytes);
        let before = self.batches.insert(batch.range.first.0, buffered);
        self.bytes -= before.map_or(0, |before| u64::from(before.bytes));
        self.idle.push(batch.range.first.0);
    }

    pub(crate) fn remove(&mut self, first: u64) -> Option<OffsetRange> {
        let batch = self.batches.remove(&first)?;
        self.bytes -= u64::from(batch.bytes);
        Some(OffsetRange::new(first, batch.end))
    }

    /// Takes out what nobody wants, and what is too much.
    pub(crate) fn trim(&mut self, bytes_max: u64) -> Vec<OffsetRange> {
        let mut gone = Vec::new();
        for first in std::mem::take(&mut self.idle) {
            let unwanted = self.batches.get(&first).is_some_and(|it| it.wanted == 0);
            if unwanted {
                gone.extend(self.remove(first));
            }
        }
        while self.bytes > bytes_max
            && let Some(last) = self.batches.last_key_value().map(|(first, _)| *first)
        {
            gone.extend(self.remove(last));
        }
        gone
    }

    /// All of it goes.
    pub(crate) fn clear(&mut self) -> Vec<OffsetRange> {
        self.idle.clear();
        self.bytes = 0;
        let all = std::mem::take(&mut self.batches).into_iter();
        all.map(|(first, batch)| OffsetRange::new(first, batch.end))
            .collect()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}
