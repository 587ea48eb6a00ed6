//! A sealed batch: wire bytes, and the tickets that wait for its fate.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use hulse_proto::batch::{BATCH_HEADER_BYTES, ProducerStamp};
use hulse_proto::entry::crc32c;

use super::event::Payload;
use crate::producer::BatchFate;

/// Where the producer's fields stand in the header; format in `hulse_proto::batch`.
const STAMP_AT: usize = 43;
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;

pub(crate) struct Batch {
    bytes: Bytes,
    records: u32,
    fate: Arc<BatchFate>,
}

impl Batch {
    /// `bytes` is one batch without a stamp, as `BatchBuilder::build` makes it, or one whose stamp is not to be changed.
    pub(crate) fn new(bytes: Bytes, records: u32, fate: Arc<BatchFate>) -> Self {
        Self {
            bytes,
            records,
            fate,
        }
    }
}

impl Payload for Batch {
    type Tag = Arc<BatchFate>;

    fn tag(&self) -> Arc<BatchFate> {
        Arc::clone(&self.fate)
    }

    fn records(&self) -> u32 {
        self.records
    }

    fn stamp(&mut self, stamp: ProducerStamp) {
        if !self.fate.is_raw() {
            self.bytes = restamp(std::mem::take(&mut self.bytes), stamp);
        }
    }

    fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

/// Writes the stamp and the checksum over it. In place when nobody else holds the bytes, which is the case for a first stamp.
fn restamp(bytes: Bytes, stamp: ProducerStamp) -> Bytes {
    assert!(
        bytes.len() >= BATCH_HEADER_BYTES,
        "the builder wrote a header"
    );
    let mut bytes = bytes
        .try_into_mut()
        .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    let mut fields = &mut bytes[STAMP_AT..];
    fields.put_i64(stamp.id.0);
    fields.put_i16(stamp.epoch);
    fields.put_i32(stamp.base_sequence);
    let crc = crc32c(&bytes[CRC_FROM..]);
    bytes[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use hulse_proto::batch::{BatchBuilder, Compression, RecordRef};
    use hulse_proto::id::ProducerId;

    use super::*;

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
            let stamp = ProducerStamp {
                id: ProducerId(7),
                epoch: 3,
                base_sequence: 9,
            };
            let built = builder.clone().build(Some(stamp));
            let plain = builder.build(None);
            let kept = plain.clone();
            assert_eq!(restamp(plain, stamp), built);
            assert_eq!(restamp(kept, stamp), built);
        }
    }
}
