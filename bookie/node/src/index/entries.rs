//! The entries of one ledger: places of those in files that are not sealed, runs of those in sealed ones.
//!
//! # Invariants
//! 1. Runs neither overlap nor are empty; they are sorted.
//! 2. Of several copies in sealed files, the one of the greatest [`Provenance`] counts; one in a file that is not sealed counts before
//!    them all. So a copy that took the place of a damaged one is found, and what compaction moved is found where it is now.

use std::ops::Range;

use hulse_proto::id::EntryId;

use super::lists::ColdRuns;
use super::runs::{Runs, Slot};
use super::summary::Provenance;
use super::wanted::{Part, Wanted};

/// Consecutive entries in a sealed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColdRun {
    /// The first entry.
    pub first: u64,
    /// How many; at least 1.
    pub entries: u32,
    /// The file.
    pub file: u32,
    /// The first entry's slot among the file's; the others follow.
    pub slot: u32,
}

impl ColdRun {
    /// Exclusive end.
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.entries)
    }

    /// The part of it inside `range`, which it meets.
    fn cut(&self, range: &Range<u64>) -> Option<Self> {
        let (first, end) = (self.first.max(range.start), self.end().min(range.end));
        (first < end).then(|| Self {
            first,
            entries: (end - first) as u32,
            slot: self.slot + (first - self.first) as u32,
            ..*self
        })
    }
}

/// The entries of a ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    hot: Runs,
    cold: ColdRuns,
}

impl Entries {
    /// True when an entry is held.
    pub fn contains(&self, entry: EntryId) -> bool {
        self.hot.get(entry).is_some() || self.cold.at(entry.0).is_some()
    }

    /// The place of an entry that lies in no sealed file.
    pub fn hot(&self, entry: EntryId) -> Option<Slot> {
        self.hot.get(entry)
    }

    /// The file in which an entry lies, if it is held.
    pub fn file_of(&self, entry: EntryId) -> Option<u32> {
        let hot = self.hot.get(entry).map(|slot| slot.location.file);
        hot.or_else(|| self.cold.at(entry.0).map(|run| run.file))
    }

    /// What is to be known of one entry, if it is held.
    pub fn want(&self, entry: EntryId) -> Option<Wanted> {
        let mut wanted = self.want_run(entry, entry.0.checked_add(1)?);
        wanted.bytes = 0;
        (!wanted.parts.is_empty()).then_some(wanted)
    }

    /// The held entries of `first..end` up to the first that is not held. Without a bound on bytes.
    pub fn want_run(&self, first: EntryId, end: u64) -> Wanted {
        let mut parts = Vec::new();
        let mut at = first.0;
        while at < end {
            let hot = self.hot.from(EntryId(at));
            if !hot.is_empty() {
                let some = &hot[..hot.len().min((end - at) as usize)];
                parts.push(Part::Hot(some.to_vec()));
                at += some.len() as u64;
                continue;
            }
            let before_hot = self.hot.next_after(EntryId(at)).map_or(end, |next| next.0);
            let range = at..end.min(before_hot);
            let Some(run) = self.cold.at(at).and_then(|run| run.cut(&range)) else {
                break;
            };
            parts.push(Part::Cold(run));
            at = run.end();
        }
        Wanted {
            first,
            parts,
            bytes: u64::MAX,
            head_bytes: None,
        }
    }

    /// Takes a copy of an entry in a file that is not sealed.
    pub fn insert(&mut self, entry: EntryId, slot: Slot) {
        self.hot.insert(entry, slot);
    }

    /// A file is sealed: its runs take the place of its entries. `provenance` is asked about it, and about other sealed files.
    pub fn seal(&mut self, file: u32, runs: &[ColdRun], provenance: impl Fn(u32) -> Provenance) {
        self.hot.drop_file(file);
        // Ledgers grow upwards, file by file.
        if runs.first().is_none_or(|run| self.cold.end() <= run.first) {
            runs.iter().for_each(|run| self.cold.push(*run));
            return;
        }
        for run in runs {
            let range = run.first..run.end();
            self.cold
                .edit(range, |some| insert_run(some, *run, &provenance));
        }
    }

