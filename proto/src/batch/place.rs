//! What a producer and an owner write into a batch that is built, and how several batches are told apart.

use bytes::{BufMut, Bytes, BytesMut};

use super::header::{CRC_START, LENGTH_END, LOG_APPEND_TIME, MAGIC};
use super::{BATCH_HEADER_BYTES, BatchError, BatchHeader, ProducerStamp};
use crate::entry::{Crc32c, crc32c};
use crate::id::{Offset, OwnerEpoch, ProducerId};
use crate::time::TimestampMs;

/// Base offset, length and leader epoch: everything before the magic.
const HEAD_BYTES: usize = 16;

/// Where the producer's id, epoch and sequence stand.
const STAMP_START: usize = 43;
/// Where the maximum timestamp stands.
const MAX_TIMESTAMP_AT: usize = 35;
/// Where the checksum stands.
const CRC_AT: usize = 17;

/// Makes a batch that was built the producer's own: writes the stamp and the checksum over it. In place when nobody else holds the
/// bytes, which is the case for a first stamp.
///
/// # Panics
/// If `batch` is shorter than a header: a builder wrote one.
pub fn stamp(batch: Bytes, stamp: ProducerStamp) -> Bytes {
    assert!(
        batch.len() >= BATCH_HEADER_BYTES,
        "a batch is built before it is stamped"
    );
    let mut batch = batch
        .try_into_mut()
        .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    let mut fields = &mut batch[STAMP_START..];
    fields.put_i64(stamp.id.0);
    fields.put_i16(stamp.epoch);
    fields.put_i32(stamp.base_sequence);
    let crc = crc32c(&batch[CRC_START..]);
    batch[CRC_AT..CRC_START].copy_from_slice(&crc.to_be_bytes());
    batch.freeze()
}

/// Gives a batch its place in the log: a new 16-byte head and the untouched rest, to be written one after the other. The
/// checksummed bytes are the producer's and are not copied.
///
/// # Panics
/// If `batch` is shorter than a head: the caller has verified it.
pub fn place(batch: &Bytes, base_offset: Offset, leader_epoch: OwnerEpoch) -> [Bytes; 2] {
    assert!(
        batch.len() >= HEAD_BYTES,
        "a batch is verified before it is placed"
    );
    let mut head = [0; HEAD_BYTES];
    let mut out = &mut head[..];
    out.put_u64(base_offset.0);
    out.put_slice(&batch[8..LENGTH_END]);
    out.put_u32(leader_epoch.0);
    [Bytes::copy_from_slice(&head), batch.slice(HEAD_BYTES..)]
}

/// Gives the records of a placed batch the time of their append: timestamp type, maximum timestamp and checksum change, in a new head
/// (ARCHITECTURE D1). The records themselves are not touched and keep the producer's times, which nobody reads any more.
///
/// # Panics
/// If the parts are not those of [`place`].
pub fn stamp_append_time(parts: &[Bytes; 2], time: TimestampMs) -> [Bytes; 2] {
    let [head, rest] = parts;
    let more = BATCH_HEADER_BYTES - HEAD_BYTES;
    assert!(
        head.len() == HEAD_BYTES && rest.len() >= more,
        "a batch is placed before it is stamped"
    );
    let mut stamped = BytesMut::with_capacity(BATCH_HEADER_BYTES);
    stamped.put_slice(head);
    stamped.put_slice(&rest[..more]);
    // The second byte of the attributes has the low bits.
    stamped[CRC_START + 1] |= LOG_APPEND_TIME as u8;
    stamped[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&time.to_be_bytes());
    let mut crc = Crc32c::default();
    crc.update(&stamped[CRC_START..]);
    crc.update(&rest[more..]);
    stamped[CRC_AT..CRC_START].copy_from_slice(&crc.finish().to_be_bytes());
    [stamped.freeze(), rest.slice(more..)]
}

