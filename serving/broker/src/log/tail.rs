//! The last entries of a partition, in memory (storage.md K4): what tailing readers want.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use hulse_proto::entry::Envelope;
use hulse_proto::id::{EntryId, Offset};

/// Entries below this size are copied in, since a slice would pin the much larger buffer of the wire (dependencies.md 1.6).
const COPY_BYTES_MAX: usize = 64 << 10;
/// One partition's share of the budget, as a divisor.
const SHARE: usize = 4;

/// Bytes of recent entries over all partitions.
#[derive(Debug, Clone)]
pub(crate) struct TailBudget {
    used: Arc<AtomicUsize>,
    max: usize,
}

impl TailBudget {
    /// At most `max` bytes, and one entry per partition.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            used: Arc::default(),
            max,
        }
    }
}

/// An entry of the log as its owner made it.
#[derive(Debug, Clone)]
pub(crate) struct LogEntry {
    pub(crate) entry: EntryId,
    pub(crate) first: Offset,
    pub(crate) end: Offset,
    pub(crate) envelope: Arc<Envelope>,
    /// What the envelope describes; joined by the first reader that wants it.
    pub(crate) body: Vec<Bytes>,
    /// Envelope and body.
    pub(crate) payload_len: usize,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Tail {
    entries: VecDeque<LogEntry>,
    bytes: usize,
    budget: TailBudget,
}

impl Tail {
    pub(crate) fn new(budget: TailBudget) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            budget,
        }
    }

    /// Adds the next confirmed entry and drops the oldest beyond the budget.
    pub(crate) fn push(&mut self, mut entry: LogEntry) {
        if entry.payload_len < COPY_BYTES_MAX {
            entry.body = vec![join(&entry.body)];
        }
        self.bytes += entry.payload_len;
        self.budget
            .used
            .fetch_add(entry.payload_len, Ordering::Relaxed);
        self.entries.push_back(entry);
        while self.entries.len() > 1 && self.over_budget() {
            self.pop();
        }
    }

    fn over_budget(&self) -> bool {
        self.bytes > self.budget.max / SHARE
            || self.budget.used.load(Ordering::Relaxed) > self.budget.max
    }

    fn pop(&mut self) {
        if let Some(old) = self.entries.pop_front() {
            self.bytes -= old.payload_len;
            self.budget
                .used
                .fetch_sub(old.payload_len, Ordering::Relaxed);
        }
    }

    /// Entries from the one that holds `start`, about `max_bytes` of them; empty when `start` is not here.
    pub(crate) fn from(&mut self, start: Offset, max_bytes: usize) -> Vec<LogEntry> {
        let begin = self.entries.partition_point(|entry| entry.end <= start);
        let mut found = Vec::new();
        let mut bytes = 0;
        if self
            .entries
            .get(begin)
            .is_none_or(|entry| entry.first > start)
        {
            return found;
        }
        for entry in self.entries.range_mut(begin..) {
            if entry.body.len() > 1 {
                entry.body = vec![join(&entry.body)]; // Once for all readers.
            }
            bytes += entry.payload_len;
            found.push(entry.clone());
            if bytes >= max_bytes {
                break;
            }
        }
        found
    }
}

fn join(parts: &[Bytes]) -> Bytes {
    let mut all = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| all.extend_from_slice(part));
    all.freeze()
}

impl LogEntry {
    /// The body as one run; a tail's entries have been joined.
    pub(crate) fn joined(&self) -> Bytes {
        match &self.body[..] {
            [one] => one.clone(),
            parts => join(parts),
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
