//! Cuts what was read into units of delivery: one stored batch each, and which of its records are meant.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use hulse_proto::batch::BatchHeader;
use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;
use hulse_proto::wire::v1;

use crate::state::{OffsetRange, OffsetRanges};
use crate::{ReadChunk, SkipReason};

/// Passed-over ranges that are kept for the next unit; with more they are told without a batch.
const CARRIED_MAX: usize = 1_000;

/// One stored batch, or only what was passed over.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unit {
    pub(super) prev_end: Offset,
    pub(super) end: Offset,
    pub(super) batch: Bytes,
    pub(super) append_time: TimestampMs,
    pub(super) acquired: Vec<OffsetRange>,
    pub(super) skipped: Vec<v1::SkippedRange>,
}

impl Unit {
    /// Records that are delivered.
    pub(super) fn records(&self) -> u64 {
        self.acquired.iter().map(OffsetRange::len).sum()
    }
}

/// Where a lane reads, and what it has passed over since its last unit.
#[derive(Debug)]
pub(super) struct Cut {
    /// Where the last unit ended.
    prev_end: Offset,
    /// Where to read on.
    position: Offset,
    /// Not to be delivered.
    acked: Arc<OffsetRanges>,
    carried: Vec<v1::SkippedRange>,
}

impl Cut {
    pub(super) fn new(base: Offset, acked: Arc<OffsetRanges>) -> Self {
        Self {
            prev_end: base,
            position: base,
            acked,
            carried: Vec::new(),
        }
    }

    /// Where to read on.
    pub(super) fn position(&self) -> Offset {
        self.position
    }

    /// The log begins at `log_start`. Answers what is not delivered any more.
    pub(super) fn trimmed(&mut self, log_start: Offset) -> Option<OffsetRange> {
        let gone = OffsetRange {
            first: self.position,
            end: log_start,
        };
        if gone.is_empty() {
            return None;
        }
        self.pass(gone, v1::SkipReason::Trimmed);
        Some(gone)
    }

    /// Cuts a chunk that was read at [`Cut::position`]. Answers what holds no record at all.
    pub(super) fn cut(&mut self, chunk: ReadChunk, units: &mut VecDeque<Unit>) -> Vec<OffsetRange> {
        let mut empty = Vec::new();
        let mut skipped = chunk.skipped.into_iter().peekable();
        for batch in chunk.batches {
            let Ok(header) = BatchHeader::view(&batch.bytes) else {
                continue;
            };
            while let Some(skip) = skipped.next_if(|skip| skip.0 < header.base_offset) {
                empty.extend(self.skip(skip));
            }
            let within = OffsetRange {
                first: header.base_offset.max(self.position),
                end: header.end_offset(),
            };
            let acquired = self.acked.missing(within);
            let known: Vec<_> = self.acked.within(within).collect();
            for range in known {
                self.carry(range, v1::SkipReason::Acked);
            }
            self.position = self.position.max(within.end);
            if !acquired.is_empty() {
                let unit = self.unit(batch.bytes, batch.append_time, acquired);
                units.push_back(unit);
            } else if self.carried.len() > CARRIED_MAX {
                let unit = self.unit(Bytes::new(), batch.append_time, Vec::new());
                units.push_back(unit);
            }
        }
        for skip in skipped {
            empty.extend(self.skip(skip));
        }
        self.position = self.position.max(chunk.end);
        empty
    }

    fn unit(&mut self, batch: Bytes, append_time: TimestampMs, acquired: Vec<OffsetRange>) -> Unit {
        let prev_end = std::mem::replace(&mut self.prev_end, self.position);
        Unit {
            prev_end,
            end: self.position,
            batch,
            append_time,
            acquired,
            skipped: std::mem::take(&mut self.carried),
        }
    }

    fn skip(&mut self, (first, end, why): (Offset, Offset, SkipReason)) -> Option<OffsetRange> {
        let why = match why {
            SkipReason::Control => v1::SkipReason::Control,
            SkipReason::Compacted => v1::SkipReason::Compacted,
            SkipReason::Lost => v1::SkipReason::Lost,
        };
        let range = OffsetRange {
            first: first.max(self.position),
            end,
        };
        if range.is_empty() {
            return None;
        }
        self.pass(range, why);
        Some(range)
    }

