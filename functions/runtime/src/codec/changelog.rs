//! Records of a changelog: per epoch its deltas, a pointer if a snapshot is ready, and last its meta.
//!
//! Delta: epoch `u64`, table `u16`, chunk `u32` (number among the epoch's deltas), rows by the table's codec to the end.
//! Meta: epoch `u64`, time `i64`, deltas `u32`, task watermark `i64`, five counters `u64` (rows, late, dead, skipped, future), number
//! of partitions `u32`, each: input `u16`, partition `u32`, next offset `u64`, watermark `i64`, idle `u8`.
//! Pointer: epoch `u64`, changelog end `u64`, length `u64`, checksum `u32`, path (`u16` length, UTF-8).

use std::collections::BTreeMap;

use bytes::Bytes;
use hulse_proto::time::TimestampMs;

use super::frame::{Frame, FrameKind};
use super::{CodecError, Reader};
use crate::id::{Fingerprint, InputPartition};
use crate::watermark::{NO_WATERMARK, Progress, Watermarks};

/// Bytes of one partition in a meta.
const PARTITION_BYTES: usize = 23;
/// Bytes of a delta before its rows.
pub const DELTA_HEAD_BYTES: usize = 14;

/// Changed rows of one table; a part of what an epoch changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// Of this epoch.
    pub epoch: u64,
    /// Of this table.
    pub table: u16,
    /// Number among the epoch's deltas, from 0.
    pub chunk: u32,
    /// By the table's codec.
    pub rows: Bytes,
}

/// What happened since the first epoch, in records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Read.
    pub rows: u64,
    /// Late.
    pub late: u64,
    /// Written to the topic of dead letters.
    pub dead: u64,
    /// Failed and left out.
    pub skipped: u64,
    /// Stamped too far in the future.
    pub future: u64,
}

/// The end of an epoch: all that a successor must know besides the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Number of the epoch; 0: nothing was committed yet.
    pub epoch: u64,
    /// What the epoch called now.
    pub epoch_time: TimestampMs,
    /// How many deltas the epoch has.
    pub deltas: u32,
    /// Next offset of each partition.
    pub offsets: BTreeMap<InputPartition, u64>,
    /// As of the end of the epoch.
    pub watermarks: Watermarks,
    /// As of the end of the epoch.
    pub counters: Counters,
}

/// Where a snapshot lies, and what it must look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// State after this epoch.
    pub epoch: u64,
    /// Deltas of later epochs begin here, or behind.
    pub changelog_end: u64,
    /// Length of the object, bytes.
    pub bytes: u64,
    /// CRC32C of the object.
    pub checksum: u32,
    /// Name of the object.
    pub path: String,
}

/// A record of the changelog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangelogRecord {
    /// Rows.
    Delta(Delta),
    /// End of an epoch.
    Meta(Meta),
    /// A snapshot is there.
    Pointer(Pointer),
}

impl Meta {
    /// Before the first epoch, at these offsets.
    pub fn start(offsets: BTreeMap<InputPartition, u64>) -> Self {
        Self {
            epoch: 0,
            epoch_time: NO_WATERMARK,
            deltas: 0,
            watermarks: Watermarks::new(offsets.keys().copied()),
            offsets,
            counters: Counters::default(),
        }
    }
}

impl ChangelogRecord {
    /// Encodes one.
    ///
    /// # Errors
    /// `TooLong`: something is longer than its field.
    pub fn encode(&self, fingerprint: Fingerprint) -> Result<Bytes, CodecError> {
        let (kind, body) = match self {
            Self::Delta(delta) => (FrameKind::Delta, delta_body(delta)),
            Self::Meta(meta) => (FrameKind::Meta, meta_body(meta)?),
            Self::Pointer(pointer) => (FrameKind::Pointer, pointer_body(pointer)?),
        };
        let body = body.into();
        Frame {
            kind,
            fingerprint,
            body,
        }
        .encode()
    }

    /// Decodes one, and says by which function it was written.
    ///
    /// # Errors
    /// [`CodecError`].
    pub fn decode(bytes: &Bytes) -> Result<(Self, Fingerprint), CodecError> {
        let frame = Frame::decode(bytes)?;
        let mut reader = Reader::new(&frame.body);
        let record = match frame.kind {
            FrameKind::Delta => Self::Delta(read_delta(&mut reader)?),
            FrameKind::Meta => Self::Meta(read_meta(&mut reader)?),
            FrameKind::Pointer => Self::Pointer(read_pointer(&mut reader)?),
            FrameKind::Snapshot => {
                return Err(CodecError::Field {
                    field: "kind",
                    value: FrameKind::Snapshot as u64,
                });
            }
        };
        reader.end()?;
        Ok((record, frame.fingerprint))
    }
}

