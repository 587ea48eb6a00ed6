//! What a delta of a coordinator shard says, and its form on disk.
//!
//! A delta is a version (1 byte, 1) and a run of changes. Each begins with its kind (1 byte) and the transactional id:
//!
//! | kind | then |
//! |---|---|
//! | 0 began | at i64, producer (id i64, epoch i16), previous id i64, last epoch i16, time-out u32 |
//! | 1 added | at i64, version u8, participants |
//! | 2 decided | at i64, commit u8, version u8, producer, next id i64, last epoch i16 |
//! | 3 completed | at i64 |
//! | 4 gone | |
//!
//! Participants are a count u32, and each its kind u8 (0 partition, 1 shard of groups), uuid, index u32, parts u8 (1 records, 2 acks).
//! Texts have a length of 16 bits. Little-endian. Version 1 is frozen.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use hulse_proto::id::ProducerId;
use hulse_proto::time::TimestampMs;

use super::transaction::{Participant, Parts};
use crate::fields::{
    PARTITION_BYTES, RecordError, field, get_flag, get_i16, get_i64, get_map, get_partition,
    get_producer, get_text, get_u8, get_u32, get_version, put_partition, put_producer, put_text,
    put_version,
};
use crate::marker;
use crate::producer::{Producer, Version};

/// Changes that become durable together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delta(pub Vec<(Arc<str>, Change)>);

/// One change of one transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An instance of the producer begins: the id is made, or stands empty again.
    Began {
        /// The coordinator's clock.
        at: TimestampMs,
        /// Who speaks from now on.
        producer: Producer,
        /// The id before, where it is another; or none.
        previous: ProducerId,
        /// The epoch of the caller; −1: it named none.
        last_epoch: i16,
        /// How long a transaction may take, ms.
        timeout_ms: u32,
    },
    /// These take part; the first ones open a transaction.
    Added {
        /// The coordinator's clock.
        at: TimestampMs,
        /// How the client will end it.
        version: Version,
        /// Who, beside those that do already.
        participants: BTreeMap<Participant, Parts>,
    },
    /// The transaction is decided.
    Decided {
        /// The coordinator's clock.
        at: TimestampMs,
        /// Else abort.
        commit: bool,
        /// Which rule holds for the markers' epoch.
        version: Version,
        /// Whom the markers fence.
        producer: Producer,
        /// The id from completion on, or none.
        next: ProducerId,
        /// The epoch of the caller; −1: it was no caller, but time or another instance.
        last_epoch: i16,
    },
    /// All participants know.
    Completed {
        /// The coordinator's clock.
        at: TimestampMs,
    },
    /// The id is forgotten.
    Gone,
}

impl Delta {
    /// The bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(96 * self.0.len() + 1);
        put_version(&mut out);
        for (id, change) in &self.0 {
            put_change(&mut out, id, change);
        }
        out.freeze()
    }

    /// Reads the bytes.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are none.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, RecordError> {
        get_version(&mut bytes)?;
        let mut changes = Vec::new();
        while !bytes.is_empty() {
            changes.push(get_change(&mut bytes)?);
        }
        Ok(Self(changes))
    }
}

fn put_change(out: &mut BytesMut, id: &str, change: &Change) {
    out.put_u8(match change {
        Change::Began { .. } => 0,
        Change::Added { .. } => 1,
        Change::Decided { .. } => 2,
        Change::Completed { .. } => 3,
        Change::Gone => 4,
    });
    put_text(out, id);
    match change {
        Change::Began {
            at,
            producer,
            previous,
            last_epoch,
            timeout_ms,
        } => {
            out.put_i64_le(*at);
            put_producer(out, *producer);
            out.put_i64_le(previous.0);
            out.put_i16_le(*last_epoch);
            out.put_u32_le(*timeout_ms);
        }
        Change::Added {
            at,
            version,
            participants,
        } => {
            out.put_i64_le(*at);
            marker::put_version(out, *version);
            put_participants(out, participants);
        }
        Change::Decided {
            at,
            commit,
            version,
            producer,
            next,
            last_epoch,
        } => {
            out.put_i64_le(*at);
            out.put_u8((*commit).into());
            marker::put_version(out, *version);
            put_producer(out, *producer);
            out.put_i64_le(next.0);
            out.put_i16_le(*last_epoch);
        }
        Change::Completed { at } => out.put_i64_le(*at),
        Change::Gone => {}
    }
}

fn get_change(bytes: &mut &[u8]) -> Result<(Arc<str>, Change), RecordError> {
    let kind = get_u8(bytes)?;
    let id = get_text(bytes)?;
    let change = match kind {
        0 => Change::Began {
            at: get_i64(bytes)?,
            producer: get_producer(bytes)?,
            previous: ProducerId(get_i64(bytes)?),
            last_epoch: get_i16(bytes)?,
            timeout_ms: get_u32(bytes)?,
        },
        1 => Change::Added {
            at: get_i64(bytes)?,
            version: marker::get_version(bytes)?,
            participants: get_participants(bytes)?,
        },
        2 => Change::Decided {
            at: get_i64(bytes)?,
            commit: get_flag(bytes)?,
            version: marker::get_version(bytes)?,
            producer: get_producer(bytes)?,
            next: ProducerId(get_i64(bytes)?),
            last_epoch: get_i16(bytes)?,
        },
        3 => Change::Completed {
            at: get_i64(bytes)?,
        },
        4 => Change::Gone,
        other => return Err(field("kind of change", other.into())),
    };
    Ok((id, change))
}

pub(super) fn put_participants(out: &mut BytesMut, participants: &BTreeMap<Participant, Parts>) {
    out.put_u32_le(participants.len() as u32);
    for (participant, parts) in participants {
        out.put_u8(matches!(participant, Participant::Groups(_)).into());
        put_partition(out, participant.partition());
        out.put_u8(u8::from(parts.data) | u8::from(parts.acks) << 1);
    }
}

pub(super) fn get_participants(
    bytes: &mut &[u8],
) -> Result<BTreeMap<Participant, Parts>, RecordError> {
    get_map(bytes, PARTITION_BYTES + 2, |bytes| {
        let groups = get_flag(bytes)?;
        let partition = get_partition(bytes)?;
        let participant = match groups {
            true => Participant::Groups(partition),
            false => Participant::Partition(partition),
        };
        let parts = get_u8(bytes)?;
        if parts > 3 {
            return Err(field("parts of a participant", parts.into()));
        }
        let parts = Parts {
            data: parts & 1 != 0,
            acks: parts & 2 != 0,
        };
        Ok((participant, parts))
    })
}
