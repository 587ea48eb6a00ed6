//! Primitives of the forms on disk: little-endian, each length and count checked before it is believed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, BytesMut};
use hulse_proto::id::{Offset, PartitionId, ProducerId, SubscriptionId, TopicId};
use serving_dispatch::OffsetRange;
use uuid::Uuid;

use crate::producer::Producer;

/// The version that is written, and the only one that is read.
const FORMAT_VERSION: u8 = 1;
/// Bytes of a partition.
pub(crate) const PARTITION_BYTES: usize = 20;
/// Bytes of a range of offsets.
pub(crate) const RANGE_BYTES: usize = 16;

/// Why bytes are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Too short.
    #[error("record is cut off: {found} bytes of at least {expected}")]
    CutOff {
        /// There.
        found: usize,
        /// Needed.
        expected: usize,
    },
    /// Another version.
    #[error("record has format version {0}; this build reads version {FORMAT_VERSION}")]
    Version(u8),
    /// A field that cannot be.
    #[error("record field {field} cannot be {found}")]
    Field {
        /// Which.
        field: &'static str,
        /// What.
        found: u64,
    },
}

pub(crate) fn field(field: &'static str, found: u64) -> RecordError {
    RecordError::Field { field, found }
}

pub(crate) fn need(bytes: &[u8], len: usize) -> Result<(), RecordError> {
    match bytes.len() < len {
        true => Err(RecordError::CutOff {
            found: bytes.len(),
            expected: len,
        }),
        false => Ok(()),
    }
}

pub(crate) fn put_version(out: &mut BytesMut) {
    out.put_u8(FORMAT_VERSION);
}

pub(crate) fn get_version(bytes: &mut &[u8]) -> Result<(), RecordError> {
    match get_u8(bytes)? {
        FORMAT_VERSION => Ok(()),
        other => Err(RecordError::Version(other)),
    }
}

/// Nothing may stand behind what was read.
pub(crate) fn end(bytes: &[u8]) -> Result<(), RecordError> {
    match bytes.is_empty() {
        true => Ok(()),
        false => Err(field("bytes behind the end", bytes.len() as u64)),
    }
}

/// A count of things of at least `each` bytes.
pub(crate) fn count(bytes: &mut &[u8], each: usize) -> Result<usize, RecordError> {
    let count = get_u32(bytes)? as usize;
    need(bytes, count.saturating_mul(each))?;
    Ok(count)
}

macro_rules! number {
    ($name:ident, $raw:ty, $len:literal, $get:ident) => {
        pub(crate) fn $name(bytes: &mut &[u8]) -> Result<$raw, RecordError> {
            need(bytes, $len)?;
            Ok(bytes.$get())
        }
    };
}

number!(get_u8, u8, 1, get_u8);
number!(get_i16, i16, 2, get_i16_le);
number!(get_u32, u32, 4, get_u32_le);
number!(get_i32, i32, 4, get_i32_le);
number!(get_u64, u64, 8, get_u64_le);
number!(get_i64, i64, 8, get_i64_le);

pub(crate) fn get_flag(bytes: &mut &[u8]) -> Result<bool, RecordError> {
    match get_u8(bytes)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(field("flag", other.into())),
    }
}

pub(crate) fn put_text(out: &mut BytesMut, text: &str) {
    // Texts are checked where they come in: far below 64 KiB.
    out.put_u16_le(text.len() as u16);
    out.put_slice(text.as_bytes());
}

pub(crate) fn get_text(bytes: &mut &[u8]) -> Result<Arc<str>, RecordError> {
    need(bytes, 2)?;
    let length = usize::from(bytes.get_u16_le());
    need(bytes, length)?;
    let text = std::str::from_utf8(&bytes[..length])
        .map_err(|error| field("text, not UTF-8 at byte", error.valid_up_to() as u64))?;
    let text = text.into();
    bytes.advance(length);
    Ok(text)
}

pub(crate) fn put_optional(out: &mut BytesMut, text: Option<&Arc<str>>) {
    out.put_u8(text.is_some().into());
    if let Some(text) = text {
        put_text(out, text);
    }
}

pub(crate) fn get_optional(bytes: &mut &[u8]) -> Result<Option<Arc<str>>, RecordError> {
    match get_flag(bytes)? {
        false => Ok(None),
        true => get_text(bytes).map(Some),
    }
}

pub(crate) fn put_partition(out: &mut BytesMut, partition: PartitionId) {
    out.put_slice(partition.topic.0.as_bytes());
    out.put_u32_le(partition.index);
}

pub(crate) fn get_partition(bytes: &mut &[u8]) -> Result<PartitionId, RecordError> {
    need(bytes, PARTITION_BYTES)?;
    Ok(PartitionId {
        topic: TopicId(Uuid::from_u128(bytes.get_u128())),
        index: bytes.get_u32_le(),
    })
}

pub(crate) fn put_subscription(out: &mut BytesMut, subscription: SubscriptionId) {
    out.put_slice(subscription.0.as_bytes());
}

pub(crate) fn get_subscription(bytes: &mut &[u8]) -> Result<SubscriptionId, RecordError> {
    need(bytes, 16)?;
    Ok(SubscriptionId(Uuid::from_u128(bytes.get_u128())))
}

pub(crate) fn put_producer(out: &mut BytesMut, producer: Producer) {
    out.put_i64_le(producer.id.0);
    out.put_i16_le(producer.epoch);
}

pub(crate) fn get_producer(bytes: &mut &[u8]) -> Result<Producer, RecordError> {
    Ok(Producer {
        id: ProducerId(get_i64(bytes)?),
        epoch: get_i16(bytes)?,
    })
}

pub(crate) fn put_ranges(
    out: &mut BytesMut,
    count: usize,
    ranges: impl Iterator<Item = OffsetRange>,
) {
    out.put_u32_le(count as u32);
    for range in ranges {
        out.put_u64_le(range.first.0);
        out.put_u64_le(range.end.0);
    }
}

pub(crate) fn get_ranges(bytes: &mut &[u8]) -> Result<Vec<OffsetRange>, RecordError> {
    let count = count(bytes, RANGE_BYTES)?;
    let mut ranges = Vec::with_capacity(count);
    for _ in 0..count {
        let range = OffsetRange {
            first: Offset(get_u64(bytes)?),
            end: Offset(get_u64(bytes)?),
        };
        if range.is_empty() {
            return Err(field("end of a range", range.end.0));
        }
        ranges.push(range);
    }
    Ok(ranges)
}

/// A map: a count, and each key with its value. `each` is the least that a pair takes.
pub(crate) fn get_map<K: Ord, V>(
    bytes: &mut &[u8],
    each: usize,
    pair: impl Fn(&mut &[u8]) -> Result<(K, V), RecordError>,
) -> Result<BTreeMap<K, V>, RecordError> {
    let count = count(bytes, each)?;
    (0..count).map(|_| pair(bytes)).collect()
}