fn delta_body(delta: &Delta) -> Vec<u8> {
    let mut out = Vec::with_capacity(DELTA_HEAD_BYTES + delta.rows.len());
    out.extend(delta.epoch.to_le_bytes());
    out.extend(delta.table.to_le_bytes());
    out.extend(delta.chunk.to_le_bytes());
    out.extend_from_slice(&delta.rows);
    out
}

fn read_delta(reader: &mut Reader<'_>) -> Result<Delta, CodecError> {
    Ok(Delta {
        epoch: reader.u64()?,
        table: reader.u16()?,
        chunk: reader.u32()?,
        rows: reader.bytes(reader.left())?,
    })
}

fn meta_body(meta: &Meta) -> Result<Vec<u8>, CodecError> {
    let mut out = Vec::new();
    out.extend(meta.epoch.to_le_bytes());
    out.extend(meta.epoch_time.to_le_bytes());
    out.extend(meta.deltas.to_le_bytes());
    out.extend(meta.watermarks.stage.to_le_bytes());
    let counters = &meta.counters;
    for counter in [
        counters.rows,
        counters.late,
        counters.dead,
        counters.skipped,
        counters.future,
    ] {
        out.extend(counter.to_le_bytes());
    }
    let partitions = u32::try_from(meta.offsets.len()).map_err(|_| CodecError::TooLong {
        bytes: meta.offsets.len(),
    })?;
    out.extend(partitions.to_le_bytes());
    for (partition, next) in &meta.offsets {
        let progress = meta.watermarks.partitions.get(partition);
        let progress = progress.copied().unwrap_or_default();
        out.extend(partition.input.to_le_bytes());
        out.extend(partition.partition.to_le_bytes());
        out.extend(next.to_le_bytes());
        out.extend(progress.watermark.to_le_bytes());
        out.push(u8::from(progress.idle));
    }
    Ok(out)
}

fn read_meta(reader: &mut Reader<'_>) -> Result<Meta, CodecError> {
    let (epoch, epoch_time, deltas) = (reader.u64()?, reader.i64()?, reader.u32()?);
    let stage = reader.i64()?;
    let counters = Counters {
        rows: reader.u64()?,
        late: reader.u64()?,
        dead: reader.u64()?,
        skipped: reader.u64()?,
        future: reader.u64()?,
    };
    let mut offsets = BTreeMap::new();
    let mut partitions = BTreeMap::new();
    for _ in 0..reader.count(PARTITION_BYTES)? {
        let partition = InputPartition {
            input: reader.u16()?,
            partition: reader.u32()?,
        };
        let next = reader.u64()?;
        let watermark = reader.i64()?;
        let idle = match reader.u8()? {
            0 => false,
            1 => true,
            value => {
                let value = u64::from(value);
                return Err(CodecError::Field {
                    field: "idle",
                    value,
                });
            }
        };
        if offsets
            .last_key_value()
            .is_some_and(|(last, _)| *last >= partition)
        {
            return Err(CodecError::Field {
                field: "partition",
                value: u64::from(partition.partition),
            });
        }
        offsets.insert(partition, next);
        partitions.insert(partition, Progress { watermark, idle });
    }
    Ok(Meta {
        epoch,
        epoch_time,
        deltas,
        offsets,
        watermarks: Watermarks { stage, partitions },
        counters,
    })
}

fn pointer_body(pointer: &Pointer) -> Result<Vec<u8>, CodecError> {
    let length = u16::try_from(pointer.path.len()).map_err(|_| CodecError::TooLong {
        bytes: pointer.path.len(),
    })?;
    let mut out = Vec::new();
    out.extend(pointer.epoch.to_le_bytes());
    out.extend(pointer.changelog_end.to_le_bytes());
    out.extend(pointer.bytes.to_le_bytes());
    out.extend(pointer.checksum.to_le_bytes());
    out.extend(length.to_le_bytes());
    out.extend_from_slice(pointer.path.as_bytes());
    Ok(out)
}

fn read_pointer(reader: &mut Reader<'_>) -> Result<Pointer, CodecError> {
    let (epoch, changelog_end) = (reader.u64()?, reader.u64()?);
    let (bytes, checksum) = (reader.u64()?, reader.u32()?);
    let length = reader.u16()? as usize;
    let path = reader.bytes(length)?;
    let path = std::str::from_utf8(&path).map_err(|fault| CodecError::Field {
        field: "path",
        value: fault.valid_up_to() as u64,
    })?;
    Ok(Pointer {
        epoch,
        changelog_end,
        bytes,
        checksum,
        path: path.to_owned(),
    })
}
