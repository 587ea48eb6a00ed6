//! Which item is due next, whatever stands before it in the log (serving.md C9.4).
//!
//! What is due soon is in order; what is due later lies in buckets, unsorted, until its time comes near. An entry that its item does not
//! stand for any more is stale: whoever takes it out compares.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::time::TimestampMs;

use super::item::ItemId;

/// How much time a bucket has. Ms.
const BUCKET_MS: TimestampMs = 60_000;

/// Times of items.
#[derive(Debug, Default)]
pub(super) struct DueIndex {
    near: BTreeSet<(TimestampMs, ItemId)>,
    far: BTreeMap<TimestampMs, Vec<(TimestampMs, ItemId)>>,
    /// What is due before is near.
    horizon: TimestampMs,
}

impl DueIndex {
    pub(super) fn insert(&mut self, due: TimestampMs, id: ItemId) {
        if due < self.horizon {
            self.near.insert((due, id));
        } else {
            let bucket = due.div_euclid(BUCKET_MS);
            self.far.entry(bucket).or_default().push((due, id));
        }
    }

    /// Takes out one that is due.
    pub(super) fn take(&mut self, now: TimestampMs) -> Option<(TimestampMs, ItemId)> {
        self.come_near(now);
        let first = self.near.first().copied()?;
        (first.0 <= now).then(|| {
            self.near.remove(&first);
            first
        })
    }

    /// When the next one is due, or comes near.
    pub(super) fn next(&self) -> Option<TimestampMs> {
        let near = self.near.first().map(|(due, _)| *due);
        let far = self.far.keys().next();
        let far = far.map(|bucket| bucket.saturating_mul(BUCKET_MS));
        near.into_iter().chain(far).min()
    }

    fn come_near(&mut self, now: TimestampMs) {
        let horizon = now.div_euclid(BUCKET_MS).saturating_add(1);
        let later = self.far.split_off(&horizon);
        let soon = std::mem::replace(&mut self.far, later);
        self.near.extend(soon.into_values().flatten());
        self.horizon = self.horizon.max(horizon.saturating_mul(BUCKET_MS));
    }
}
