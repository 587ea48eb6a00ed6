//! Stages in a snapshot and changes in a delta.
//!
//! A snapshot is a version (1 byte, 1), the number of changes so far u64, and a count u32 of producers: id i64, epoch i16, coordinator epoch
//! i32, serial u32, last activity i64, open u8, count u32 of (group, partition, position u64, overtaken u8, offset).
//!
//! A change is its kind (1 byte): 0 staged (at i64, producer, group, count u32, (partition, offset)…), 1 settled (at i64, marker),
//! 2 overtaken (group, partition), 3 group gone (group), 4 topic gone (its uuid and 0 u32).
//!
//! An offset is offset u64, leader epoch i32, metadata with a flag, at i64. Little-endian. Version 1 is frozen.

use bytes::{BufMut, Bytes, BytesMut};
use hulse_proto::id::{Offset, PartitionId, ProducerId, TopicId};

use super::stages::{OffsetStages, StageChange, StagedOffset, StagedPlace, StagedProducer};
use crate::fields::{
    PARTITION_BYTES, RecordError, count, end, field, get_flag, get_i16, get_i32, get_i64, get_map,
    get_optional, get_partition, get_producer, get_text, get_u8, get_u32, get_u64, get_version,
    put_optional, put_partition, put_producer, put_text, put_version,
};
use crate::marker::Marker;

const OFFSET_BYTES: usize = 21;
const PRODUCER_BYTES: usize = 31;
const PLACE_BYTES: usize = 2 + PARTITION_BYTES + 9 + OFFSET_BYTES;

fn put_offset(out: &mut BytesMut, offset: &StagedOffset) {
    out.put_u64_le(offset.offset.0);
    out.put_i32_le(offset.leader_epoch);
    put_optional(out, offset.metadata.as_ref());
    out.put_i64_le(offset.at);
}

fn get_offset(bytes: &mut &[u8]) -> Result<StagedOffset, RecordError> {
    Ok(StagedOffset {
        offset: Offset(get_u64(bytes)?),
        leader_epoch: get_i32(bytes)?,
        metadata: get_optional(bytes)?,
        at: get_i64(bytes)?,
    })
}

impl OffsetStages {
    /// The bytes of a snapshot.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        put_version(&mut out);
        out.put_u64_le(self.next);
        out.put_u32_le(self.producers.len() as u32);
        for (id, known) in &self.producers {
            out.put_i64_le(id.0);
            out.put_i16_le(known.epoch);
            out.put_i32_le(known.coordinator_epoch);
            out.put_u32_le(known.serial);
            out.put_i64_le(known.last_activity);
            out.put_u8(known.open.into());
            out.put_u32_le(known.offsets.len() as u32);
            for ((group, partition), staged) in &known.offsets {
                put_text(&mut out, group);
                put_partition(&mut out, *partition);
                out.put_u64_le(staged.position);
                out.put_u8(staged.overtaken.into());
                put_offset(&mut out, &staged.offset);
            }
        }
        out.freeze()
    }

    /// Reads a snapshot.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are none.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, RecordError> {
        let bytes = &mut bytes;
        get_version(bytes)?;
        let mut this = Self {
            next: get_u64(bytes)?,
            ..Self::default()
        };
        for _ in 0..count(bytes, PRODUCER_BYTES)? {
            let id = ProducerId(get_i64(bytes)?);
            if this.get(id).is_some() {
                return Err(field("producer that is there already", id.0 as u64));
            }
            let producer = StagedProducer {
                epoch: get_i16(bytes)?,
                coordinator_epoch: get_i32(bytes)?,
                serial: get_u32(bytes)?,
                last_activity: get_i64(bytes)?,
                open: get_flag(bytes)?,
                offsets: get_map(bytes, PLACE_BYTES, |bytes| {
                    let place = (get_text(bytes)?, get_partition(bytes)?);
                    let staged = StagedPlace {
                        position: get_u64(bytes)?,
                        overtaken: get_flag(bytes)?,
                        offset: get_offset(bytes)?,
                    };
                    Ok((place, staged))
                })?,
            };
            this.put(id, producer);
        }
        end(bytes)?;
        Ok(this)
    }
}

impl StageChange {
    /// Writes it behind what is there.
    pub fn encode_into(&self, out: &mut BytesMut) {
        match self {
            Self::Staged {
                at,
                producer,
                group,
                offsets,
            } => {
                out.put_u8(0);
                out.put_i64_le(*at);
                put_producer(out, *producer);
                put_text(out, group);
                out.put_u32_le(offsets.len() as u32);
                for (partition, offset) in offsets {
                    put_partition(out, *partition);
                    put_offset(out, offset);
                }
            }
            Self::Settled { at, marker } => {
                out.put_u8(1);
                out.put_i64_le(*at);
                marker.put(out);
            }
            Self::Overtaken { group, partition } => {
                out.put_u8(2);
                put_text(out, group);
                put_partition(out, *partition);
            }
            Self::GroupGone(group) => {
                out.put_u8(3);
                put_text(out, group);
            }
            Self::TopicGone(topic) => {
                out.put_u8(4);
                let index = 0;
                put_partition(
                    out,
                    PartitionId {
                        topic: *topic,
                        index,
                    },
                );
            }
        }
    }

    /// Reads one from the front of `bytes`.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are none.
    pub fn decode_from(bytes: &mut &[u8]) -> Result<Self, RecordError> {
        Ok(match get_u8(bytes)? {
            0 => {
                let (at, producer) = (get_i64(bytes)?, get_producer(bytes)?);
                let group = get_text(bytes)?;
                let count = count(bytes, PARTITION_BYTES + OFFSET_BYTES)?;
                let offsets = (0..count).map(|_| Ok((get_partition(bytes)?, get_offset(bytes)?)));
                Self::Staged {
                    at,
                    producer,
                    group,
                    offsets: offsets.collect::<Result<_, RecordError>>()?,
                }
            }
            1 => Self::Settled {
                at: get_i64(bytes)?,
                marker: Marker::get(bytes)?,
            },
            2 => Self::Overtaken {
                group: get_text(bytes)?,
                partition: get_partition(bytes)?,
            },
            3 => Self::GroupGone(get_text(bytes)?),
            4 => {
                let TopicId(topic) = get_partition(bytes)?.topic;
                Self::TopicGone(TopicId(topic))
            }
            other => return Err(field("kind of change", other.into())),
        })
    }
}
