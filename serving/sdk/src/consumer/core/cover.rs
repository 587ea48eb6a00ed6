//! Whether a delivery follows what came before, and whether it explains each of its offsets (serving.md E3).

use std::ops::Range;

use hulse_proto::batch::BatchHeader;
use hulse_proto::wire::v1;

use super::event::SkipReason;
use crate::error::{Error, Gap};
use crate::reader::RecordBatch;

/// A delivery that was checked.
#[derive(Debug)]
pub(super) struct Covered {
    /// `None`: it only says what was skipped.
    pub(super) batch: Option<RecordBatch>,
    /// Disjoint, in order, within the batch.
    pub(super) acquired: Vec<Range<u64>>,
    /// What an application may want to know of.
    pub(super) skipped: Vec<(Range<u64>, SkipReason)>,
    pub(super) end: u64,
}

/// Checks a delivery of `partition` that must begin at `expected`.
///
/// # Errors
/// A gap: an offset is neither delivered nor skipped, or twice. A batch that is none.
pub(super) fn cover(
    partition: u32,
    expected: u64,
    delivery: v1::Delivery,
) -> Result<Covered, Error> {
    let gap = |expected, got| {
        Error::from_gap(Gap {
            partition,
            expected,
            got,
        })
    };
    let begin = delivery.prev_end_offset;
    if begin != expected {
        return Err(gap(expected, begin));
    }
    let acquired: Vec<Range<u64>> = delivery.acquired.iter().map(|r| r.first..r.end).collect();
    let skipped = delivery.skipped.iter().map(|r| r.first..r.end);
    let mut ranges: Vec<Range<u64>> = acquired.iter().cloned().chain(skipped).collect();
    ranges.sort_by_key(|range| range.start);
    let mut at = begin;
    for range in ranges {
        if range.start != at || range.end <= at {
            return Err(gap(at, range.start));
        }
        at = range.end;
    }
    if at != delivery.end_offset {
        return Err(gap(at, delivery.end_offset));
    }
    let skipped = delivery.skipped.iter();
    let skipped = skipped.filter_map(|r| SkipReason::of(r).map(|why| (r.first..r.end, why)));
    let skipped = skipped.collect();
    let batch = match acquired.is_empty() {
        true => None,
        false => Some(batch_of(partition, &acquired, &delivery)?),
    };
    Ok(Covered {
        batch,
        acquired,
        skipped,
        end: at,
    })
}

fn batch_of(
    partition: u32,
    acquired: &[Range<u64>],
    delivery: &v1::Delivery,
) -> Result<RecordBatch, Error> {
    let header = BatchHeader::view(&delivery.batch)?;
    let within = header.base_offset.0..header.end_offset().0;
    let outside = |range: &&Range<u64>| range.start < within.start || range.end > within.end;
    if let Some(range) = acquired.iter().find(outside) {
        return Err(Error::wrong_answer(&format!(
            "offsets {} to {} of partition {partition} in a batch of {} to {}",
            range.start, range.end, within.start, within.end
        )));
    }
    if acquired.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return Err(Error::wrong_answer("acquired ranges out of order"));
    }
    Ok(RecordBatch {
        partition,
        header,
        bytes: delivery.batch.clone(),
        append_time: delivery.append_time,
    })
}
