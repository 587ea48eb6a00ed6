//! The envelope: what stands in an entry, without its bytes (ARCHITECTURE D2).
//!
//! A take-over reads headers and envelopes only, so everything a partition must remember of a batch stands here.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version (1) |
//! | 1 | 1 | kind: 0 DATA, 1 CONTROL, 2 META |
//! | 2 | 2 | reserved (0) |
//! | 4 | 8 | append time, ms: the owner's clock, never below the previous entry's |
//! | 12 | 8 | running maximum of record timestamps of the partition, ms |
//! | 20 | 4 | number of batches (0 in META) |
//! | 24 | 56 each | length u32, span u32, count u32, producer id i64, producer epoch i16, attributes i16, base sequence i32, max timestamp i64, hash min u16, hash max u16, expires at i64 (0: never), producer's base timestamp i64 |
//! | … | 4 | CRC32C of all before |
//!
//! Little-endian. Version 1 is frozen, as the entry's header.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::checksum::crc32c;
use super::header::FORMAT_VERSION;
use crate::id::ProducerId;
use crate::limits::ENTRY_BATCHES_MAX;
use crate::time::TimestampMs;

const FIXED_BYTES: usize = 24;
const BATCH_SUMMARY_BYTES: usize = 56;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// Record batches.
    Data,
    /// A Kafka control batch.
    Control,
    /// A delta or snapshot chunk of a state.
    Meta,
}

/// One batch of an entry, as its header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSummary {
    /// Bytes of the batch.
    pub length: u32,
    /// Last offset + 1 − base offset.
    pub span: u32,
    /// Records.
    pub count: u32,
    /// Or [`ProducerId::NONE`].
    pub producer_id: ProducerId,
    /// −1 without a producer id.
    pub producer_epoch: i16,
    /// Kafka's batch attributes.
    pub attributes: i16,
    /// Sequence of the first record; −1 without a producer id.
    pub base_sequence: i32,
    /// Highest record timestamp.
    pub max_timestamp: TimestampMs,
    /// Lowest key hash (top 16 bits); 0 when unknown.
    pub hash_min: u16,
    /// Highest key hash; 65535 when unknown.
    pub hash_max: u16,
    /// 0: never.
    pub expires_at: TimestampMs,
    /// Timestamp of the first record.
    pub base_timestamp: TimestampMs,
}

/// The envelope, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// What the entry is.
    pub kind: EntryKind,
    /// The owner's clock when it appended; monotone within a partition.
    pub append_time: TimestampMs,
    /// Highest record timestamp of the partition so far; `i64::MIN` when there was none.
    pub running_max_timestamp: TimestampMs,
    /// In order.
    pub batches: Vec<BatchSummary>,
}

/// Why bytes are not an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not the length it must have.
    #[error("envelope has {found} bytes, expected {expected}")]
    Length {
        /// There.
        found: usize,
        /// Needed.
        expected: usize,
    },
    /// More batches than allowed.
    #[error("envelope claims {claimed} batches; at most {ENTRY_BATCHES_MAX} are allowed")]
    Batches {
        /// Claimed.
        claimed: u32,
    },
    /// Another version.
    #[error("envelope has format version {0}; this build reads version {FORMAT_VERSION}")]
    Version(u8),
    /// Unknown kind.
    #[error("envelope has unknown kind {0}")]
    Kind(u8),
    /// Checksum wrong.
    #[error("envelope's checksum is {found:#010x}, its bytes give {computed:#010x}")]
    Crc {
        /// Stored.
        found: u32,
        /// Computed.
        computed: u32,
    },
}

impl Envelope {
    /// The bytes.
    pub fn encode(&self) -> Bytes {
        let len = FIXED_BYTES + self.batches.len() * BATCH_SUMMARY_BYTES + 4;
        let mut out = BytesMut::with_capacity(len);
        out.put_u8(FORMAT_VERSION);
        out.put_u8(self.kind as u8);
        out.put_u16_le(0);
        out.put_i64_le(self.append_time);
        out.put_i64_le(self.running_max_timestamp);
        out.put_u32_le(self.batches.len() as u32);
        for batch in &self.batches {
            out.put_u32_le(batch.length);
            out.put_u32_le(batch.span);
            out.put_u32_le(batch.count);
            out.put_i64_le(batch.producer_id.0);
            out.put_i16_le(batch.producer_epoch);
            out.put_i16_le(batch.attributes);
            out.put_i32_le(batch.base_sequence);
            out.put_i64_le(batch.max_timestamp);
            out.put_u16_le(batch.hash_min);
            out.put_u16_le(batch.hash_max);
            out.put_i64_le(batch.expires_at);
            out.put_i64_le(batch.base_timestamp);
        }
        let crc = crc32c(&out);
        out.put_u32_le(crc);
        out.freeze()
    }

    /// Decodes an envelope that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`EnvelopeError`]; nothing is allocated before every length was checked.
    pub fn decode(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        if bytes.len() < FIXED_BYTES + 4 {
            return Err(EnvelopeError::Length {
                found: bytes.len(),
                expected: FIXED_BYTES + 4,
            });
        }
        let computed = crc32c(&bytes[..bytes.len() - 4]);
        let mut rest = bytes;
        let version = rest.get_u8();
        if version != FORMAT_VERSION {
            return Err(EnvelopeError::Version(version));
        }
        let kind = rest.get_u8();
        let _reserved = rest.get_u16_le();
        let append_time = rest.get_i64_le();
        let running_max_timestamp = rest.get_i64_le();
        let claimed = rest.get_u32_le();
        if claimed as usize > ENTRY_BATCHES_MAX {
            return Err(EnvelopeError::Batches { claimed });
        }
        let expected = FIXED_BYTES + claimed as usize * BATCH_SUMMARY_BYTES + 4;
        if bytes.len() != expected {
            return Err(EnvelopeError::Length {
                found: bytes.len(),
                expected,
            });
        }
        let found = (&bytes[bytes.len() - 4..]).get_u32_le();
        if found != computed {
            return Err(EnvelopeError::Crc { found, computed });
        }
        let kind = [EntryKind::Data, EntryKind::Control, EntryKind::Meta]
            .get(usize::from(kind))
            .copied()
            .ok_or(EnvelopeError::Kind(kind))?;
        let batches = (0..claimed)
            .map(|_| BatchSummary::decode(&mut rest))
            .collect();
        Ok(Self {
            kind,
            append_time,
            running_max_timestamp,
            batches,
        })
    }
}

impl BatchSummary {
    /// Reads exactly [`BATCH_SUMMARY_BYTES`]; the caller has checked that they are there.
    fn decode(rest: &mut &[u8]) -> Self {
        Self {
            length: rest.get_u32_le(),
            span: rest.get_u32_le(),
            count: rest.get_u32_le(),
            producer_id: ProducerId(rest.get_i64_le()),
            producer_epoch: rest.get_i16_le(),
            attributes: rest.get_i16_le(),
            base_sequence: rest.get_i32_le(),
            max_timestamp: rest.get_i64_le(),
            hash_min: rest.get_u16_le(),
            hash_max: rest.get_u16_le(),
            expires_at: rest.get_i64_le(),
            base_timestamp: rest.get_i64_le(),
        }
    }
}
