//! Primitives of the form on disk: little-endian, each length and count checked before it is believed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hulse_proto::id::{PartitionId, TopicId};
use uuid::Uuid;

use crate::topics::Partitions;

/// Bytes of a partition.
pub(super) const PARTITION_BYTES: usize = 20;

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
    #[error("record has format version {0}, which this build does not read")]
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

pub(super) fn field(field: &'static str, found: u64) -> RecordError {
    RecordError::Field { field, found }
}

pub(super) fn need(bytes: &[u8], len: usize) -> Result<(), RecordError> {
    match bytes.len() < len {
        true => Err(RecordError::CutOff {
            found: bytes.len(),
            expected: len,
        }),
        false => Ok(()),
    }
}

/// A count of things of at least `each` bytes.
pub(super) fn count(bytes: &mut &[u8], each: usize) -> Result<usize, RecordError> {
    let count = get_u32(bytes)? as usize;
    need(bytes, count.saturating_mul(each))?;
    Ok(count)
}

pub(super) fn get_u8(bytes: &mut &[u8]) -> Result<u8, RecordError> {
    need(bytes, 1)?;
    Ok(bytes.get_u8())
}

pub(super) fn get_u32(bytes: &mut &[u8]) -> Result<u32, RecordError> {
    need(bytes, 4)?;
    Ok(bytes.get_u32_le())
}

pub(super) fn get_i32(bytes: &mut &[u8]) -> Result<i32, RecordError> {
    need(bytes, 4)?;
    Ok(bytes.get_i32_le())
}

pub(super) fn get_u64(bytes: &mut &[u8]) -> Result<u64, RecordError> {
    need(bytes, 8)?;
    Ok(bytes.get_u64_le())
}

pub(super) fn get_i64(bytes: &mut &[u8]) -> Result<i64, RecordError> {
    need(bytes, 8)?;
    Ok(bytes.get_i64_le())
}

pub(super) fn put_text(out: &mut BytesMut, text: &str) {
    // Texts are checked where they come in: far below 64 KiB.
    out.put_u16_le(text.len() as u16);
    out.put_slice(text.as_bytes());
}

pub(super) fn get_text(bytes: &mut &[u8]) -> Result<Arc<str>, RecordError> {
    need(bytes, 2)?;
    let length = usize::from(bytes.get_u16_le());
    need(bytes, length)?;
    let text = std::str::from_utf8(&bytes[..length])
        .map_err(|error| field("text, not UTF-8 at byte", error.valid_up_to() as u64))?;
    let text = text.into();
    bytes.advance(length);
    Ok(text)
}

pub(super) fn put_optional(out: &mut BytesMut, text: Option<&Arc<str>>) {
    out.put_u8(text.is_some().into());
    if let Some(text) = text {
        put_text(out, text);
    }
}

pub(super) fn get_optional(bytes: &mut &[u8]) -> Result<Option<Arc<str>>, RecordError> {
    match get_u8(bytes)? {
        0 => Ok(None),
        1 => get_text(bytes).map(Some),
        other => Err(field("flag", other.into())),
    }
}

pub(super) fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32_le(bytes.len() as u32);
    out.put_slice(bytes);
}

pub(super) fn get_bytes(bytes: &mut &[u8]) -> Result<Bytes, RecordError> {
    let length = count(bytes, 1)?;
    let taken = Bytes::copy_from_slice(&bytes[..length]);
    bytes.advance(length);
    Ok(taken)
}

pub(super) fn put_topic(out: &mut BytesMut, topic: TopicId) {
    out.put_slice(topic.0.as_bytes());
}

pub(super) fn get_topic(bytes: &mut &[u8]) -> Result<TopicId, RecordError> {
    need(bytes, 16)?;
    Ok(TopicId(Uuid::from_u128(bytes.get_u128())))
}

pub(super) fn put_partition(out: &mut BytesMut, partition: PartitionId) {
    put_topic(out, partition.topic);
    out.put_u32_le(partition.index);
}

pub(super) fn get_partition(bytes: &mut &[u8]) -> Result<PartitionId, RecordError> {
    Ok(PartitionId {
        topic: get_topic(bytes)?,
        index: get_u32(bytes)?,
    })
}

pub(super) fn put_partitions(out: &mut BytesMut, partitions: &Partitions) {
    out.put_u32_le(partitions.len() as u32);
    for partition in partitions {
        put_partition(out, *partition);
    }
}

pub(super) fn get_partitions(bytes: &mut &[u8]) -> Result<Partitions, RecordError> {
    let count = count(bytes, PARTITION_BYTES)?;
    (0..count).map(|_| get_partition(bytes)).collect()
}

pub(super) fn put_texts(out: &mut BytesMut, texts: &BTreeSet<Arc<str>>) {
    out.put_u32_le(texts.len() as u32);
    texts.iter().for_each(|text| put_text(out, text));
}

pub(super) fn get_texts(bytes: &mut &[u8]) -> Result<BTreeSet<Arc<str>>, RecordError> {
    let count = count(bytes, 2)?;
    (0..count).map(|_| get_text(bytes)).collect()
}

pub(super) fn put_topics(out: &mut BytesMut, topics: &BTreeMap<TopicId, u32>) {
    out.put_u32_le(topics.len() as u32);
    for (topic, partitions) in topics {
        put_topic(out, *topic);
        out.put_u32_le(*partitions);
    }
}

pub(super) fn get_topics(bytes: &mut &[u8]) -> Result<BTreeMap<TopicId, u32>, RecordError> {
    let count = count(bytes, PARTITION_BYTES)?;
    let pairs = (0..count).map(|_| Ok((get_topic(bytes)?, get_u32(bytes)?)));
    pairs.collect()
}
