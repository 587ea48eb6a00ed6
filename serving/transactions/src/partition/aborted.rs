//! Which ranges of the log belong to aborted transactions (serving.md C6.4; Kafka's transaction index).

use hulse_proto::id::{Offset, ProducerId};

/// An aborted transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Aborted {
    /// Its first offset.
    pub first: Offset,
    /// Its marker's.
    pub last: Offset,
    /// Whose.
    pub producer: ProducerId,
    /// The last stable offset behind its marker: whatever was aborted later begins at or above it.
    pub stable: Offset,
}

/// Aborted transactions, in the order of their markers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AbortedIndex(Vec<Aborted>);

impl AbortedIndex {
    /// Adds one whose marker stands behind all others'.
    pub(super) fn push(&mut self, aborted: Aborted) {
        self.0.push(aborted);
    }

    /// Those that have something in `from..end`, by their first offsets. O(log n + what is looked at).
    pub fn overlapping(&self, from: Offset, end: Offset) -> Vec<Aborted> {
        let begin = self.0.partition_point(|aborted| aborted.last < from);
        let mut found = Vec::new();
        for aborted in &self.0[begin..] {
            if aborted.first < end {
                found.push(*aborted);
            }
            if aborted.stable >= end {
                break;
            }
        }
        found.sort_unstable();
        found
    }

    /// Forgets those whose marker stands below `to`: they are trimmed, or settled in the metadata of their ledgers (ARCHITECTURE D7).
    pub fn forget_below(&mut self, to: Offset) {
        let gone = self.0.partition_point(|aborted| aborted.last < to);
        self.0.drain(..gone);
    }

    /// Forgets those whose marker is lost.
    pub(super) fn drop_from(&mut self, end: Offset) {
        self.0.retain(|aborted| aborted.last < end);
    }

    /// All, in the order of their markers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Aborted> {
        self.0.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
