//! Deltas and snapshots on disk.
//!
//! A delta is a version (1 byte, 1) and a run of changes. Each begins with its kind (1 byte) and the name of its group:
//!
//! | kind | then |
//! |---|---|
//! | 0 classic | at i64, the group |
//! | 1 epoch | at i64, epoch i32, assignor, count u32, (topic uuid, partitions u32)… |
//! | 2 member | id, facts |
//! | 3 target | epoch i32, count u32, (id, partitions)… |
//! | 4 current | id, current |
//! | 5 member gone | at i64, id |
//! | 6 committed | partition, the offset: u64, leader epoch i32, metadata, at i64 |
//! | 7 offset gone | partition |
//! | 8 group gone | |
//!
//! A snapshot is a version (1 byte, 1), a count u32, and groups by name: empty_since i64, kind u8 (0 simple, 1 classic, 2
//! consumer), what it is, count u32, (partition, offset)…. Texts have a length of 16 bits, bytes one of 32, a partition is uuid and
//! u32, what may be missing begins with a flag. Little-endian. Version 1 is frozen.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use hulse_proto::id::Offset;

use super::change::{Change, Delta};
use super::consumer::{ConsumerGroup, ConsumerMember};
use super::fields::{
    PARTITION_BYTES, RecordError, count, field, get_i32, get_i64, get_optional, get_partition,
    get_partitions, get_text, get_topics, get_u8, get_u64, put_optional, put_partition,
    put_partitions, put_text, put_topics,
};
use super::group::{CommittedOffset, DurableGroup, GroupKind};
use super::members::{get_classic, get_current, get_facts, put_classic, put_current, put_facts};
use super::shard::ShardState;
use crate::limits::{GROUPS_MAX, SNAPSHOT_BYTES_MAX};

const FORMAT_VERSION: u8 = 1;

fn version(bytes: &mut &[u8]) -> Result<(), RecordError> {
    match get_u8(bytes)? {
        FORMAT_VERSION => Ok(()),
        other => Err(RecordError::Version(other)),
    }
}

fn put_offset(out: &mut BytesMut, offset: &CommittedOffset) {
    out.put_u64_le(offset.offset.0);
    out.put_i32_le(offset.leader_epoch);
    put_optional(out, offset.metadata.as_ref());
    out.put_i64_le(offset.at);
}

fn get_offset(bytes: &mut &[u8]) -> Result<CommittedOffset, RecordError> {
    Ok(CommittedOffset {
        offset: Offset(get_u64(bytes)?),
        leader_epoch: get_i32(bytes)?,
        metadata: get_optional(bytes)?,
        at: get_i64(bytes)?,
    })
}

impl Delta {
    /// The bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64 * self.0.len() + 1);
        out.put_u8(FORMAT_VERSION);
        for (group, change) in &self.0 {
            put_change(&mut out, group, change);
        }
        out.freeze()
    }

    /// Reads the bytes.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are none.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, RecordError> {
        version(&mut bytes)?;
        let mut changes = Vec::new();
        while !bytes.is_empty() {
            changes.push(get_change(&mut bytes)?);
        }
        Ok(Self(changes))
    }
}

fn put_change(out: &mut BytesMut, group: &str, change: &Change) {
    out.put_u8(match change {
        Change::Classic { .. } => 0,
        Change::Epoch { .. } => 1,
        Change::Member { .. } => 2,
        Change::Target { .. } => 3,
        Change::Current { .. } => 4,
        Change::MemberGone { .. } => 5,
        Change::Committed { .. } => 6,
        Change::OffsetGone { .. } => 7,
        Change::Gone => 8,
    });
    put_text(out, group);
    match change {
        Change::Classic { at, group } => {
            out.put_i64_le(*at);
            put_classic(out, group);
        }
        Change::Epoch {
            at,
            epoch,
            assignor,
            topics,
        } => {
            out.put_i64_le(*at);
            out.put_i32_le(*epoch);
            put_text(out, assignor);
            put_topics(out, topics);
        }
        Change::Member { member, facts } => {
            put_text(out, member);
            put_facts(out, facts);
        }
        Change::Target { epoch, members } => {
            out.put_i32_le(*epoch);
            out.put_u32_le(members.len() as u32);
            for (member, target) in members {
                put_text(out, member);
                put_partitions(out, target);
            }
        }
        Change::Current { member, current } => {
            put_text(out, member);
            put_current(out, current);
        }
        Change::MemberGone { at, member } => {
            out.put_i64_le(*at);
            put_text(out, member);
        }
        Change::Committed { partition, offset } => {
            put_partition(out, *partition);
            put_offset(out, offset);
        }
        Change::OffsetGone { partition } => put_partition(out, *partition),
        Change::Gone => {}
    }
}

