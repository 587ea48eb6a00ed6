//! What a producer and an owner write into a batch that is built, and how several batches are told apart.

use bytes::{BufMut, Bytes, BytesMut};

use super::header::{CRC_START, LENGTH_END};
use super::{BATCH_HEADER_BYTES, BatchError, BatchHeader, ProducerStamp};
use crate::entry::crc32c;
use crate::id::{Offset, OwnerEpoch};

/// Base offset, length and leader epoch: everything before the magic.
const HEAD_BYTES: usize = 16;

/// Where the producer's id, epoch and sequence stand.
const STAMP_START: usize = 43;
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
    use super::super::{BatchBuilder, Compression, RecordRef};
    use super::*;
    use crate::id::ProducerId;

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
