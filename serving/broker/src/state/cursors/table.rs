//! All cursors of a partition: the fold of their changes.
//!
//! Bytes in a snapshot: count u32, then of each: uuid 16, hold u8, base u64, state epoch u32, made at i64, acked at i64, length of
//! the name u16, the name, count u32, ranges (first u64, end u64). Then, if any has lost records to a quota: count u32, and of each that
//! has: uuid 16, records u64. Then, if any has marks or dead letters: count u32, and of each that has: uuid 16, sequence of the next letter
//! u64, count u32, marks as in a delta. Then, of a coordinator shard, the snapshot of its groups. A part is there, too, where a later one
//! is. Little-endian. No bytes at all: nothing of it.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hulse_proto::id::{Offset, SubscriptionId};
use serving_dispatch::Marks;
use serving_groups::ShardState;
use uuid::Uuid;

use super::change::{
    Change, CursorDelta, flag, get_marks, get_name, get_ranges, put_marks, put_name, put_ranges,
};
use super::cursor::Cursor;
use crate::state::meta::MetaState;
use crate::state::record::{RecordError, need};

/// By the subscription's identity; and the groups of a coordinator shard, which has no cursors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursors(BTreeMap<SubscriptionId, Cursor>, ShardState);

impl Cursors {
    /// One of them.
    pub fn get(&self, id: SubscriptionId) -> Option<&Cursor> {
        self.0.get(&id)
    }

    /// The groups of a coordinator shard.
    pub fn groups(&self) -> &ShardState {
        &self.1
    }

    /// The cursors alone.
    pub(crate) fn without_groups(&self) -> Self {
        Self(self.0.clone(), ShardState::default())
    }

    /// What stands behind the cursors of a snapshot.
    fn decode_evicted(&mut self, bytes: &mut &[u8]) -> Result<(), RecordError> {
        need(bytes, 4)?;
        for _ in 0..bytes.get_u32_le() {
            need(bytes, 24)?;
            let id = SubscriptionId(Uuid::from_u128(bytes.get_u128()));
            let records = bytes.get_u64_le();
            if let Some(cursor) = self.0.get_mut(&id) {
                cursor.evicted = records;
            }
        }
        Ok(())
    }

    /// What stands behind that.
    fn decode_marks(&mut self, bytes: &mut &[u8]) -> Result<(), RecordError> {
        need(bytes, 4)?;
        for _ in 0..bytes.get_u32_le() {
            need(bytes, 24)?;
            let id = SubscriptionId(Uuid::from_u128(bytes.get_u128()));
            let letters = bytes.get_u64_le();
            let marks = get_marks(bytes)?;
            if let Some(cursor) = self.0.get_mut(&id) {
                cursor.letters = letters;
                for (range, mark) in marks {
                    cursor.mark(range, mark);
                }
            }
        }
        Ok(())
    }

    fn encode_marks(&self, out: &mut BytesMut) {
        let marked = self.0.iter().filter(|(_, cursor)| cursor.is_marked());
        out.put_u32_le(marked.clone().count() as u32);
        for (id, cursor) in marked {
            out.put_slice(id.0.as_bytes());
            out.put_u64_le(cursor.letters);
            put_marks(out, cursor.marks.len(), cursor.marks.iter());
        }
    }

    pub(crate) fn get_mut(&mut self, id: SubscriptionId) -> Option<&mut Cursor> {
        self.0.get_mut(&id)
    }

