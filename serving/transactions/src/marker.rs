//! The end of a transaction at one participant, and its form in the log: a real Kafka control batch (serving.md C6.1).
//!
//! A take-over reads envelopes only, so what must be remembered of a marker stands in its summary, in fields that mean nothing for a
//! control batch: `hash_min` is 1 for commit and 0 for abort, `hash_max` is 2 for TV2 and 1 for TV1, `expires_at` has the coordinator's
//! epoch in its upper 32 bits and the transaction's serial in its lower ones.
//!
//! The serial counts the transactions of a producer id. A marker whose serial was seen is one that came twice, also where the epoch does
//! not tell (TV1): the transaction that is open by then is another one.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hulse_proto::batch::{BATCH_HEADER_BYTES, BatchError, BatchHeader, decode};
use hulse_proto::entry::{BatchSummary, crc32c};
use hulse_proto::time::TimestampMs;

use crate::fields::{
    RecordError, field, get_flag, get_i32, get_producer, get_u8, get_u32, put_producer,
};
use crate::producer::{Producer, Version};

/// Attributes: transactional and control.
const ATTRIBUTES: i16 = 0b11_0000;
/// The bit of a transactional batch.
const TRANSACTIONAL: i16 = 1 << 4;
/// The one record of a marker, with its length: fixed, as each of its numbers takes one byte.
const RECORD: [u8; 7] = [32, 0, 0, 0, 8, 0, 0];
const RECORD_BYTES: usize = 17;
/// Where the checksummed bytes of a batch begin.
const CRC_START: usize = 21;

/// A transaction of this producer is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Whose; for TV2 and for who is fenced with the epoch after the end.
    pub producer: Producer,
    /// Else abort.
    pub commit: bool,
    /// Of the coordinator's shard; −1: none.
    pub coordinator_epoch: i32,
    /// Which rule holds for the epoch.
    pub version: Version,
    /// Which transaction of the producer id; 0: not said, as in the admin's call on Kafka's wire.
    pub serial: u32,
}

impl Marker {
    /// The batch of the log; the owner puts offset and leader epoch in, as with any batch.
    pub fn batch(&self, at: TimestampMs) -> Bytes {
        let mut out = BytesMut::with_capacity(BATCH_HEADER_BYTES + RECORD_BYTES);
        out.put_i64(0);
        out.put_i32((BATCH_HEADER_BYTES - 12 + RECORD_BYTES) as i32);
        out.put_i32(-1);
        out.put_i8(2);
        out.put_u32(0);
        out.put_i16(ATTRIBUTES);
        out.put_i32(0);
        out.put_i64(at);
        out.put_i64(at);
        out.put_i64(self.producer.id.0);
        out.put_i16(self.producer.epoch);
        out.put_i32(-1);
        out.put_i32(1);
        out.put_slice(&RECORD);
        out.put_i16(self.commit.into());
        out.put_u8(12);
        out.put_i16(0);
        out.put_i32(self.coordinator_epoch);
        out.put_u8(0);
        let crc = crc32c(&out[CRC_START..]);
        out[CRC_START - 4..CRC_START].copy_from_slice(&crc.to_be_bytes());
        out.freeze()
    }

    /// Reads a control batch: whose transaction ends, whether it is committed, and the coordinator's epoch.
    ///
    /// # Errors
    /// [`BatchError`] for bytes that are no batch; `None` for a batch that is no marker.
    pub fn read(batch: &Bytes) -> Result<Option<(Producer, bool, i32)>, BatchError> {
        let header = BatchHeader::view(batch)?;
        if !header.is_control() {
            return Ok(None);
        }
        let records = decode(batch)?;
        let [record] = &records[..] else {
            return Ok(None);
        };
        let (Some(key), Some(value)) = (&record.key, &record.value) else {
            return Ok(None);
        };
        if key.len() < 4 || value.len() < 6 {
            return Ok(None);
        }
        let kind = (&key[2..]).get_i16();
        let producer = Producer {
            id: header.producer_id,
            epoch: header.producer_epoch,
        };
        let epoch = (&value[2..]).get_i32();
        Ok(matches!(kind, 0 | 1).then_some((producer, kind == 1, epoch)))
    }

    /// What stands in the envelope of its entry.
    pub fn summary(&self, at: TimestampMs) -> BatchSummary {
        BatchSummary {
            length: (BATCH_HEADER_BYTES + RECORD_BYTES) as u32,
            span: 1,
            count: 1,
            producer_id: self.producer.id,
            producer_epoch: self.producer.epoch,
            attributes: ATTRIBUTES,
            base_sequence: -1,
            max_timestamp: at,
            hash_min: self.commit.into(),
            hash_max: match self.version {
                Version::Tv1 => 1,
                Version::Tv2 => 2,
            },
            expires_at: i64::from(self.coordinator_epoch) << 32 | i64::from(self.serial),
            base_timestamp: at,
        }
    }