    fn pass(&mut self, range: OffsetRange, why: v1::SkipReason) {
        self.position = range.end;
        self.carry(range, why);
    }

    fn carry(&mut self, range: OffsetRange, why: v1::SkipReason) {
        if let Some(last) = self.carried.last_mut()
            && last.end == range.first.0
            && last.reason == why as i32
        {
            last.end = range.end.0;
            return;
        }
        self.carried.push(v1::SkippedRange {
            first: range.first.0,
            end: range.end.0,
            reason: why as i32,
        });
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::batch::{BatchBuilder, Compression, RecordRef, place};
    use hulse_proto::id::OwnerEpoch;

    use super::*;
    use crate::ReadBatch;

    fn batch(base: u64, records: u32) -> ReadBatch {
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
        let placed = place(&builder.build(None), Offset(base), OwnerEpoch(1));
        let bytes = Bytes::from(placed.concat());
        ReadBatch {
            entry_bytes: bytes.len(),
            bytes,
            append_time: 1,
        }
    }

    fn range(first: u64, end: u64) -> OffsetRange {
        OffsetRange {
            first: Offset(first),
            end: Offset(end),
        }
    }

    fn chunk(batches: Vec<ReadBatch>, skipped: Vec<(u64, u64)>, end: u64) -> ReadChunk {
        let skipped = skipped.into_iter();
        ReadChunk {
            prev_end: Offset(0),
            batches,
            skipped: skipped
                .map(|(first, end)| (Offset(first), Offset(end), SkipReason::Lost))
                .collect(),
            end: Offset(end),
            high_watermark: Offset(1_000),
        }
    }

    /// Everything between two units is delivered or explained.
    fn covered(units: &VecDeque<Unit>) {
        let mut at = None;
        for unit in units {
            assert_eq!(at.unwrap_or(unit.prev_end), unit.prev_end);
            let mut all: Vec<(u64, u64)> = unit
                .acquired
                .iter()
                .map(|range| (range.first.0, range.end.0))
                .chain(unit.skipped.iter().map(|range| (range.first, range.end)))
                .collect();
            all.sort_unstable();
            let mut next = unit.prev_end.0;
            for (first, end) in all {
                assert_eq!(first, next, "{unit:?}");
                next = end;
            }
            assert_eq!(next, unit.end.0, "{unit:?}");
            at = Some(unit.end);
        }
    }

    #[test]
    fn units_cover_every_offset_with_what_is_delivered_and_what_is_not() {
        let acked = [range(12, 14), range(20, 30), range(41, 42)];
        let mut cut = Cut::new(Offset(11), Arc::new(acked.into_iter().collect()));
        let mut units = VecDeque::new();
        let batches = vec![batch(10, 10), batch(20, 10), batch(35, 10)];
        let empty = cut.cut(chunk(batches, vec![(30, 35)], 45), &mut units);
        assert_eq!(empty, [range(30, 35)]);
        covered(&units);
        assert_eq!(units.len(), 2, "a batch of which all is acked is not sent");
        assert_eq!(units[0].acquired, [range(11, 12), range(14, 20)]);
        assert_eq!(units[1].acquired, [range(35, 41), range(42, 45)]);
        assert_eq!(units[1].prev_end, Offset(20));
        assert_eq!(cut.position(), Offset(45));
    }

    #[test]
    fn what_was_trimmed_is_told_with_the_next_unit() {
        let mut cut = Cut::new(Offset(5), Arc::default());
        assert_eq!(cut.trimmed(Offset(3)), None);
        assert_eq!(cut.trimmed(Offset(10)), Some(range(5, 10)));
        let mut units = VecDeque::new();
        cut.cut(chunk(vec![batch(8, 4)], vec![], 12), &mut units);
        covered(&units);
        assert_eq!((units[0].prev_end, units[0].end), (Offset(5), Offset(12)));
        assert_eq!(units[0].acquired, [range(10, 12)]);
    }
}
