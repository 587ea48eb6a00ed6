//! A partition of the broker's, with one cursor.

use bytes::Bytes;
use hulse_proto::batch::{BatchBuilder, BatchHeader, Compression, RecordRef, place};
use hulse_proto::id::{Offset, OwnerEpoch};
use hulse_proto::wire::v1;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::super::ranges::RangeSet;

/// Offsets that hold no record.
const SKIPPED: u64 = 3;

pub(super) fn batch(base: u64, records: u64) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None).unwrap();
    for _ in 0..records {
        let record = RecordRef {
            timestamp: 1,
            key: None,
            value: Some(b"x"),
            headers: &[],
        };
        builder.push(&record).unwrap();
    }
    Bytes::from(place(&builder.build(None), Offset(base), OwnerEpoch(1)).concat())
}

/// A partition with one cursor.
pub(super) struct Stored {
    pub(super) batches: Vec<(u64, Bytes)>,
    pub(super) end: u64,
    pub(super) acked: RangeSet,
    pub(super) base: u64,
    pub(super) state_epoch: u32,
    pub(super) leader_epoch: u32,
}

impl Stored {
    pub(super) fn new(rng: &mut ChaCha8Rng, records: u64) -> Self {
        let (mut batches, mut end) = (Vec::new(), 0);
        while end < records {
            let count = rng.random_range(1..=12);
            batches.push((end, batch(end, count)));
            end += count;
            if rng.random_bool(0.1) {
                end += SKIPPED;
            }
        }
        Self {
            batches,
            end,
            acked: RangeSet::default(),
            base: 0,
            state_epoch: 1,
            leader_epoch: 1,
        }
    }

    pub(super) fn ack(&mut self, range: std::ops::Range<u64>) {
        self.acked.insert(range);
        let first = self.acked.iter().next();
        if let Some(first) = first.filter(|first| first.start <= self.base) {
            self.base = self.base.max(first.end);
            self.acked.remove_below(self.base);
        }
        // Holes are nobody's to acknowledge.
        while self.base < self.end && !self.holds(self.base) {
            self.base += 1;
            let first = self.acked.iter().next();
            if let Some(first) = first.filter(|first| first.start <= self.base) {
                self.base = self.base.max(first.end);
                self.acked.remove_below(self.base);
            }
        }
    }

    pub(super) fn holds(&self, offset: u64) -> bool {
        self.batches.iter().any(|(base, bytes)| {
            let end = BatchHeader::view(bytes).unwrap().end_offset().0;
            (*base..end).contains(&offset)
        })
    }

    /// What comes at `from`: a batch and where it ends, or a hole.
    pub(super) fn delivery(&self, from: u64, acked: &RangeSet) -> Option<v1::Delivery> {
        if from >= self.end {
            return None;
        }
        let at = self.batches.iter().find(|(base, bytes)| {
            let end = BatchHeader::view(bytes).unwrap().end_offset().0;
            end > from && *base <= from
        });
        let mut delivery = v1::Delivery {
            prev_end_offset: from,
            state_epoch: self.state_epoch,
            high_watermark: self.end,
            ..Default::default()
        };
        match at {
            Some((_, bytes)) => {
                let end = BatchHeader::view(bytes).unwrap().end_offset().0;
                delivery.end_offset = end;
                let mut left = RangeSet::default();
                left.insert(from..end);
                left.remove_all(acked);
                let mut gone = RangeSet::default();
                gone.insert(from..end);
                left.iter().for_each(|range| gone.remove(range));
                delivery.acquired = left
                    .iter()
                    .map(|range| v1::AcquiredRange {
                        first: range.start,
                        end: range.end,
                        delivery_count: 0,
                    })
                    .collect();
                delivery.skipped = gone
                    .iter()
                    .map(|r| skipped(r, v1::SkipReason::Acked))
                    .collect();
                if !delivery.acquired.is_empty() {
                    delivery.batch = bytes.clone();
                }
            }
            None => {
                let next = self
                    .batches
                    .iter()
                    .map(|(base, _)| *base)
                    .find(|base| *base > from);
                let end = next.unwrap_or(self.end);
                delivery.end_offset = end;
                delivery
                    .skipped
                    .push(skipped(from..end, v1::SkipReason::Lost));
            }
        }
        Some(delivery)
    }
}

pub(super) fn skipped(range: std::ops::Range<u64>, reason: v1::SkipReason) -> v1::SkippedRange {
    v1::SkippedRange {
        first: range.start,
        end: range.end,
        reason: reason as i32,
    }
}

pub(super) fn wire(ranges: &RangeSet) -> Vec<v1::OffsetRange> {
    let ranges = ranges.iter().map(|range| v1::OffsetRange {
        first: range.start,
        end: range.end,
    });
    ranges.collect()
}
