//! Deltas and snapshots of a staging store on disk.
//!
//! A delta is a version (1 byte, 1) and changes, each its kind (1 byte): 0 publisher (producer), 1 added (id, item), 2 decided (id, decision
//! u8, forget at i64), 3 checked (id, checks u16, due i64), 4 publishing (id, sequence i32), 5 done (id, forget at i64), 6 targets gone (count
//! u32, uuids), 7 renewed (id, place u64), 8 resumed (id, due i64), 9 forgotten (id).
//!
//! A snapshot is a version, the publisher, a count u32 of targets (partition, next sequence i32), a count u32 of items (id, item).
//!
//! An id is first u64, nonce u64; an item is half u8, for a half message its group and checks_max u16, target, place u64, made at i64, due
//! i64, checks u16, status u8, sequence i32. A decision is 0 commit, 1 rollback, 2 discard; a status 0 waiting, 1 committed, 2 publishing, 3
//! published, 4 rolled back, 5 and 6 discarding (target gone), 7 and 8 discarded (target gone). Little-endian. Version 1 is frozen.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hulse_proto::id::{Offset, TopicId};
use uuid::Uuid;

use super::change::{Change, Delta};
use super::item::{Decision, Item, ItemId, Kind, Status};
use super::state::{StagingState, Target};
use crate::fields::{
    PARTITION_BYTES, RecordError, count, end, field, get_flag, get_i32, get_i64, get_partition,
    get_producer, get_text, get_u8, get_u64, get_version, need, put_partition, put_producer,
    put_text, put_version,
};
use crate::limits::{ITEMS_MAX, SNAPSHOT_BYTES_MAX};

const ID_BYTES: usize = 16;
const ITEM_BYTES: usize = 1 + PARTITION_BYTES + 24 + 7;
const DECISIONS: [Decision; 3] = [Decision::Commit, Decision::Rollback, Decision::Discard];

fn put_id(out: &mut BytesMut, id: ItemId) {
    out.put_u64_le(id.first.0);
    out.put_u64_le(id.nonce);
}

fn get_id(bytes: &mut &[u8]) -> Result<ItemId, RecordError> {
    Ok(ItemId {
        first: Offset(get_u64(bytes)?),
        nonce: get_u64(bytes)?,
    })
}

fn get_u16(bytes: &mut &[u8]) -> Result<u16, RecordError> {
    need(bytes, 2)?;
    Ok(bytes.get_u16_le())
}

fn put_item(out: &mut BytesMut, item: &Item) {
    match &item.kind {
        Kind::Scheduled => out.put_u8(0),
        Kind::Half { group, checks_max } => {
            out.put_u8(1);
            put_text(out, group);
            out.put_u16_le(*checks_max);
        }
    }
    put_partition(out, item.target);
    out.put_u64_le(item.place.0);
    out.put_i64_le(item.made_at);
    out.put_i64_le(item.due);
    out.put_u16_le(item.checks);
    let (status, sequence) = match item.status {
        Status::Waiting => (0, 0),
        Status::Committed => (1, 0),
        Status::Publishing(sequence) => (2, sequence),
        Status::Published => (3, 0),
        Status::RolledBack => (4, 0),
        Status::Discarding(gone) => (5 + u8::from(gone), 0),
        Status::Discarded(gone) => (7 + u8::from(gone), 0),
    };
    out.put_u8(status);
    out.put_i32_le(sequence);
}

fn get_item(bytes: &mut &[u8]) -> Result<Item, RecordError> {
    let kind = match get_flag(bytes)? {
        false => Kind::Scheduled,
        true => Kind::Half {
            group: get_text(bytes)?,
            checks_max: get_u16(bytes)?,
        },
    };
    Ok(Item {
        kind,
        target: get_partition(bytes)?,
        place: Offset(get_u64(bytes)?),
        made_at: get_i64(bytes)?,
        due: get_i64(bytes)?,
        checks: get_u16(bytes)?,
        status: get_status(bytes)?,
    })
}

fn get_status(bytes: &mut &[u8]) -> Result<Status, RecordError> {
    let (status, sequence) = (get_u8(bytes)?, get_i32(bytes)?);
    if sequence < 0 || (status != 2 && sequence != 0) {
        return Err(field("sequence of an item", sequence as u64));
    }
    Ok(match status {
        0 => Status::Waiting,
        1 => Status::Committed,
        2 => Status::Publishing(sequence),
        3 => Status::Published,
        4 => Status::RolledBack,
        5 | 6 => Status::Discarding(status == 6),
        7 | 8 => Status::Discarded(status == 8),
        other => return Err(field("status of an item", other.into())),
    })
}

