//! Both halves in a snapshot, and a change of the state in a delta.
//!
//! L: a version (1 byte, 1), end u64, count u32 of producers (id i64, epoch i16, coordinator epoch i32, serial u32, flag and first offset
//! u64, last activity i64), count u32 of what was aborted (first u64, last u64, producer i64, stable u64).
//!
//! M: a version, count u32 of producers (id i64, epoch i16, coordinator epoch i32, serial u32, last activity i64, open u8, count u32 of
//! cursors, each its uuid and ranges).
//!
//! A change is its kind (1 byte): 0 staged (at i64, producer, count u32, cursors with ranges), 1 settled (at i64, marker), 2 voided (uuid).
//! Ranges are a count u32 and (first u64, end u64). Little-endian. Version 1 is frozen.

use bytes::{BufMut, Bytes, BytesMut};
use hulse_proto::id::{Offset, ProducerId};

use super::aborted::Aborted;
use super::log::{LogProducer, LogTransactions};
use super::staged::{Stage, StagedAcks};
use super::state::{StateChange, StateProducer, StateTransactions};
use crate::fields::{
    RecordError, count, end, field, get_flag, get_i16, get_i32, get_i64, get_producer, get_ranges,
    get_subscription, get_u8, get_u32, get_u64, get_version, put_producer, put_ranges,
    put_subscription, put_version,
};
use crate::marker::Marker;

const LOG_PRODUCER_BYTES: usize = 27;
const ABORTED_BYTES: usize = 32;
const STATE_PRODUCER_BYTES: usize = 31;
const STAGE_BYTES: usize = 20;

impl LogTransactions {
    /// The bytes of a snapshot.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        put_version(&mut out);
        out.put_u64_le(self.end.0);
        out.put_u32_le(self.producers().len() as u32);
        for (id, known) in self.producers() {
            out.put_i64_le(id.0);
            out.put_i16_le(known.epoch);
            out.put_i32_le(known.coordinator_epoch);
            out.put_u32_le(known.serial);
            out.put_u8(known.open.is_some().into());
            if let Some(first) = known.open {
                out.put_u64_le(first.0);
            }
            out.put_i64_le(known.last_activity);
        }
        out.put_u32_le(self.aborted().len() as u32);
        for aborted in self.aborted().iter() {
            out.put_u64_le(aborted.first.0);
            out.put_u64_le(aborted.last.0);
            out.put_i64_le(aborted.producer.0);
            out.put_u64_le(aborted.stable.0);
        }
        out.freeze()
    }

    /// Reads a snapshot from the front of `bytes`.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are none.
    pub fn decode_from(bytes: &mut &[u8]) -> Result<Self, RecordError> {
        get_version(bytes)?;
        let mut this = Self {
            end: Offset(get_u64(bytes)?),
            ..Self::default()
        };
        for _ in 0..count(bytes, LOG_PRODUCER_BYTES)? {
            let id = ProducerId(get_i64(bytes)?);
            let (epoch, coordinator_epoch) = (get_i16(bytes)?, get_i32(bytes)?);
            let serial = get_u32(bytes)?;
            let open = match get_flag(bytes)? {
                true => Some(Offset(get_u64(bytes)?)),
                false => None,
            };
            let producer = LogProducer {
                epoch,
                coordinator_epoch,
                serial,
                open,
                last_activity: get_i64(bytes)?,
            };
            this.restore_producer(id, producer);
        }
        let mut last = Offset(0);
        for _ in 0..count(bytes, ABORTED_BYTES)? {
            let aborted = Aborted {
                first: Offset(get_u64(bytes)?),
                last: Offset(get_u64(bytes)?),
                producer: ProducerId(get_i64(bytes)?),
                stable: Offset(get_u64(bytes)?),
            };
            if aborted.last < last || aborted.first > aborted.last {
                return Err(field("order of aborted ranges", aborted.last.0));
            }
            last = aborted.last;
            this.restore_aborted(aborted);
        }
        Ok(this)
    }
}

impl StateTransactions {
    /// The bytes of a snapshot.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        put_version(&mut out);
        out.put_u32_le(self.producers().len() as u32);
        for (id, known) in self.producers() {
            out.put_i64_le(id.0);
            out.put_i16_le(known.epoch);
            out.put_i32_le(known.coordinator_epoch);
            out.put_u32_le(known.serial);
            out.put_i64_le(known.last_activity);
            out.put_u8(known.open.into());
            put_stages(&mut out, &known.acks.stages());
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
        let mut this = Self::default();
        for _ in 0..count(bytes, STATE_PRODUCER_BYTES)? {
            let id = ProducerId(get_i64(bytes)?);
            if this.get(id).is_some() {
                return Err(field("producer that is there already", id.0 as u64));
            }
            let (epoch, coordinator_epoch) = (get_i16(bytes)?, get_i32(bytes)?);
            let (serial, last_activity) = (get_u32(bytes)?, get_i64(bytes)?);
            let open = get_flag(bytes)?;
            let mut acks = StagedAcks::default();
            for (subscription, ranges) in get_stages(bytes)? {
                ranges
                    .into_iter()
                    .for_each(|range| acks.insert(subscription, range));
            }
            let producer = StateProducer {
                epoch,
                coordinator_epoch,
                serial,
                last_activity,
                open,
                acks,
            };
            this.put(id, producer);
        }
        end(bytes)?;
        Ok(this)
    }
}

fn put_stages(out: &mut BytesMut, stages: &[Stage]) {
    out.put_u32_le(stages.len() as u32);
    for (subscription, ranges) in stages {
        put_subscription(out, *subscription);
        put_ranges(out, ranges.len(), ranges.iter().copied());
    }
}

fn get_stages(bytes: &mut &[u8]) -> Result<Vec<Stage>, RecordError> {
    let count = count(bytes, STAGE_BYTES)?;
    let stages = (0..count).map(|_| Ok((get_subscription(bytes)?, get_ranges(bytes)?)));
    stages.collect()
}

impl StateChange {
    /// Writes it behind what is there.
    pub fn encode_into(&self, out: &mut BytesMut) {
        match self {
            Self::Staged {
                at,
                producer,
                stages,
            } => {
                out.put_u8(0);
                out.put_i64_le(*at);
                put_producer(out, *producer);
                put_stages(out, stages);
            }
            Self::Settled { at, marker } => {
                out.put_u8(1);
                out.put_i64_le(*at);
                marker.put(out);
            }
            Self::Voided(subscription) => {
                out.put_u8(2);
                put_subscription(out, *subscription);
            }
        }
    }

    /// Reads one from the front of `bytes`.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are none.
    pub fn decode_from(bytes: &mut &[u8]) -> Result<Self, RecordError> {
        match get_u8(bytes)? {
            0 => Ok(Self::Staged {
                at: get_i64(bytes)?,
                producer: get_producer(bytes)?,
                stages: get_stages(bytes)?,
            }),
            1 => Ok(Self::Settled {
                at: get_i64(bytes)?,
                marker: Marker::get(bytes)?,
            }),
            2 => Ok(Self::Voided(get_subscription(bytes)?)),
            other => Err(field("kind of change", other.into())),
        }
    }
}
