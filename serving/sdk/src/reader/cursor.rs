//! Where a partition's reading stands, and whether what comes next follows. No I/O.

use hulse_proto::batch::BatchHeader;
use hulse_proto::wire::v1;

use super::record::RecordBatch;
use crate::error::{Error, Gap};

/// The state of one partition.
#[derive(Debug)]
pub(super) struct Cursor {
    partition: u32,
    /// The first offset that was not delivered or explained yet.
    position: u64,
    /// Where the last message of this stream ended; `None` before its first.
    covered: Option<u64>,
}

/// One message, checked.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) partition: u32,
    pub(crate) batches: Vec<RecordBatch>,
    /// Ranges that no batch has, with the reason.
    pub(crate) skipped: Vec<v1::SkippedRange>,
    /// Every offset below is delivered or explained.
    pub(crate) end: u64,
    pub(crate) high_watermark: u64,
    /// Offsets that were lost and given up by an operator.
    pub(crate) lost: u64,
    /// Length of the batches.
    pub(crate) bytes: usize,
}

impl Cursor {
    pub(super) fn new(partition: u32, position: u64) -> Self {
        Self {
            partition,
            position,
            covered: None,
        }
    }

    /// Where the next stream begins.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// A new stream begins at [`Self::position`].
    pub(super) fn begin_stream(&mut self) {
        self.covered = None;
    }

    /// Takes a message.
    ///
    /// # Errors
    /// A gap: an offset that is neither in a batch nor skipped, or one that comes twice. A batch that is no batch.
    pub(super) fn accept(&mut self, message: v1::ReadBatches) -> Result<Chunk, Error> {
        let begin = message.prev_end_offset;
        match self.covered {
            Some(covered) if begin != covered => return Err(self.gap(covered, begin)),
            // The asked start may lie inside the first batch.
            None if begin > self.position => return Err(self.gap(self.position, begin)),
            _ => {}
        }
        let mut ranges = message.skipped;
        ranges.sort_by_key(|range| range.first);
        let skipped = ranges.clone();
        let mut ranges = ranges.into_iter().peekable();
        let mut at = begin;
        let mut lost = 0;
        let mut bytes = 0;
        let mut batches = Vec::with_capacity(message.batches.len());
        for (index, batch) in message.batches.into_iter().enumerate() {
            let header = BatchHeader::view(&batch)?;
            let base = header.base_offset.0;
            while let Some(range) = ranges.next_if(|range| range.first == at && range.end <= base) {
                lost += lost_by(&range);
                at = range.end.max(at);
            }
            if base != at {
                return Err(self.gap(at, base));
            }
            at = header.end_offset().0;
            bytes += batch.len();
            let append_time = message.append_times.get(index).copied();
            batches.push(RecordBatch {
                partition: self.partition,
                header,
                bytes: batch,
                append_time: append_time.unwrap_or(header.max_timestamp),
            });
        }
        for range in ranges {
            if range.first != at || range.end <= at {
                return Err(self.gap(at, range.first));
            }
            lost += lost_by(&range);
            at = range.end;
        }
        self.covered = Some(at);
        self.position = self.position.max(at);
        Ok(Chunk {
            partition: self.partition,
            batches,
            skipped,
            end: at,
            high_watermark: message.high_watermark,
            lost,
            bytes,
        })
    }

    /// Checks the end that a stream claims.
    ///
    /// # Errors
    /// A gap: it claims to have sent what it has not.
    pub(super) fn accept_end(&self, offset: u64) -> Result<(), Error> {
        match self.covered.unwrap_or(self.position) {
            at if at == offset => Ok(()),
            at => Err(self.gap(at, offset)),
        }
    }

    fn gap(&self, expected: u64, got: u64) -> Error {
        Error::from_gap(Gap {
            partition: self.partition,
            expected,
            got,
        })
    }
}

fn lost_by(range: &v1::SkippedRange) -> u64 {
    match range.reason() {
        v1::SkipReason::Lost => range.end.saturating_sub(range.first),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hulse_proto::batch::{BatchBuilder, Compression, RecordRef, place};
    use hulse_proto::id::{Offset, OwnerEpoch};

    use super::*;

    fn batch(base: u64, records: u32) -> Bytes {
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

    fn message(prev_end: u64, batches: &[(u64, u32)], skipped: &[(u64, u64)]) -> v1::ReadBatches {
        let ranges = skipped.iter().map(|(first, end)| v1::SkippedRange {
            first: *first,
            end: *end,
            reason: v1::SkipReason::Lost as i32,
        });
        v1::ReadBatches {
            prev_end_offset: prev_end,
            batches: batches
                .iter()
                .map(|(base, count)| batch(*base, *count))
                .collect(),
            skipped: ranges.collect(),
            high_watermark: 100,
            ..Default::default()
        }
    }

    fn gap_of(error: &Error) -> (u64, u64) {
        let gap = error.gap().unwrap();
        (gap.expected, gap.got)
    }

    #[test]
    fn messages_that_follow_are_taken_and_skipped_ranges_explain() {
        let mut cursor = Cursor::new(0, 12);
        let chunk = cursor
            .accept(message(10, &[(10, 5), (20, 2)], &[(22, 30), (15, 20)]))
            .unwrap();
        assert_eq!((chunk.end, chunk.lost, chunk.batches.len()), (30, 13, 2));
        let chunk = cursor.accept(message(30, &[(30, 1)], &[])).unwrap();
        assert_eq!(chunk.end, 31);
        cursor.accept_end(31).unwrap();
        assert_eq!(gap_of(&cursor.accept_end(32).unwrap_err()), (31, 32));
        cursor.begin_stream();
        assert_eq!(cursor.position(), 31);
        cursor.accept(message(31, &[(31, 1)], &[])).unwrap();
    }

    #[test]
    fn gaps_and_repeats_are_found() {
        let fresh = || Cursor::new(0, 12);
        let error = fresh().accept(message(13, &[], &[])).unwrap_err();
        assert_eq!(gap_of(&error), (12, 13));
        let error = fresh().accept(message(12, &[(14, 1)], &[])).unwrap_err();
        assert_eq!(gap_of(&error), (12, 14));
        let error = fresh()
            .accept(message(12, &[(12, 3), (14, 1)], &[]))
            .unwrap_err();
        assert_eq!(gap_of(&error), (15, 14));
        let error = fresh()
            .accept(message(12, &[(12, 1)], &[(14, 15)]))
            .unwrap_err();
        assert_eq!(gap_of(&error), (13, 14));
        let mut cursor = fresh();
        cursor.accept(message(12, &[(12, 3)], &[])).unwrap();
        let error = cursor.accept(message(16, &[(16, 1)], &[])).unwrap_err();
        assert_eq!(gap_of(&error), (15, 16));
        let error = cursor.accept(message(12, &[(12, 3)], &[])).unwrap_err();
        assert_eq!(gap_of(&error), (15, 12));
        let mut broken = message(15, &[], &[]);
        broken.batches.push(Bytes::from_static(b"no batch"));
        assert!(cursor.accept(broken).unwrap_err().gap().is_none());
    }
}
