//! Acks that one transaction has staged, by cursor (serving.md C7).

use std::collections::BTreeMap;

use hulse_proto::id::SubscriptionId;
use serving_dispatch::{OffsetRange, OffsetRanges};

/// Acks of one cursor.
pub type Stage = (SubscriptionId, Vec<OffsetRange>);

/// Acks of one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StagedAcks(BTreeMap<SubscriptionId, OffsetRanges>);

impl StagedAcks {
    pub(super) fn insert(&mut self, subscription: SubscriptionId, range: OffsetRange) {
        self.0.entry(subscription).or_default().insert(range);
    }

    pub(super) fn forget(&mut self, subscription: SubscriptionId) {
        self.0.remove(&subscription);
    }

    /// Of this cursor.
    pub fn of(&self, subscription: SubscriptionId) -> Option<&OffsetRanges> {
        self.0.get(&subscription)
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&SubscriptionId, &OffsetRanges)> {
        self.0.iter()
    }

    /// The same, to be acknowledged or given back.
    pub fn stages(&self) -> Vec<Stage> {
        let stage = |(id, ranges): (&SubscriptionId, &OffsetRanges)| (*id, ranges.iter().collect());
        self.0.iter().map(stage).collect()
    }

    /// How many ranges.
    pub fn len(&self) -> usize {
        self.0.values().map(OffsetRanges::len).sum()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Some of `range` is staged.
    pub(super) fn overlaps(&self, subscription: SubscriptionId, range: OffsetRange) -> bool {
        let ranges = self.0.get(&subscription);
        ranges.is_some_and(|ranges| ranges.within(range).next().is_some())
    }
}