    /// All of them, in order of their identities.
    pub fn iter(&self) -> impl Iterator<Item = (SubscriptionId, &Cursor)> {
        self.0.iter().map(|(id, cursor)| (*id, cursor))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest base of those that hold the log; `None`: none does (serving.md B9.3).
    pub fn held_from(&self) -> Option<Offset> {
        let holding = self.0.values().filter(|cursor| cursor.hold);
        holding.map(|cursor| cursor.base).min()
    }

    /// Nothing at or above it is processed.
    pub fn end(&self) -> Offset {
        let ends = self.0.values().map(|cursor| {
            let above = cursor.acked.last_end();
            above.map_or(cursor.base, |end| end.max(cursor.base))
        });
        ends.max().unwrap_or(Offset(0))
    }

    /// Folds one change in. A change of a cursor that does not exist changes nothing.
    pub(crate) fn apply_change(&mut self, id: SubscriptionId, change: &Change) {
        match change {
            Change::Made(new) => {
                self.0.entry(id).or_insert_with(|| Cursor::new(new));
                return;
            }
            Change::Groups(delta) => return self.1.apply(delta),
            _ => {}
        }
        let Some(cursor) = self.0.get_mut(&id) else {
            return;
        };
        match change {
            Change::Made(_) | Change::Groups(_) => {}
            Change::Acked { at, to, ranges } => {
                cursor.ack_to(*to);
                for range in ranges {
                    cursor.ack(*range);
                }
                cursor.acked_at = *at;
            }
            Change::Moved {
                at,
                base,
                state_epoch,
                keep_acked,
            } => {
                if *keep_acked {
                    cursor.ack_to(*base);
                    cursor.state_epoch = *state_epoch;
                } else {
                    cursor.move_to(*base, *state_epoch);
                }
                cursor.acked_at = *at;
            }
            Change::Removed => {
                self.0.remove(&id);
            }
            Change::Hold(hold) => cursor.hold = *hold,
            Change::Evicted(records) => cursor.evicted = cursor.evicted.saturating_add(*records),
            Change::Marked(marks) => {
                for (range, mark) in marks {
                    cursor.mark(*range, *mark);
                }
            }
            Change::Letters(next) => cursor.letters = *next,
        }
    }
}

impl MetaState for Cursors {
    type Delta = CursorDelta;

    fn apply(&mut self, delta: &CursorDelta) {
        for (id, change) in &delta.0 {
            self.apply_change(*id, change);
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty() && self.1.is_empty()
    }

    fn encode_delta(delta: &CursorDelta) -> Bytes {
        delta.encode()
    }

    fn decode_delta(bytes: &[u8]) -> Result<CursorDelta, RecordError> {
        CursorDelta::decode(bytes)
    }

    fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        if MetaState::is_empty(self) {
            return out.freeze();
        }
        out.put_u32_le(self.0.len() as u32);
        for (id, cursor) in &self.0 {
            out.put_slice(id.0.as_bytes());
            out.put_u8(cursor.hold.into());
            out.put_u64_le(cursor.base.0);
            out.put_u32_le(cursor.state_epoch);
            out.put_i64_le(cursor.made_at);
            out.put_i64_le(cursor.acked_at);
            put_name(&mut out, &cursor.name);
            put_ranges(&mut out, cursor.acked.len(), cursor.acked.iter());
        }
        let evicted = self.0.iter().filter(|(_, cursor)| cursor.evicted > 0);
        let count = evicted.clone().count();
        let marked = self.0.values().any(Cursor::is_marked);
        let groups = !self.1.is_empty();
        if count > 0 || marked || groups {
            out.put_u32_le(count as u32);
            for (id, cursor) in evicted {
                out.put_slice(id.0.as_bytes());
                out.put_u64_le(cursor.evicted);
            }
        }
        if marked || groups {
            self.encode_marks(&mut out);
        }
        if groups {
            out.put_slice(&self.1.encode());
        }
        out.freeze()
    }

    fn decode(mut bytes: &[u8]) -> Result<Self, RecordError> {
        let mut all = Self::default();
        if bytes.is_empty() {
            return Ok(all);
        }
        need(bytes, 4)?;
        for _ in 0..bytes.get_u32_le() {
            need(bytes, 45)?;
            let id = SubscriptionId(Uuid::from_u128(bytes.get_u128()));
            let hold = flag(bytes.get_u8())?;
            let (base, state_epoch) = (Offset(bytes.get_u64_le()), bytes.get_u32_le());
            let (made_at, acked_at) = (bytes.get_i64_le(), bytes.get_i64_le());
            let name = get_name(&mut bytes)?;
            let acked = get_ranges(&mut bytes)?.into_iter().collect();
            let cursor = Cursor {
                name,
                hold,
                base,
                state_epoch,
                made_at,
                acked_at,
                evicted: 0,
                acked,
                marks: Marks::default(),
                letters: 0,
            };
            all.0.insert(id, cursor);
        }
        if !bytes.is_empty() {
            all.decode_evicted(&mut bytes)?;
        }
        if !bytes.is_empty() {
            all.decode_marks(&mut bytes)?;
        }
        if !bytes.is_empty() {
            all.1 = ShardState::decode(bytes)?;
        }
        Ok(all)
    }
}