/// A batch without records over the offsets `first..end`, as compaction leaves them: it moves a reader over offsets that have none.
/// What does not fit one batch is left to the next.
///
/// # Panics
/// If `end` is not above `first`.
pub fn empty_batch(first: Offset, end: Offset, leader_epoch: OwnerEpoch) -> Bytes {
    assert!(end > first, "an empty batch takes offsets");
    let last_delta = (end.0 - first.0 - 1).min(i32::MAX as u64) as i32;
    let mut out = BytesMut::with_capacity(BATCH_HEADER_BYTES);
    out.put_u64(first.0);
    out.put_u32((BATCH_HEADER_BYTES - LENGTH_END) as u32);
    out.put_u32(leader_epoch.0);
    out.put_i8(MAGIC);
    out.put_u32(0);
    out.put_i16(0);
    out.put_i32(last_delta);
    // No times, no producer.
    out.put_i64(-1);
    out.put_i64(-1);
    out.put_i64(ProducerId::NONE.0);
    out.put_i16(-1);
    out.put_i32(-1);
    out.put_i32(0);
    let crc = crc32c(&out[CRC_START..]);
    out[CRC_AT..CRC_START].copy_from_slice(&crc.to_be_bytes());
    out.freeze()
}

/// The batches that stand back to back in `bytes`, each a slice of it. Lengths and magic are checked, checksums are not.
/// After an error the iterator ends.
pub fn split(bytes: &Bytes) -> Split {
    Split {
        rest: bytes.clone(),
    }
}

/// Iterator of [`split`].
#[derive(Debug, Clone)]
pub struct Split {
    rest: Bytes,
}

impl Iterator for Split {
    type Item = Result<Bytes, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match BatchHeader::view(&self.rest) {
            Ok(header) => Some(Ok(self.rest.split_to(header.length as usize))),
            Err(error) => {
                self.rest.clear();
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BatchBuilder, Compression, RecordRef, decode, verify_crc};
    use super::*;

    fn one(compression: Compression) -> Bytes {
        let mut builder = BatchBuilder::new(compression).unwrap();
        let record = RecordRef {
            timestamp: 5,
            key: Some(b"k"),
            value: Some(b"value"),
            headers: &[],
        };
        builder.push(&record).unwrap();
        builder.build(None)
    }

    #[test]
    fn batch_stamped_with_its_append_time_has_it_in_every_record() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let placed = place(&one(compression), Offset(40), OwnerEpoch(2));
            let stamped = Bytes::from(stamp_append_time(&placed, 1_700).concat());
            let header = verify_crc(&stamped).unwrap();
            assert!(header.is_log_append_time());
            assert_eq!(
                (header.base_offset, header.max_timestamp),
                (Offset(40), 1_700)
            );
            assert_eq!(header.compression(), Ok(compression));
            let records = decode(&stamped).unwrap();
            assert_eq!(records[0].timestamp, 1_700);
            assert_eq!(records[0].value.as_deref(), Some(&b"value"[..]));
        }
    }

    #[test]
    fn empty_batch_covers_its_offsets_and_decodes_to_nothing() {
        let batch = empty_batch(Offset(7), Offset(19), OwnerEpoch(3));
        let header = verify_crc(&batch).unwrap();
        assert_eq!(
            (header.base_offset, header.end_offset()),
            (Offset(7), Offset(19))
        );
        assert_eq!((header.count, header.leader_epoch), (0, 3));
        assert_eq!(decode(&batch), Ok(vec![]));
        let long = empty_batch(Offset(0), Offset(u64::MAX / 2), OwnerEpoch(3));
        assert_eq!(verify_crc(&long).unwrap().end_offset(), Offset(1 << 31));
    }

    #[test]
    fn stamped_batch_equals_one_built_with_the_stamp() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let mut builder = BatchBuilder::new(compression).unwrap();
            let record = RecordRef {
                timestamp: 5,
                key: Some(b"k"),
                value: Some(b"value"),
                headers: &[],
            };
            builder.push(&record).unwrap();
            let own = ProducerStamp {
                id: ProducerId(7),
                epoch: 3,
                base_sequence: 9,
            };
            let built = builder.clone().build(Some(own));
            let plain = builder.build(None);
            let kept = plain.clone();
            assert_eq!(stamp(plain, own), built);
            assert_eq!(stamp(kept, own), built);
        }
    }
}
