//! Places of entries, all in memory: those of files that are not sealed.

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

    /// Takes a copy of an entry. Of several copies the one that stands last in the log is kept, so that order does not matter; only
    /// one that took the place of a damaged copy comes after another.
    pub fn insert(&mut self, entry: EntryId, slot: Slot) {
        match self.find(entry.0) {
            Ok(index) => {
                let run = &mut self.runs[index];
                let kept = &mut run.slots[(entry.0 - run.first) as usize];
                if slot.location > kept.location {
                    *kept = slot;
                }
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

    /// The runs: first entry and slots.
    pub fn iter(&self) -> impl Iterator<Item = (EntryId, &[Slot])> + '_ {
        let runs = self.runs.iter();
        runs.map(|run| (EntryId(run.first), &run.slots[..]))
    }

    /// The first entry of the first run behind `entry`, which is in none.
    pub fn next_after(&self, entry: EntryId) -> Option<EntryId> {
        let after = self.runs.partition_point(|run| run.first <= entry.0);
        self.runs.get(after).map(|run| EntryId(run.first))
    }

    /// Forgets what lies in a file.
    pub fn drop_file(&mut self, file: u32) {
        let runs = std::mem::take(&mut self.runs);
        for run in runs {
            let kept = run.slots.iter().filter(|slot| slot.location.file != file);
            match kept.count() {
                0 => {}
                all if all == run.slots.len() => self.runs.push(run),
                _ => self.keep_others(&run, file),
            }
        }
    }

    fn keep_others(&mut self, run: &Run, file: u32) {
        let mut first = run.first;
        for some in run
            .slots
            .chunk_by(|a, b| (a.location.file == file) == (b.location.file == file))
        {
            if some[0].location.file != file {
                self.runs.push(Run {
                    first,
                    slots: some.to_vec(),
                });
            }
            first += some.len() as u64;
        }
    }

    /// Exclusive end of the highest entry; 0: none.
    pub fn end(&self) -> EntryId {
        EntryId(self.runs.last().map_or(0, Run::end))
    }

    /// Memory beside the value itself, bytes.
    pub fn memory_bytes(&self) -> usize {
        let slots: usize = self.runs.iter().map(|run| run.slots.capacity()).sum();
        self.runs.capacity() * size_of::<Run>() + slots * size_of::<Slot>()
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}