    /// A file is gone: what lay in it alone is not held any more.
    pub fn drop_file(&mut self, file: u32) {
        self.hot.drop_file(file);
        if self.cold.of_file(file).next().is_some() {
            let kept: Vec<ColdRun> = self.cold.iter().filter(|run| run.file != file).collect();
            self.cold = kept.into_iter().collect();
        }
    }

    /// Runs of sealed files, sorted; each of one file. Of several copies only the one that counts is in them.
    pub fn cold(&self) -> impl Iterator<Item = ColdRun> + '_ {
        self.cold.iter()
    }

    /// Those of them in one file.
    pub fn cold_in(&self, file: u32) -> impl Iterator<Item = ColdRun> + '_ {
        self.cold.of_file(file)
    }

    /// The parts of one of these runs that count: an entry in a file that is not sealed counts before its copies in sealed ones.
    pub fn without_hot(&self, run: ColdRun) -> Vec<ColdRun> {
        let mut parts = Vec::with_capacity(1);
        let mut at = run.first;
        while at < run.end() {
            let hot = self.hot.from(EntryId(at)).len() as u64;
            let end = match hot {
                0 => self.hot.next_after(EntryId(at)).map_or(u64::MAX, |e| e.0),
                _ => at,
            };
            parts.extend(run.cut(&(at..end)));
            at = end.max(at + hot);
        }
        parts
    }

    /// Exclusive end of the highest entry; 0: none.
    pub fn end(&self) -> EntryId {
        self.hot.end().max(EntryId(self.cold.end()))
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.hot.is_empty() && self.cold.is_empty()
    }

    /// The held entries, as ranges that do not touch.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let hot = self.hot.iter();
        let hot = hot.map(|(first, run)| first.0..first.0 + run.len() as u64);
        let mut all: Vec<Range<u64>> = self.cold.iter().map(|run| run.first..run.end()).collect();
        all.extend(hot);
        all.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in all {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }

    /// Memory beside the value itself, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.hot.memory_bytes() + self.cold.memory_bytes()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        let ranges = self.ranges().into_iter();
        ranges.map(|range| (range.end - range.start) as usize).sum()
    }
}

/// Inserts a run into sorted ones: of what both hold, the one of the greater provenance counts.
fn insert_run(runs: &mut Vec<ColdRun>, run: ColdRun, provenance: &impl Fn(u32) -> Provenance) {
    let from = runs.partition_point(|other| other.end() <= run.first);
    let met = runs[from..].partition_point(|other| other.first < run.end());
    let mut pieces = Vec::new();
    let mut at = run.first;
    for other in &runs[from..from + met] {
        if provenance(other.file) >= provenance(run.file) {
            pieces.extend(run.cut(&(at..other.first.max(at))));
            pieces.push(*other);
            at = at.max(other.end());
            continue;
        }
        pieces.extend(other.cut(&(0..run.first)));
        // What of it lies behind the new run comes after it.
        if other.end() > run.end() {
            pieces.extend(run.cut(&(at..run.end())));
            pieces.extend(other.cut(&(run.end()..u64::MAX)));
            at = run.end();
        }
    }
    pieces.extend(run.cut(&(at..run.end().max(at))));
    runs.splice(from..from + met, pieces);
}

#[cfg(test)]
mod tests {
    use hulse_proto::entry::EntryDigest;
    use proptest::prelude::*;

    use super::super::runs::Location;
    use super::*;

    fn slot(file: u32, offset: u32) -> Slot {
        Slot {
            location: Location {
                file,
                offset,
                bytes: 1,
            },
            digest: EntryDigest {
                header_crc: file,
                payload_crc: offset,
            },
        }
    }