    /// Reads the summary of a CONTROL entry; `None`: it is not a marker.
    pub fn of_summary(summary: &BatchSummary) -> Option<Self> {
        let control = summary.attributes & ATTRIBUTES == ATTRIBUTES;
        (control && summary.producer_id.0 >= 0).then_some(Self {
            producer: Producer {
                id: summary.producer_id,
                epoch: summary.producer_epoch,
            },
            commit: summary.hash_min == 1,
            coordinator_epoch: (summary.expires_at >> 32) as i32,
            version: match summary.hash_max {
                2 => Version::Tv2,
                _ => Version::Tv1,
            },
            serial: summary.expires_at as u32,
        })
    }

    pub(crate) fn put(&self, out: &mut BytesMut) {
        put_producer(out, self.producer);
        out.put_u8(self.commit.into());
        out.put_i32_le(self.coordinator_epoch);
        put_version(out, self.version);
        out.put_u32_le(self.serial);
    }

    pub(crate) fn get(bytes: &mut &[u8]) -> Result<Self, RecordError> {
        Ok(Self {
            producer: get_producer(bytes)?,
            commit: get_flag(bytes)?,
            coordinator_epoch: get_i32(bytes)?,
            version: get_version(bytes)?,
            serial: get_u32(bytes)?,
        })
    }
}

/// True for a data batch that is part of a transaction.
pub(crate) fn is_transactional(summary: &BatchSummary) -> bool {
    summary.attributes & ATTRIBUTES == TRANSACTIONAL && summary.producer_id.0 >= 0
}

pub(crate) fn put_version(out: &mut BytesMut, version: Version) {
    out.put_u8(match version {
        Version::Tv1 => 1,
        Version::Tv2 => 2,
    });
}

pub(crate) fn get_version(bytes: &mut &[u8]) -> Result<Version, RecordError> {
    match get_u8(bytes)? {
        1 => Ok(Version::Tv1),
        2 => Ok(Version::Tv2),
        other => Err(field("version of transactions", other.into())),
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::ProducerId;
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        pub(crate) fn marker()(
            id in 0..i64::MAX, epoch in 0..i16::MAX, commit in any::<bool>(), coordinator_epoch in any::<i32>(),
            two in any::<bool>(), serial in any::<u32>(),
        ) -> Marker {
            let version = if two { Version::Tv2 } else { Version::Tv1 };
            let producer = Producer { id: ProducerId(id), epoch };
            Marker { producer, commit, coordinator_epoch, version, serial }
        }
    }

    proptest! {
        #[test]
        fn roundtrip_marker(marker in marker(), at in any::<i64>()) {
            let batch = marker.batch(at);
            let read = (marker.producer, marker.commit, marker.coordinator_epoch);
            prop_assert_eq!(Marker::read(&batch), Ok(Some(read)));
            let summary = marker.summary(at);
            prop_assert_eq!(summary.length as usize, batch.len());
            prop_assert_eq!(Marker::of_summary(&summary), Some(marker));
            let mut out = BytesMut::new();
            marker.put(&mut out);
            prop_assert_eq!(out.len(), 20);
            prop_assert_eq!(Marker::get(&mut &out[..]), Ok(marker));
        }

        #[test]
        fn decode_rejects_or_reads_damaged_markers(marker in marker(), at in 0..78_usize, bit in 0..8_u32) {
            let mut batch = marker.batch(1).to_vec();
            batch[at] ^= 1 << bit;
            // Offset and leader epoch are the owner's and not checksummed; anything else is refused.
            let refused = Marker::read(&batch.into()).is_err();
            prop_assert!(refused || at < 8 || (12..16).contains(&at));
        }
    }

    #[test]
    fn batch_of_a_marker_is_byte_for_byte_what_kafka_reads() {
        let producer = Producer {
            id: ProducerId(1),
            epoch: 2,
        };
        let marker = Marker {
            producer,
            commit: true,
            coordinator_epoch: 3,
            version: Version::Tv2,
            serial: 4,
        };
        let batch = marker.batch(5);
        let record = [32, 0, 0, 0, 8, 0, 0, 0, 1, 12, 0, 0, 0, 0, 0, 3, 0];
        assert_eq!(batch[61..], record);
        let header = BatchHeader::view(&batch).unwrap();
        assert!(header.is_control() && header.is_transactional());
        assert_eq!(
            (header.base_sequence, header.count, header.span()),
            (-1, 1, 1)
        );
    }
}
