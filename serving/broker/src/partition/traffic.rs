//! How much goes in and out of a partition, for the balance of load over brokers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::log::ReadChunk;

/// Bytes of batches, in and out, since the partition was opened.
#[derive(Debug, Default)]
pub(crate) struct Traffic(AtomicU64);

impl Traffic {
    /// A batch is on its way into the log.
    pub(super) fn taken(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Batches go to a reader.
    pub(super) fn given(&self, chunk: &ReadChunk) {
        let bytes: usize = chunk.batches.iter().map(|batch| batch.bytes.len()).sum();
        self.taken(bytes);
    }

    /// Both.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
