//! Cuts what was read into messages that stay small, so that no message comes near the largest one a client takes.

use hulse_proto::batch::BatchHeader;
use hulse_proto::id::{Offset, OwnerEpoch};
use hulse_proto::wire::v1;

use crate::{ReadBatch, ReadChunk, SkipReason};

/// A message is closed before the batch that would lift it above this; a larger batch has a message of its own.
const MESSAGE_BATCH_BYTES: usize = 1 << 20;

/// One or more messages that together cover `[chunk.prev_end, chunk.end)`, each from the end of the one before.
pub(super) fn split(chunk: ReadChunk, leader_epoch: OwnerEpoch) -> Vec<v1::ReadBatches> {
    let mut skipped = chunk.skipped.into_iter().map(to_wire).peekable();
    let mut messages = Vec::new();
    let mut open = empty(chunk.prev_end, chunk.high_watermark, leader_epoch);
    let mut bytes_open = 0;
    let mut end = chunk.prev_end;
    for ReadBatch {
        bytes, append_time, ..
    } in chunk.batches
    {
        if bytes_open > 0 && bytes_open + bytes.len() > MESSAGE_BATCH_BYTES {
            while let Some(range) = skipped.next_if(|range| range.first < end.0) {
                open.skipped.push(range);
            }
            let next = empty(end, chunk.high_watermark, leader_epoch);
            messages.push(std::mem::replace(&mut open, next));
            bytes_open = 0;
        }
        // A stored batch has a header; one that had none would only lose its place in the cut.
        end = BatchHeader::view(&bytes).map_or(end, |header| header.end_offset());
        bytes_open += bytes.len();
        open.batches.push(bytes);
        open.append_times.push(append_time);
    }
    open.skipped.extend(skipped);
    messages.push(open);
    messages
}

/// How many records a batch claims.
pub(super) fn records(batch: &[u8]) -> u64 {
    BatchHeader::view(batch).map_or(0, |header| u64::from(header.count))
}

fn empty(prev_end: Offset, high_watermark: Offset, leader_epoch: OwnerEpoch) -> v1::ReadBatches {
    v1::ReadBatches {
        prev_end_offset: prev_end.0,
        high_watermark: high_watermark.0,
        leader_epoch: leader_epoch.0,
        ..Default::default()
    }
}

fn to_wire((first, end, reason): (Offset, Offset, SkipReason)) -> v1::SkippedRange {
    let reason = match reason {
        SkipReason::Control => v1::SkipReason::Control,
        SkipReason::Compacted => v1::SkipReason::Compacted,
        SkipReason::Lost => v1::SkipReason::Lost,
    };
    v1::SkippedRange {
        first: first.0,
        end: end.0,
        reason: reason as i32,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hulse_proto::batch::{BatchBuilder, Compression, RecordRef, place};

    use super::*;

    fn batch(base: u64, bytes: usize) -> ReadBatch {
        let value = vec![b'x'; bytes];
        let mut builder = BatchBuilder::new(Compression::None).unwrap();
        let record = RecordRef {
            timestamp: 1,
            key: None,
            value: Some(&value),
            headers: &[],
        };
        builder.push(&record).unwrap();
        let placed = place(&builder.build(None), Offset(base), OwnerEpoch(3));
        ReadBatch {
            bytes: Bytes::from(placed.concat()),
            append_time: 9,
            entry_bytes: bytes,
        }
    }

    #[test]
    fn messages_of_a_large_chunk_join_without_a_gap() {
        let chunk = ReadChunk {
            prev_end: Offset(10),
            batches: vec![
                batch(10, 600_000),
                batch(11, 600_000),
                batch(15, 900_000),
                batch(16, 100),
            ],
            skipped: vec![(Offset(12), Offset(15), SkipReason::Lost)],
            end: Offset(17),
            high_watermark: Offset(40),
        };
        let messages = split(chunk, OwnerEpoch(3));
        let shape: Vec<_> = messages
            .iter()
            .map(|m| {
                (
                    m.prev_end_offset,
                    m.batches.len(),
                    m.append_times.len(),
                    m.skipped.len(),
                )
            })
            .collect();
        assert_eq!(shape, [(10, 1, 1, 0), (11, 1, 1, 0), (12, 2, 2, 1)]);
        assert!(
            messages
                .iter()
                .all(|m| m.high_watermark == 40 && m.leader_epoch == 3)
        );
    }
}
