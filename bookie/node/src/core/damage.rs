//! What is known of damage to the log, for people. Damaged entries are found by reads and by scrub, and put on record, up to a bound: the
//! next start tells of them at once, and looks at each again before scrub goes on. So what is told is never older than that look, and a
//! disk that came back right is believed. Ranges that a start found damaged are told until their file is gone, or until nobody lacks
//! anything by them any more.

use hulse_proto::id::{EntryId, LedgerId};

use super::NodeCore;
use super::groups::STATE_RECORD_BYTES;
use super::node_core::Purpose;
use super::state::DAMAGED_RUNS_MAX;
use crate::index::Wanted;
use crate::log::{DamagedRange, DamagedRun, Record};

/// Runs of entries, and ranges, that are listed.
const LISTED_MAX: usize = 10_000;
/// Damaged entries that one look goes over.
const PAGE_ENTRIES: usize = 4_096;

/// Entries in a row that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedEntries {
    /// Of this ledger.
    pub ledger: LedgerId,
    /// The first.
    pub first: EntryId,
    /// Exclusive.
    pub end: EntryId,
    /// Number of the log file.
    pub file: u32,
}

/// All of it, up to a bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownDamage {
    /// In the order of ledgers and entries.
    pub entries: Vec<DamagedEntries>,
    /// Bytes of which nobody knows what they were.
    pub ranges: Vec<DamagedRange>,
    /// Damaged entries, and ranges, that are not listed.
    pub more: u64,
}

impl KnownDamage {
    fn entry(&mut self, (ledger, entry): (LedgerId, EntryId), file: u32) {
        let end = entry.next();
        let full = self.entries.len() == LISTED_MAX;
        match self.entries.last_mut() {
            Some(last) if (last.ledger, last.end, last.file) == (ledger, entry, file) => {
                last.end = end;
            }
            _ if full => self.more += 1,
            _ => self.entries.push(DamagedEntries {
                ledger,
                first: entry,
                end,
                file,
            }),
        }
    }
}

impl NodeCore {
    /// Adds the damaged entries behind this one, as many as one may look at while everybody waits, and the last time what starts found
    /// damaged in files that are there. Where the next page begins.
    pub fn damage_page(
        &self,
        after: Option<(LedgerId, EntryId)>,
        into: &mut KnownDamage,
    ) -> Option<(LedgerId, EntryId)> {
        let mut last = None;
        let mut looked = 0;
        for (at, file) in self.state.damaged_after(after).take(PAGE_ENTRIES) {
            if let Some(file) = file {
                into.entry(at, file);
            }
            last = Some(at);
            looked += 1;
        }
        if looked == PAGE_ENTRIES {
            return last;
        }
        let mut ranges = self.damaged_ranges();
        into.more += ranges.len().saturating_sub(LISTED_MAX) as u64;
        ranges.truncate(LISTED_MAX);
        into.ranges = ranges;
        None
    }
}

impl NodeCore {
    /// An entry's bytes are wrong in this file, which is where it counts, or the event is late.
    pub(super) fn entry_damaged(&mut self, (ledger, entry): (LedgerId, EntryId), file: u32) {
        let at = (ledger, entry);
        if !self.state.is_in(at, file) {
            return;
        }
        if let Some(state) = self.state.ledgers.get_mut(&ledger) {
            state.damaged.insert(entry);
        }
        self.reclaiming.doubtful.remove(&at);
        let known = self.state.found_damaged.insert(at, file) == Some(file);
        let room = self.admit_bytes(STATE_RECORD_BYTES, Purpose::Passing);
        let told = self.state.found_damaged.len() > DAMAGED_RUNS_MAX;
        if !known && !told && self.check_log().is_ok() && room.is_ok() {
            let end = entry.next();
            let first = entry;
            self.groups.append(&Record::DamagedEntries(DamagedRun {
                ledger,
                first,
                end,
                file,
            }));
        }
    }

    /// An entry that an earlier boot found damaged, and the file in which; it is to be looked at.
    pub fn doubtful(&self) -> Option<((LedgerId, EntryId), u32, Wanted)> {
        self.reclaiming.doubtful.iter().find_map(|at| {
            let file = *self.state.found_damaged.get(at)?;
            let ledger = self.state.ledgers.get(&at.0)?;
            let wanted = ledger.entries.want(at.1)?;
            self.state.is_in(*at, file).then_some((*at, file, wanted))
        })
    }

    /// It was looked at: `whole` says that it is right, or counts elsewhere by now.
    pub(super) fn damage_checked(&mut self, at: (LedgerId, EntryId), whole: bool) {
        self.reclaiming.doubtful.remove(&at);
        if whole {
            self.state.found_damaged.remove(&at);
        }
    }

    /// Ranges that starts found damaged, in files that are there, and by which something may be missing still.
    pub(super) fn damaged_ranges(&self) -> Vec<DamagedRange> {
        let ranges = self.state.known_damage.iter();
        let there = ranges.filter(|range| {
            !self.state.removed.contains(range.file) && !self.state.covered_damage.contains(range)
        });
        there.copied().collect()
    }

    /// True when there are any.
    pub fn has_damaged_ranges(&self) -> bool {
        !self.damaged_ranges().is_empty()
    }

    /// Nothing is missing by these any more, as metadata and all that is held here prove.
    pub(super) fn cover(&mut self, ranges: &[DamagedRange]) {
        for range in ranges {
            let room = self.admit_bytes(STATE_RECORD_BYTES, Purpose::Passing);
            if self.check_log().is_err() || room.is_err() {
                return;
            }
            let known = self.state.known_damage.contains(range);
            if known && self.state.covered_damage.insert(*range) {
                self.groups.append(&Record::DamageCovered(*range));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_damaged_runs_are_counted_and_not_listed() {
        let mut known = KnownDamage::default();
        let ledger = LedgerId(1);
        let runs = LISTED_MAX as u64 + 5;
        for run in 0..runs {
            // Two in a row, then one that is whole.
            known.entry((ledger, EntryId(3 * run)), 7);
            known.entry((ledger, EntryId(3 * run + 1)), 7);
        }
        assert_eq!(known.entries.len(), LISTED_MAX);
        assert_eq!(
            known.entries[1].first..known.entries[1].end,
            EntryId(3)..EntryId(5)
        );
        assert_eq!(known.more, 10);
    }
}
