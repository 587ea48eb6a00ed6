//! What a producer has done so far, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// A snapshot; every number counts from the producer's beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProducerStats {
    /// Records in batches that were handed to a link for the first time.
    pub records_sent: u64,
    /// Batches likewise.
    pub batches_sent: u64,
    /// Bytes of every batch handed to a link, resends included.
    pub bytes_sent: u64,
    /// Records that the broker confirmed (acks none: that were handed to the link).
    pub records_stored: u64,
    /// Batches that turned out to be stored already.
    pub batches_duplicate: u64,
    /// Records that failed.
    pub records_failed: u64,
    /// Of these, records whose tickets had been dropped.
    pub tickets_lost: u64,
    /// Refusals, NACKED_BEFORE not counted.
    pub refusals: u64,
    /// Lanes opened: the first one of each partition and every one after a break.
    pub lanes_opened: u64,
    /// Bytes of the memory budget that are taken now.
    pub unacked_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) records_sent: AtomicU64,
    pub(crate) batches_sent: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) records_stored: AtomicU64,
    pub(crate) batches_duplicate: AtomicU64,
    pub(crate) records_failed: AtomicU64,
    pub(crate) refusals: AtomicU64,
    pub(crate) lanes_opened: AtomicU64,
}

impl Counters {
    pub(super) fn snapshot(&self) -> ProducerStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProducerStats {
            records_sent: read(&self.records_sent),
            batches_sent: read(&self.batches_sent),
            bytes_sent: read(&self.bytes_sent),
            records_stored: read(&self.records_stored),
            batches_duplicate: read(&self.batches_duplicate),
            records_failed: read(&self.records_failed),
            refusals: read(&self.refusals),
            lanes_opened: read(&self.lanes_opened),
            ..ProducerStats::default()
        }
    }
}

pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
