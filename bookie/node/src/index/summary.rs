//! What is kept in memory of each sealed file for reclaim, and sets of file numbers.

use std::collections::BTreeMap;

use hulse_proto::id::LedgerId;

use super::lists::Shares;
use crate::log::FileKind;

/// What a file holds of one ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerShare {
    /// The ledger.
    pub ledger: LedgerId,
    /// Entries.
    pub entries: u32,
    /// Bytes of their records.
    pub bytes: u32,
}

/// A sealed file: what it holds, of which ledgers (storage.md G7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSummary {
    /// Its number.
    pub file: u32,
    /// Its kind.
    pub kind: FileKind,
    /// The newest log file that its entries come from; of a log file its own number.
    pub newest: u32,
    /// Its length on the disk.
    pub bytes: u64,
    /// Logical end of its body.
    pub end: u64,
    /// By ledger; a ledger's entries here may be copies of what another file holds, too.
    pub shares: Shares,
}

impl FileSummary {
    /// Orders it among other files that hold the same entries.
    pub fn provenance(&self) -> Provenance {
        Provenance {
            newest: self.newest,
            file: self.file,
        }
    }
}

/// Of two copies of an entry in sealed files the one of the greater provenance counts. A copy is only ever appended, behind everything
/// that the log held then; so it comes after what is compacted from older log files, whatever number that file has, and before what
/// is compacted from its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Provenance {
    /// The newest log file that entries of the file come from.
    pub newest: u32,
    /// The file.
    pub file: u32,
}

impl Provenance {
    /// Of a log file.
    pub fn of_log(file: u32) -> Self {
        Self { newest: file, file }
    }
}

/// A set of numbers, as ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdRanges {
    /// First to exclusive end; neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
}

impl IdRanges {
    /// Adds `first..end`.
    pub fn insert(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let (mut from, mut to) = (first, end);
        let touching = self.ranges.range(..=end).rev();
        let merged: Vec<(u64, u64)> = touching
            .take_while(|(_, last)| **last >= first)
            .map(|(first, last)| (*first, *last))
            .collect();
        for (other, last) in merged {
            self.ranges.remove(&other);
            (from, to) = (from.min(other), to.max(last));
        }
        self.ranges.insert(from, to);
    }

    /// True when `number` is in it.
    pub fn contains(&self, number: u64) -> bool {
        let before = self.ranges.range(..=number).next_back();
        before.is_some_and(|(_, end)| number < *end)
    }

    /// Exclusive end of the highest number; 0: none.
    pub fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, end)| *end)
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(first, end)| (*first, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_what_touches() {
        let mut set = IdRanges::default();
        for (first, end) in [(5, 6), (1, 2), (2, 3), (9, 9), (4, 5), (20, 30), (25, 26)] {
            set.insert(first, end);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [(1, 3), (4, 6), (20, 30)]);
        set.insert(2, 21);
        assert_eq!(set.iter().collect::<Vec<_>>(), [(1, 30)]);
        assert!(set.contains(1) && set.contains(29) && !set.contains(30) && !set.contains(0));
    }
}