fn get_change(bytes: &mut &[u8]) -> Result<(Arc<str>, Change), RecordError> {
    let kind = get_u8(bytes)?;
    let group = get_text(bytes)?;
    let change = match kind {
        0 => Change::Classic {
            at: get_i64(bytes)?,
            group: get_classic(bytes)?,
        },
        1 => Change::Epoch {
            at: get_i64(bytes)?,
            epoch: get_i32(bytes)?,
            assignor: get_text(bytes)?,
            topics: get_topics(bytes)?,
        },
        2 => Change::Member {
            member: get_text(bytes)?,
            facts: get_facts(bytes)?,
        },
        3 => {
            let epoch = get_i32(bytes)?;
            let count = count(bytes, 6)?;
            let members = (0..count).map(|_| Ok((get_text(bytes)?, get_partitions(bytes)?)));
            Change::Target {
                epoch,
                members: members.collect::<Result<_, RecordError>>()?,
            }
        }
        4 => Change::Current {
            member: get_text(bytes)?,
            current: get_current(bytes)?,
        },
        5 => Change::MemberGone {
            at: get_i64(bytes)?,
            member: get_text(bytes)?,
        },
        6 => Change::Committed {
            partition: get_partition(bytes)?,
            offset: get_offset(bytes)?,
        },
        7 => Change::OffsetGone {
            partition: get_partition(bytes)?,
        },
        8 => Change::Gone,
        other => return Err(field("kind of change", other.into())),
    };
    Ok((group, change))
}

impl ShardState {
    /// The bytes of a snapshot.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(FORMAT_VERSION);
        out.put_u32_le(self.groups.len() as u32);
        for (name, group) in &self.groups {
            put_text(&mut out, name);
            put_group(&mut out, group);
        }
        out.freeze()
    }

    /// Reads a snapshot.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are none.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() > SNAPSHOT_BYTES_MAX {
            return Err(field("bytes of a snapshot", bytes.len() as u64));
        }
        version(&mut bytes)?;
        let mut state = Self::default();
        let groups = count(&mut bytes, 15)?;
        if groups > GROUPS_MAX {
            return Err(field("number of groups", groups as u64));
        }
        for _ in 0..groups {
            let name = get_text(&mut bytes)?;
            state.groups.insert(name, get_group(&mut bytes)?);
        }
        match bytes.is_empty() {
            true => Ok(state),
            false => Err(field("bytes behind a snapshot", bytes.len() as u64)),
        }
    }
}

fn put_group(out: &mut BytesMut, group: &DurableGroup) {
    out.put_i64_le(group.empty_since);
    match &group.kind {
        GroupKind::Simple => out.put_u8(0),
        GroupKind::Classic(classic) => {
            out.put_u8(1);
            put_classic(out, classic);
        }
        GroupKind::Consumer(consumer) => {
            out.put_u8(2);
            put_consumer(out, consumer);
        }
    }
    out.put_u32_le(group.offsets.len() as u32);
    for (partition, offset) in &group.offsets {
        put_partition(out, *partition);
        put_offset(out, offset);
    }
}

fn get_group(bytes: &mut &[u8]) -> Result<DurableGroup, RecordError> {
    let empty_since = get_i64(bytes)?;
    let kind = match get_u8(bytes)? {
        0 => GroupKind::Simple,
        1 => GroupKind::Classic(get_classic(bytes)?),
        2 => GroupKind::Consumer(get_consumer(bytes)?),
        other => return Err(field("kind of group", other.into())),
    };
    let count = count(bytes, PARTITION_BYTES + 21)?;
    let offsets = (0..count).map(|_| Ok((get_partition(bytes)?, get_offset(bytes)?)));
    Ok(DurableGroup {
        kind,
        empty_since,
        offsets: offsets.collect::<Result<_, RecordError>>()?,
    })
}

fn put_consumer(out: &mut BytesMut, group: &ConsumerGroup) {
    out.put_i32_le(group.epoch);
    out.put_i32_le(group.target_epoch);
    put_text(out, &group.assignor);
    put_topics(out, &group.topics);
    out.put_u32_le(group.members.len() as u32);
    for (id, member) in &group.members {
        put_text(out, id);
        put_facts(out, &member.facts);
        put_current(out, &member.current);
    }
    out.put_u32_le(group.target.len() as u32);
    for (id, target) in &group.target {
        put_text(out, id);
        put_partitions(out, target);
    }
}

fn get_consumer(bytes: &mut &[u8]) -> Result<ConsumerGroup, RecordError> {
    let mut group = ConsumerGroup {
        epoch: get_i32(bytes)?,
        target_epoch: get_i32(bytes)?,
        assignor: get_text(bytes)?,
        topics: get_topics(bytes)?,
        ..ConsumerGroup::default()
    };
    for _ in 0..count(bytes, 36)? {
        let id = get_text(bytes)?;
        let facts = get_facts(bytes)?;
        let member = ConsumerMember {
            facts,
            ..ConsumerMember::default()
        };
        group.members.insert(id.clone(), member);
        group.set_current(&id, get_current(bytes)?);
    }
    for _ in 0..count(bytes, 6)? {
        let id = get_text(bytes)?;
        group.target.insert(id, get_partitions(bytes)?);
    }
    Ok(group)
}
