//! What there is of as often as ledgers times files, packed: the runs of a ledger's entries in sealed files, and the shares that ledgers
//! have in a sealed file.

use std::ops::Range;

use hulse_proto::id::LedgerId;

use super::entries::ColdRun;
use super::packed::{Packed, PackedList, put, put_difference, take, take_difference};
use super::summary::LedgerShare;

impl Packed for ColdRun {
    fn key(&self) -> u64 {
        self.first
    }

    fn before(key: u64) -> Self {
        Self {
            first: key,
            entries: 0,
            file: 0,
            slot: 0,
        }
    }

    fn pack(&self, before: &Self, out: &mut Vec<u8>) {
        put(self.first - before.end(), out);
        put(u64::from(self.entries), out);
        put_difference(self.file, before.file, out);
        put(u64::from(self.slot), out);
    }

    fn unpack(before: &Self, bytes: &mut &[u8]) -> Self {
        Self {
            first: before.end() + take(bytes),
            entries: take(bytes) as u32,
            file: take_difference(before.file, bytes),
            slot: take(bytes) as u32,
        }
    }

    fn file(&self) -> u32 {
        self.file
    }
}

impl Packed for LedgerShare {
    fn key(&self) -> u64 {
        self.ledger.0
    }

    fn before(key: u64) -> Self {
        Self {
            ledger: LedgerId(key),
            entries: 0,
            bytes: 0,
        }
    }

    fn pack(&self, before: &Self, out: &mut Vec<u8>) {
        put(self.ledger.0 - before.ledger.0, out);
        put(u64::from(self.entries), out);
        put(u64::from(self.bytes), out);
    }

    fn unpack(before: &Self, bytes: &mut &[u8]) -> Self {
        Self {
            ledger: LedgerId(before.ledger.0 + take(bytes)),
            entries: take(bytes) as u32,
            bytes: take(bytes) as u32,
        }
    }

    fn file(&self) -> u32 {
        0
    }
}

/// Runs of one ledger, sorted, none overlapping another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColdRuns(PackedList<ColdRun>);

impl ColdRuns {
    /// Adds a run behind all others.
    pub fn push(&mut self, run: ColdRun) {
        self.0.push(run);
    }

    /// Changes the runs that meet `range`, and some beside them, which are given in order and must stay so.
    pub fn edit(&mut self, range: Range<u64>, change: impl FnOnce(&mut Vec<ColdRun>)) {
        self.0.edit(range.start, range.end, change);
    }

    /// The run that holds an entry.
    pub fn at(&self, entry: u64) -> Option<ColdRun> {
        let run = self.0.last_at_most(entry)?;
        (entry < run.end()).then_some(run)
    }

    /// Exclusive end of the last one; 0: there is none.
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, |run| run.end())
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = ColdRun> + '_ {
        self.0.iter()
    }

    /// Those in one file, in order.
    pub fn of_file(&self, file: u32) -> impl Iterator<Item = ColdRun> + '_ {
        self.0.of_file(file)
    }

    /// True without runs.
    pub fn is_empty(&self) -> bool {
        self.0.last().is_none()
    }

    /// Memory beside the value itself, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

impl FromIterator<ColdRun> for ColdRuns {
    fn from_iter<I: IntoIterator<Item = ColdRun>>(runs: I) -> Self {
        let mut all = Self::default();
        runs.into_iter().for_each(|run| all.push(run));
        all
    }
}

/// What a sealed file holds of which ledgers, sorted by ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares(PackedList<LedgerShare>);

impl Shares {
    /// The share of a ledger.
    pub fn of(&self, ledger: LedgerId) -> Option<LedgerShare> {
        let found = self.0.last_at_most(ledger.0)?;
        (found.ledger == ledger).then_some(found)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = LedgerShare> + '_ {
        self.0.iter()
    }