    fn run(first: u64, entries: u32, file: u32) -> ColdRun {
        ColdRun {
            first,
            entries,
            file,
            slot: first as u32,
        }
    }

    proptest! {
        /// Against a map from entry to the file that comes last.
        #[test]
        fn cold_runs_in_any_order_give_the_newest_copy_of_each_entry(
            runs in prop::collection::vec((0..40_u64, 1..12_u32, 0..6_u32), 0..20),
            from in prop::collection::vec(0..6_u32, 6),
        ) {
            let provenance = |file: u32| Provenance { newest: from[file as usize].min(file), file };
            let mut entries = Entries::default();
            let mut expected = std::collections::BTreeMap::new();
            for &(first, count, file) in &runs {
                // A file has one slot per entry, so equal entries of equal files have equal slots.
                entries.seal(file, &[run(first, count, file)], provenance);
                for entry in first..first + u64::from(count) {
                    let held = expected.entry(entry).or_insert(file);
                    *held = std::cmp::max_by_key(file, *held, |file| provenance(*file));
                }
            }
            let found: Vec<(u64, u32, u32)> = entries.cold()
                .flat_map(|run| (0..run.entries).map(move |i| (run.first + u64::from(i), run.file, run.slot + i)))
                .collect();
            let expected: Vec<_> = expected.into_iter().map(|(entry, file)| (entry, file, entry as u32)).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn run_through_hot_and_cold_is_one_and_ends_at_a_gap() {
        let mut entries = Entries::default();
        entries.seal(1, &[run(0, 10, 1)], Provenance::of_log);
        for entry in [4, 5, 10, 12] {
            entries.insert(EntryId(entry), slot(7, entry as u32));
        }
        let wanted = entries.want_run(EntryId(2), 100);
        let parts: Vec<(bool, u64)> = wanted
            .parts
            .iter()
            .map(|part| match part {
                Part::Hot(slots) => (true, slots.len() as u64),
                Part::Cold(run) => (false, u64::from(run.entries)),
            })
            .collect();
        assert_eq!(parts, [(false, 2), (true, 2), (false, 4), (true, 1)]);
        assert!(entries.want(EntryId(11)).is_none());
        assert_eq!((entries.len(), entries.end()), (12, EntryId(13)));
        assert_eq!(entries.ranges(), [0..11, 12..13]);
    }

    #[test]
    fn cold_entries_that_count_are_those_without_a_hot_copy() {
        let mut entries = Entries::default();
        entries.seal(1, &[run(0, 10, 1)], Provenance::of_log);
        entries.seal(2, &[run(20, 5, 2)], Provenance::of_log);
        for entry in [0, 4, 5, 24] {
            entries.insert(EntryId(entry), slot(7, entry as u32));
        }
        let count = |run: ColdRun| -> Vec<(u64, u32, u32)> {
            let parts = entries.without_hot(run).into_iter();
            parts
                .map(|part| (part.first, part.entries, part.slot))
                .collect()
        };
        assert_eq!(count(run(0, 10, 1)), [(1, 3, 1), (6, 4, 6)]);
        assert_eq!(count(run(20, 5, 2)), [(20, 4, 20)]);
        assert_eq!(count(run(4, 2, 1)), []);
    }

    #[test]
    fn sealed_file_gives_up_its_places_and_no_others() {
        let mut entries = Entries::default();
        for entry in 0..4 {
            entries.insert(EntryId(entry), slot(3, entry as u32));
        }
        entries.insert(EntryId(2), slot(4, 0));
        entries.seal(3, &[run(0, 4, 3)], Provenance::of_log);
        assert!(entries.hot(EntryId(1)).is_none());
        assert_eq!(entries.hot(EntryId(2)), Some(slot(4, 0)));
        assert_eq!(entries.cold().collect::<Vec<_>>(), [run(0, 4, 3)]);
        entries.drop_file(3);
        assert_eq!(entries.ranges().first(), Some(&(2..3)));
    }
}
