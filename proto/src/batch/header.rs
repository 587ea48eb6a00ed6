//! The 61-byte header, viewed in place.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | base offset; the owner writes it |
//! | 8 | 4 | length of what follows this field |
//! | 12 | 4 | partition leader epoch; the owner writes it |
//! | 16 | 1 | magic (2) |
//! | 17 | 4 | CRC32C of bytes 21 to the end |
//! | 21 | 2 | attributes: bits 0–2 codec, 3 timestamp type (1: log append time), 4 transactional, 5 control |
//! | 23 | 4 | last offset delta |
//! | 27 | 8 | base timestamp, ms |
//! | 35 | 8 | maximum timestamp, ms |
//! | 43 | 8 | producer id; −1 without |
//! | 51 | 2 | producer epoch |
//! | 53 | 4 | base sequence |
//! | 57 | 4 | records |
//!
//! Big-endian. What follows are the records, compressed as a whole.

use bytes::Buf;

use super::{BatchError, Compression};
use crate::id::{Offset, ProducerId};

/// Length of the header.
pub const BATCH_HEADER_BYTES: usize = 61;
/// Base offset and length: what the length field does not count.
pub(super) const LENGTH_END: usize = 12;
/// Where the checksummed bytes begin.
pub(super) const CRC_START: usize = 21;

pub(super) const MAGIC: i8 = 2;
const CODEC_MASK: i16 = 0b111;
pub(super) const LOG_APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;

/// What a batch says of itself. Believed only after [`super::verify_produced`] or [`super::verify_crc`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record (as if none had been compacted away).
    pub base_offset: Offset,
    /// The whole batch in bytes, header included.
    pub length: u32,
    /// Leader epoch of the owner that took it; whatever the producer wrote before that.
    pub leader_epoch: i32,
    /// CRC32C of everything from the attributes on.
    pub crc: u32,
    /// Raw bits; the methods read them.
    pub attributes: i16,
    /// Offset of the last record minus the base offset.
    pub last_offset_delta: u32,
    /// Timestamp of the first record, ms.
    pub base_timestamp: i64,
    /// Highest timestamp of the records, ms.
    pub max_timestamp: i64,
    /// Or [`ProducerId::NONE`].
    pub producer_id: ProducerId,
    /// −1 without a producer id.
    pub producer_epoch: i16,
    /// Sequence of the first record; −1 without a producer id.
    pub base_sequence: i32,
    /// Records; fewer than the span after compaction.
    pub count: u32,
}

impl BatchHeader {
    /// Views the batch at the start of `bytes`, which may go on behind it. Checks that the whole batch is there, magic and
    /// signs; not the checksum. Copies and allocates nothing.
    ///
    /// # Errors
    /// [`BatchError`]: `CutOff`, `Length`, `Magic` or `Field`.
    pub fn view(bytes: &[u8]) -> Result<Self, BatchError> {
        let header = Self::view_head(bytes)?;
        whole(header.length, bytes.len())?;
        Ok(header)
    }

    /// As [`BatchHeader::view`], of a header whose records stand elsewhere.
    ///
    /// # Errors
    /// As [`BatchHeader::view`], without the records' `CutOff`.
    pub fn view_head(bytes: &[u8]) -> Result<Self, BatchError> {
        if bytes.len() < BATCH_HEADER_BYTES {
            return Err(BatchError::CutOff {
                found: bytes.len(),
                expected: BATCH_HEADER_BYTES,
            });
        }
        let mut rest = &bytes[..BATCH_HEADER_BYTES];
        let base_offset = not_negative("base offset", rest.get_i64())?;
        let length = length(rest.get_i32())?;
        let leader_epoch = rest.get_i32();
        let magic = rest.get_i8();
        if magic != MAGIC {
            return Err(BatchError::Magic { found: magic });
        }
        let crc = rest.get_u32();
        let attributes = rest.get_i16();
        let last_offset_delta = not_negative("last offset delta", i64::from(rest.get_i32()))?;
        Ok(Self {
            base_offset: Offset(base_offset),
            length,
            leader_epoch,
            crc,
            attributes,
            last_offset_delta: last_offset_delta as u32,
            base_timestamp: rest.get_i64(),
            max_timestamp: rest.get_i64(),
            producer_id: ProducerId(rest.get_i64()),
            producer_epoch: rest.get_i16(),
            base_sequence: rest.get_i32(),
            count: not_negative("record count", i64::from(rest.get_i32()))? as u32,
        })
    }

    /// How the records are packed.
    ///
    /// # Errors
    /// [`BatchError::UnknownCompression`].
    pub fn compression(&self) -> Result<Compression, BatchError> {
        Compression::from_code((self.attributes & CODEC_MASK) as u8)
    }

    /// True for a transaction marker, which consumers skip.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// True when the batch belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// True when every record's timestamp is the maximum timestamp, which the owner wrote.
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    /// Offsets that the batch takes: last offset + 1 − base offset.
    pub fn span(&self) -> u32 {
        self.last_offset_delta + 1
    }

    /// Exclusive end of its offsets.
    pub fn end_offset(&self) -> Offset {
        Offset(self.base_offset.0 + u64::from(self.span()))
    }

    /// Sequence of the last record; after `i32::MAX` comes 0 (serving.md C1). The base sequence where that is negative.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return self.base_sequence;
        }
        let last = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        (last & i64::from(i32::MAX)) as i32
    }
}

fn length(field: i32) -> Result<u32, BatchError> {
    let min = (BATCH_HEADER_BYTES - LENGTH_END) as i32;
    if field < min {
        return Err(BatchError::Length { found: field, min });
    }
    Ok(field as u32 + LENGTH_END as u32)
}

/// Checks that a batch of this length is there as a whole.
fn whole(length: u32, found: usize) -> Result<(), BatchError> {
    match length as usize > found {
        true => Err(BatchError::CutOff {
            found,
            expected: length as usize,
        }),
        false => Ok(()),
    }
}

fn not_negative(field: &'static str, found: i64) -> Result<u64, BatchError> {
    u64::try_from(found).map_err(|_| BatchError::Field {
        field,
        found,
        why: "must not be negative",
    })
}