    /// Memory beside the value itself, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

impl FromIterator<LedgerShare> for Shares {
    /// They must come in the order of their ledgers.
    fn from_iter<I: IntoIterator<Item = LedgerShare>>(shares: I) -> Self {
        let mut all = PackedList::default();
        shares.into_iter().for_each(|share| all.push(share));
        all.shrink();
        Self(all)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_come_back_as_they_were_pushed(
            rows in prop::collection::vec((0..1_u64 << 40, 1..u32::MAX, any::<u32>(), any::<u32>()), 0..200),
        ) {
            let mut runs: Vec<ColdRun> = Vec::new();
            for (gap, entries, file, slot) in rows {
                let first = runs.last().map_or(0, ColdRun::end) + gap;
                runs.push(ColdRun { first, entries, file, slot });
            }
            let packed: ColdRuns = runs.iter().copied().collect();
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), runs.clone());
            prop_assert_eq!(packed.end(), runs.last().map_or(0, ColdRun::end));
            for (number, run) in runs.iter().enumerate() {
                for entry in [run.first, run.end() - 1] {
                    prop_assert_eq!(packed.at(entry), Some(*run));
                }
                let gap = runs.get(number + 1).is_none_or(|next| next.first > run.end());
                prop_assert_eq!(packed.at(run.end()).is_none(), gap);
            }
        }

        #[test]
        fn shares_are_found_by_their_ledgers(
            ledgers in prop::collection::btree_map(any::<u64>(), any::<(u32, u32)>(), 0..200),
            other in any::<u64>(),
        ) {
            let share = |(ledger, (entries, bytes)): (&u64, &(u32, u32))| LedgerShare { ledger: LedgerId(*ledger), entries: *entries, bytes: *bytes };
            let shares: Shares = ledgers.iter().map(share).collect();
            prop_assert_eq!(shares.iter().collect::<Vec<_>>(), ledgers.iter().map(share).collect::<Vec<_>>());
            for row in &ledgers {
                prop_assert_eq!(shares.of(share(row).ledger), Some(share(row)));
            }
            prop_assert_eq!(shares.of(LedgerId(other)).is_some(), ledgers.contains_key(&other));
        }
    }

    proptest! {
        /// Against a plain list.
        #[test]
        fn edits_in_any_order_keep_the_rest_in_order(
            count in 0..300_u64,
            edits in prop::collection::vec((0..400_u64, 1..40_u64, any::<bool>()), 0..20),
        ) {
            let run = |number: u64, file: u32| ColdRun { first: number * 10, entries: 5, file, slot: number as u32 };
            let mut plain: Vec<ColdRun> = (0..count).map(|number| run(number, 1)).collect();
            let mut packed: ColdRuns = plain.iter().copied().collect();
            for (edit, (first, length, keeps)) in edits.into_iter().enumerate() {
                let (first, end) = (first * 10, (first + length) * 10);
                let file = edit as u32 + 2;
                let inside = |run: &ColdRun| (first..end).contains(&run.first);
                let change = |runs: &mut Vec<ColdRun>| {
                    runs.retain(|run| !inside(run));
                    let at = runs.partition_point(|run| run.first < first);
                    let new = (first / 10..end / 10).filter(|_| keeps).map(|number| run(number, file));
                    runs.splice(at..at, new);
                };
                packed.edit(first..end, change);
                change(&mut plain);
                prop_assert_eq!(packed.iter().collect::<Vec<_>>(), plain.clone());
                let of_file: Vec<ColdRun> = plain.iter().filter(|run| run.file == file).copied().collect();
                prop_assert_eq!(packed.of_file(file).collect::<Vec<_>>(), of_file);
                prop_assert_eq!(packed.end(), plain.last().map_or(0, ColdRun::end));
                prop_assert_eq!(&packed, &plain.iter().copied().collect::<ColdRuns>());
            }
        }
    }

    #[test]
    fn runs_of_files_that_many_ledgers_share_take_some_bytes_each() {
        let run = |file: u32| ColdRun {
            first: u64::from(file) * 62,
            entries: 62,
            file,
            slot: 61_000,
        };
        let runs: ColdRuns = (0..3200).map(run).collect();
        let bytes = runs.memory_bytes();
        assert!(bytes < 3200 * 9, "{bytes} bytes for 3200 runs");
    }
}
