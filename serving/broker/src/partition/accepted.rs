//! A batch that was accepted and waits for its entry.

use std::collections::VecDeque;

use bytes::Bytes;
use hulse_proto::batch::{BatchHeader, stamp_append_time};
use hulse_proto::entry::BatchSummary;
use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use super::core::PartitionCore;
use crate::state::{MetaState, PartitionState};

/// It, with its place in the log.
#[derive(Debug)]
pub(super) struct Accepted<T> {
    pub(super) base: Offset,
    pub(super) header: BatchHeader,
    /// The placed batch in two runs of bytes.
    pub(super) parts: [Bytes; 2],
    pub(super) ticket: T,
}

impl<T> Accepted<T> {
    /// Gives its records the time of the append.
    pub(super) fn stamp(&mut self, time: TimestampMs) {
        self.parts = stamp_append_time(&self.parts, time);
        let head = BatchHeader::view_head(&self.parts[0]);
        self.header = head.expect("a stamped batch has a header");
    }
}

impl<M: MetaState, T> PartitionCore<M, T> {
    /// Gives the room of a busy time back: thousands of partitions are open and idle.
    pub(super) fn cool(&mut self) {
        if self.is_idle() {
            self.queue = VecDeque::new();
            self.in_flight = VecDeque::new();
        }
    }
}

/// What the envelope says of a batch.
pub(super) fn batch_summary(header: &BatchHeader) -> BatchSummary {
    BatchSummary {
        length: header.length,
        span: header.span(),
        count: header.count,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        attributes: header.attributes,
        base_sequence: header.base_sequence,
        max_timestamp: header.max_timestamp,
        hash_min: 0,
        hash_max: u16::MAX,
        expires_at: 0,
        base_timestamp: header.base_timestamp,
    }
}

impl<M: MetaState, T> PartitionCore<M, T> {
    /// By mutation only: the state with all that was accepted, confirmed or not.
    pub(super) fn accepted_state(&self) -> PartitionState<M> {
        let mut state = self.state.clone();
        state.log.producers = self.accepted.clone();
        state.log.end = self.next_offset;
        state
    }
}
