//! What was read of the log, as a dispatcher wants to know it (serving.md B3.1, B4.8).

use std::collections::BTreeMap;

use bytes::Bytes;
use hulse_proto::batch::{BatchHeader, Compression, decode};
use hulse_proto::error::Fault;
use hulse_proto::id::SubscriptionId;
use hulse_proto::time::TimestampMs;
use serving_dispatch::{Batch, Hashes, KeyHash, Keys, ReadDone, ReadWanted, Skip};

use crate::log::{LogReader, ReadBatch, ReadChunk, SkipReason};
use crate::state::OffsetRange;

/// Bytes whose keys are read on the task of the partition.
const QUICK_BYTES_MAX: usize = 256 << 10;

/// The bytes of a batch.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) bytes: Bytes,
    pub(super) append_time: TimestampMs,
}

/// A read came to its end.
pub(crate) struct ReadEnd {
    pub(super) subscription: SubscriptionId,
    pub(super) id: u64,
    pub(super) result: Result<(ReadDone, BTreeMap<u64, Kept>), Fault>,
}

/// Reads what a dispatcher asks for.
pub(super) async fn read(
    log: LogReader,
    subscription: SubscriptionId,
    wanted: ReadWanted,
) -> ReadEnd {
    let bytes = usize::try_from(wanted.bytes_max).unwrap_or(usize::MAX);
    let (id, hashes) = (wanted.id, wanted.hashes);
    let result = match log.read(wanted.from, bytes).await {
        Ok(chunk) if hashes == Hashes::No || is_quick(&chunk) => Ok(done(&wanted, chunk)),
        // Keys are behind compression: not on the task of the partition, which other subscriptions wait for.
        Ok(chunk) => tokio::task::spawn_blocking(move || done(&wanted, chunk))
            .await
            .map_err(|_| bug()),
        Err(fault) => Err(fault),
    };
    ReadEnd {
        subscription,
        id,
        result,
    }
}

/// Its keys are read in less time than another thread takes to begin.
fn is_quick(chunk: &ReadChunk) -> bool {
    let plain = |batch: &ReadBatch| {
        let header = BatchHeader::view(&batch.bytes);
        header.is_ok_and(|header| matches!(header.compression(), Ok(Compression::None)))
    };
    let bytes: usize = chunk.batches.iter().map(|batch| batch.bytes.len()).sum();
    bytes <= QUICK_BYTES_MAX && chunk.batches.iter().all(plain)
}

fn bug() -> Fault {
    let words = "keys of a batch could not be read for a bug";
    Fault::new(hulse_proto::error::Reason::Internal, words)
}

/// What of a chunk the dispatcher hears, and the bytes that are kept for it: about as many records as it asked for.
fn done(wanted: &ReadWanted, chunk: ReadChunk) -> (ReadDone, BTreeMap<u64, Kept>) {
    let (mut batches, mut kept) = (Vec::new(), BTreeMap::new());
    let (mut records, mut end) = (0, chunk.end);
    for batch in chunk.batches {
        let Ok(header) = BatchHeader::view(&batch.bytes) else {
            continue;
        };
        let range = OffsetRange {
            first: header.base_offset,
            end: header.end_offset(),
        };
        if records >= wanted.records_max {
            end = range.first;
            break;
        }
        records += range.len();
        batches.push(Batch {
            range,
            bytes: u32::try_from(batch.bytes.len()).unwrap_or(u32::MAX),
            keys: keys(wanted.hashes, &batch.bytes, range),
        });
        let bytes = Kept {
            bytes: batch.bytes,
            append_time: batch.append_time,
        };
        kept.insert(range.first.0, bytes);
    }
    let skipped = chunk.skipped.into_iter().filter(|skip| skip.0 < end);
    let skipped = skipped.map(|(first, until, why)| {
        let why = match why {
            SkipReason::Control => Skip::Control,
            SkipReason::Compacted => Skip::Compacted,
            SkipReason::Lost => Skip::Lost,
        };
        let range = OffsetRange {
            first,
            end: until.min(end),
        };
        (range, why)
    });
    let done = ReadDone {
        id: wanted.id,
        batches,
        skipped: skipped.collect(),
        end: end.max(wanted.from),
    };
    (done, kept)
}

