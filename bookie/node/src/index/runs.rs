//! The entries of one ledger.

use hulse_proto::entry::EntryDigest;
use hulse_proto::id::EntryId;

/// Where a record stands: frame and content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Number of the log file.
    pub file: u32,
    /// Of the frame, from the file's start.
    pub offset: u32,
    /// Of frame and content together.
    pub bytes: u32,
}

/// An entry: where, and what identifies its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Where.
    pub location: Location,
    /// Checksums of its content.
    pub digest: EntryDigest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    first: u64,
    slots: Vec<Slot>,
}

impl Run {
    fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }
}

/// Runs of consecutive entries, sorted, never touching. The common ledger has one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs {
    runs: Vec<Run>,
}

impl Runs {
    /// Position of the run that holds `entry`, or where one would be inserted.
    fn find(&self, entry: u64) -> Result<usize, usize> {
        let after = self.runs.partition_point(|run| run.first <= entry);
        match after.checked_sub(1) {
            Some(index) if entry < self.runs[index].end() => Ok(index),
            _ => Err(after),
        }
    }

    /// The slot of an entry.
    pub fn get(&self, entry: EntryId) -> Option<Slot> {
        let run = &self.runs[self.find(entry.0).ok()?];
        Some(run.slots[(entry.0 - run.first) as usize])
    }

    /// The slots of `first..` as far as they are consecutive.
    pub fn from(&self, first: EntryId) -> &[Slot] {
        match self.find(first.0) {
            Ok(index) => {
                let run = &self.runs[index];
                &run.slots[(first.0 - run.first) as usize..]
            }
            Err(_) => &[],
        }
    }

    /// Takes a copy of an entry. Of several copies the one that stands first in the log is kept, so that order does not matter.
    pub fn insert(&mut self, entry: EntryId, slot: Slot) {
        match self.find(entry.0) {
            Ok(index) => {
                let run = &mut self.runs[index];
                let kept = &mut run.slots[(entry.0 - run.first) as usize];
                if slot.location < kept.location {
                    *kept = slot;
                }
            }
            Err(after) => self.insert_new(entry.0, slot, after),
        }
    }

    /// Puts a copy in the place of a damaged one.
    pub fn replace(&mut self, entry: EntryId, slot: Slot) {
        match self.find(entry.0) {
            Ok(index) => {
                let run = &mut self.runs[index];
                run.slots[(entry.0 - run.first) as usize] = slot;
            }
            Err(after) => self.insert_new(entry.0, slot, after),
        }
    }

    fn insert_new(&mut self, entry: u64, slot: Slot, after: usize) {
        let joins_left = after > 0 && self.runs[after - 1].end() == entry;
        let joins_right = self
            .runs
            .get(after)
            .is_some_and(|run| run.first == entry + 1);
        match (joins_left, joins_right) {
            (true, false) => self.runs[after - 1].slots.push(slot),
            (true, true) => {
                let right = self.runs.remove(after);
                let left = &mut self.runs[after - 1].slots;
                left.push(slot);
                left.extend(right.slots);
            }
            (false, true) => {
                let right = &mut self.runs[after];
                right.first = entry;
                right.slots.insert(0, slot);
            }
            (false, false) => {
                let run = Run {
                    first: entry,
                    slots: vec![slot],
                };
                self.runs.insert(after, run);
            }
        }
    }

    /// Exclusive end of the highest entry; 0: none.
    pub fn end(&self) -> EntryId {
        EntryId(self.runs.last().map_or(0, Run::end))
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.slots.len()).sum()
    }
}
