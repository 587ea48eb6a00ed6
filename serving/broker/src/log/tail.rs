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
    /// At most `max` bytes.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            used: Arc::default(),
            max,
        }
    }

    fn is_exceeded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.max
    }

    fn is_scarce(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.max / 4 * 3
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
    /// Something was added since [`Tail::cool`].
    warm: bool,
    budget: TailBudget,
}

impl Tail {
    pub(crate) fn new(budget: TailBudget) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            warm: false,
            budget,
        }
    }

    /// Adds the next confirmed entry and drops the oldest beyond the budget, be it this one: thousands of partitions with one
    /// large entry each would hold far more than the budget.
    pub(crate) fn push(&mut self, mut entry: LogEntry) {
        if entry.payload_len < COPY_BYTES_MAX {
            entry.body = vec![join(&entry.body)];
        }
        self.bytes += entry.payload_len;
        self.budget
            .used
            .fetch_add(entry.payload_len, Ordering::Relaxed);
        if self.entries.is_empty() {
            // No more room than that: most partitions are idle, with the one entry they began with.
            self.entries.reserve_exact(1);
        }
        self.entries.push_back(entry);
        self.warm = true;
        while !self.entries.is_empty() && self.over_budget() {
            self.pop();
        }
    }

    /// Called from time to time: gives everything back when nothing was added meanwhile and others may need the room, else idle
    /// partitions would keep it for ever.
    pub(crate) fn cool(&mut self) {
        if !std::mem::take(&mut self.warm) && self.budget.is_scarce() {
            while !self.entries.is_empty() {
                self.pop();
            }
        }
    }

    /// Drops what lies wholly below `start`.
    pub(crate) fn drop_before(&mut self, start: Offset) {
        while self.entries.front().is_some_and(|entry| entry.end <= start) {
            self.pop();
        }
    }

    fn over_budget(&self) -> bool {
        self.bytes > self.budget.max / SHARE || self.budget.is_exceeded()
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
                // The wire wants a batch as one run of bytes, and its head was written apart; once for all readers.
                entry.body = vec![join(&entry.body)];
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

#[cfg(test)]
mod tests {
    use hulse_proto::entry::EntryKind;

    use super::*;

    fn entry(first: u64, bytes: usize) -> LogEntry {
        let envelope = Envelope {
            kind: EntryKind::Data,
            append_time: 0,
            running_max_timestamp: 0,
            batches: vec![],
        };
        LogEntry {
            entry: EntryId(first),
            first: Offset(first),
            end: Offset(first + 1),
            envelope: Arc::new(envelope),
            body: vec![Bytes::from(vec![0; bytes])],
            payload_len: bytes,
        }
    }

    #[test]
    fn tails_of_many_partitions_stay_within_the_budget_together() {
        let budget = TailBudget::new(1000);
        let mut tails: Vec<Tail> = (0..100).map(|_| Tail::new(budget.clone())).collect();
        for tail in &mut tails {
            tail.push(entry(0, 100));
            assert!(budget.used.load(Ordering::Relaxed) <= 1000);
        }
        drop(tails);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn tail_of_an_idle_partition_makes_room_for_a_busy_one() {
        let budget = TailBudget::new(1000);
        let mut idle: Vec<Tail> = (0..10).map(|_| Tail::new(budget.clone())).collect();
        idle.iter_mut().for_each(|tail| tail.push(entry(0, 100)));
        let mut busy = Tail::new(budget.clone());
        busy.push(entry(7, 100));
        assert!(busy.from(Offset(7), 1).is_empty());
        for _ in 0..2 {
            idle.iter_mut().for_each(Tail::cool);
        }
        busy.push(entry(8, 100));
        assert_eq!(busy.from(Offset(8), 1).len(), 1);
        assert!(
            idle.iter_mut()
                .any(|tail| !tail.from(Offset(0), 1).is_empty()),
            "no more than is needed is given up"
        );
    }
}