/// Producers stamp no batches yet, so all hashes are of records. A batch that cannot be decoded has none: its consumer will say so.
fn keys(hashes: Hashes, batch: &Bytes, range: OffsetRange) -> Keys {
    if hashes == Hashes::No {
        return Keys::Unknown;
    }
    let mut each: Vec<Option<KeyHash>> = vec![None; usize::try_from(range.len()).unwrap_or(0)];
    for record in decode(batch).unwrap_or_default() {
        let place = each.get_mut(record.offset_delta as usize);
        if let (Some(place), Some(key)) = (place, record.key) {
            *place = Some(hash_of(&key));
        }
    }
    Keys::Each(each)
}

/// The upper half of murmur3 (x86, 32 bit, seed 0) of a key (serving.md B4).
fn hash_of(key: &[u8]) -> KeyHash {
    let mix = |word: u32| {
        word.wrapping_mul(0xcc9e_2d51)
            .rotate_left(15)
            .wrapping_mul(0x1b87_3593)
    };
    let mut hash = 0_u32;
    let (words, tail) = key.as_chunks::<4>();
    for word in words {
        hash ^= mix(u32::from_le_bytes(*word));
        hash = hash
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64);
    }
    let mut last = [0; 4];
    last[..tail.len()].copy_from_slice(tail);
    // Without a tail this is 0, which changes nothing.
    hash ^= mix(u32::from_le_bytes(last));
    hash ^= key.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    ((hash ^ (hash >> 16)) >> 16) as KeyHash
}

#[cfg(test)]
mod tests {
    use hulse_proto::batch::{BatchBuilder, RecordRef, place};
    use hulse_proto::id::{Offset, OwnerEpoch};

    use super::*;

    fn batch(base: u64, keys: &[Option<&str>]) -> ReadBatch {
        let mut builder = BatchBuilder::new(Compression::None).unwrap();
        for key in keys {
            let record = RecordRef {
                timestamp: 1,
                key: key.map(str::as_bytes),
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

    fn wanted(from: u64, records_max: u64, hashes: Hashes) -> ReadWanted {
        ReadWanted {
            id: 7,
            from: Offset(from),
            to: Offset(1_000),
            bytes_max: 1 << 20,
            records_max,
            hashes,
            again: false,
        }
    }

    fn chunk(end: u64, batches: Vec<ReadBatch>, skipped: Vec<(u64, u64)>) -> ReadChunk {
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

    #[test]
    fn chunk_is_cut_behind_the_records_that_were_asked_for() {
        let batches = vec![
            batch(10, &[None; 5]),
            batch(20, &[None; 5]),
            batch(25, &[None; 5]),
        ];
        let (found, kept) = done(
            &wanted(12, 6, Hashes::No),
            chunk(40, batches, vec![(15, 20), (30, 40)]),
        );
        let ranges: Vec<_> = found.batches.iter().map(|batch| batch.range).collect();
        assert_eq!(ranges, [OffsetRange::new(10, 15), OffsetRange::new(20, 25)]);
        assert_eq!(found.skipped, [(OffsetRange::new(15, 20), Skip::Lost)]);
        assert_eq!(found.end, Offset(25));
        assert_eq!(kept.keys().copied().collect::<Vec<_>>(), [10, 20]);
    }

    #[test]
    fn every_record_with_a_key_gets_its_hash() {
        let batches = vec![batch(3, &[Some("a"), None, Some("")])];
        let (found, _) = done(&wanted(3, 9, Hashes::Stamp), chunk(6, batches, vec![]));
        let expected = vec![Some(hash_of(b"a")), None, Some(hash_of(b""))];
        assert_eq!(found.batches[0].keys, Keys::Each(expected));
    }

    /// Values of the reference implementation.
    #[test]
    fn hash_is_the_upper_half_of_murmur3() {
        let known: [(&[u8], u32); 4] = [
            (b"", 0),
            (b"test", 0xba6b_d213),
            (b"Hello, world!", 0xc036_3e43),
            (b"The quick brown fox jumps over the lazy dog", 0x2e4f_f723),
        ];
        for (key, hash) in known {
            assert_eq!(hash_of(key), (hash >> 16) as u16, "{key:?}");
        }
    }
}
