//! A sparse map from offsets to entries of one ledger. A hint that is always right but never complete.

use hulse_proto::id::{EntryId, Offset};

/// Entries between two points that a look-up reads through rather than halves.
pub(super) const NEAR_ENTRIES: u64 = 64;
/// Points kept per ledger; beyond it every second one goes.
const POINTS_MAX: usize = 4096;

/// Known first offsets of entries, in order.
#[derive(Debug, Default)]
pub(crate) struct EntryIndex(Vec<(Offset, EntryId)>);

impl EntryIndex {
    /// An index that knows where the ledger begins.
    pub(crate) fn starting_at(base: Offset) -> Self {
        Self(vec![(base, EntryId(0))])
    }

    /// Remembers that `entry` begins at `first`.
    pub(crate) fn note(&mut self, first: Offset, entry: EntryId) {
        match self.0.binary_search_by_key(&first, |(offset, _)| *offset) {
            Ok(at) => self.0[at].1 = entry,
            Err(at) => self.0.insert(at, (first, entry)),
        }
        if self.0.len() > POINTS_MAX {
            let mut keep = false;
            self.0.retain(|(_, entry)| {
                keep = !keep;
                keep || entry.0 == 0
            });
        }
    }

    /// As [`EntryIndex::note`], but only when no point stands near before it: for entries noted in order as they are appended.
    pub(crate) fn note_sparsely(&mut self, first: Offset, entry: EntryId) {
        let near = self
            .0
            .last()
            .is_some_and(|(_, last)| entry.0 < last.0 + NEAR_ENTRIES / 2);
        if !near {
            self.note(first, entry);
        }
    }

    /// The last point at or before `offset` and the entry of the first one after it.
    pub(crate) fn around(&self, offset: Offset) -> (EntryId, Option<EntryId>) {
        let behind = self.0.partition_point(|(first, _)| *first <= offset);
        let below = match behind.checked_sub(1) {
            Some(at) => self.0[at].1,
            None => EntryId(0),
        };
        let above = self.0.get(behind).map(|(_, entry)| *entry);
        (below, above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_stays_bounded_and_right() {
        let mut index = EntryIndex::starting_at(Offset(100));
        for entry in 1..20_000_u64 {
            index.note(Offset(100 + entry * 3), EntryId(entry));
        }
        assert!(index.0.len() <= POINTS_MAX);
        for offset in (100..60_000).step_by(7) {
            let (below, above) = index.around(Offset(offset));
            assert!(100 + below.0 * 3 <= offset);
            assert!(above.is_none_or(|above| 100 + above.0 * 3 > offset));
        }
    }
}