impl Delta {
    /// The bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64 * self.0.len() + 1);
        put_version(&mut out);
        self.0
            .iter()
            .for_each(|change| put_change(&mut out, change));
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

/// Kind and id of a change of one item.
fn head(out: &mut BytesMut, kind: u8, id: ItemId) {
    out.put_u8(kind);
    put_id(out, id);
}

fn put_change(out: &mut BytesMut, change: &Change) {
    match change {
        Change::Publisher(producer) => {
            out.put_u8(0);
            put_producer(out, *producer);
        }
        Change::Added(id, item) => {
            head(out, 1, *id);
            put_item(out, item);
        }
        Change::Decided {
            id,
            decision,
            forget_at,
        } => {
            head(out, 2, *id);
            let decision = DECISIONS.iter().position(|known| known == decision);
            out.put_u8(decision.unwrap_or_default() as u8);
            out.put_i64_le(*forget_at);
        }
        Change::Checked { id, checks, due } => {
            head(out, 3, *id);
            out.put_u16_le(*checks);
            out.put_i64_le(*due);
        }
        Change::Publishing { id, sequence } => {
            head(out, 4, *id);
            out.put_i32_le(*sequence);
        }
        Change::Done { id, forget_at } => {
            head(out, 5, *id);
            out.put_i64_le(*forget_at);
        }
        Change::TargetsGone(topics) => {
            out.put_u8(6);
            out.put_u32_le(topics.len() as u32);
            topics
                .iter()
                .for_each(|topic| out.put_slice(topic.0.as_bytes()));
        }
        Change::Renewed { id, place } => {
            head(out, 7, *id);
            out.put_u64_le(place.0);
        }
        Change::Resumed { id, due } => {
            head(out, 8, *id);
            out.put_i64_le(*due);
        }
        Change::Forgotten(id) => head(out, 9, *id),
    }
}

fn get_change(bytes: &mut &[u8]) -> Result<Change, RecordError> {
    Ok(match get_u8(bytes)? {
        0 => Change::Publisher(get_producer(bytes)?),
        1 => Change::Added(get_id(bytes)?, get_item(bytes)?),
        2 => {
            let (id, decision) = (get_id(bytes)?, get_u8(bytes)?);
            let decision = *DECISIONS
                .get(usize::from(decision))
                .ok_or_else(|| field("decision", decision.into()))?;
            Change::Decided {
                id,
                decision,
                forget_at: get_i64(bytes)?,
            }
        }
        3 => Change::Checked {
            id: get_id(bytes)?,
            checks: get_u16(bytes)?,
            due: get_i64(bytes)?,
        },
        4 => {
            let (id, sequence) = (get_id(bytes)?, get_i32(bytes)?);
            if sequence < 0 {
                return Err(field("sequence of an item", sequence as u64));
            }
            Change::Publishing { id, sequence }
        }
        5 => Change::Done {
            id: get_id(bytes)?,
            forget_at: get_i64(bytes)?,
        },
        6 => {
            let count = count(bytes, 16)?;
            let topics = (0..count).map(|_| TopicId(Uuid::from_u128(bytes.get_u128())));
            Change::TargetsGone(topics.collect())
        }
        7 => Change::Renewed {
            id: get_id(bytes)?,
            place: Offset(get_u64(bytes)?),
        },
        8 => Change::Resumed {
            id: get_id(bytes)?,
            due: get_i64(bytes)?,
        },
        9 => Change::Forgotten(get_id(bytes)?),
        other => return Err(field("kind of change", other.into())),
    })
}

impl StagingState {
    /// The bytes of a snapshot.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        put_version(&mut out);
        put_producer(&mut out, self.publisher);
        out.put_u32_le(self.targets.len() as u32);
        for (target, known) in &self.targets {
            put_partition(&mut out, *target);
            out.put_i32_le(known.next_sequence);
        }
        out.put_u32_le(self.items.len() as u32);
        for (id, item) in &self.items {
            put_id(&mut out, *id);
            put_item(&mut out, item);
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
        let bytes = &mut bytes;
        get_version(bytes)?;
        let mut this = Self {
            publisher: get_producer(bytes)?,
            ..Self::default()
        };
        let mut targets = Vec::new();
        for _ in 0..count(bytes, PARTITION_BYTES + 4)? {
            let (target, next_sequence) = (get_partition(bytes)?, get_i32(bytes)?);
            if next_sequence < 0 {
                return Err(field("sequence of a target", next_sequence as u64));
            }
            targets.push((target, next_sequence));
            this.targets.insert(target, Target::default());
        }
        let items = count(bytes, ID_BYTES + ITEM_BYTES)?;
        if items > ITEMS_MAX {
            return Err(field("number of items", items as u64));
        }
        for _ in 0..items {
            let (id, item) = (get_id(bytes)?, get_item(bytes)?);
            if this.items.contains_key(&id) {
                return Err(field("item that is there already", id.first.0));
            }
            this.put(id, item);
        }
        for (target, next_sequence) in targets {
            this.targets.entry(target).or_default().next_sequence = next_sequence;
        }
        end(bytes)?;
        Ok(this)
    }
}
