//! What a delta of the cursors says, and its bytes.
//!
//! A delta is a run of changes. Each begins with kind (1 byte) and subscription uuid (16 bytes):
//!
//! | kind | then |
//! |---|---|
//! | 0 made | hold u8, base u64, at i64, length of the name u16, the name |
//! | 1 acked | at i64, base u64 (everything below; 0: none), count u32, ranges (first u64, end u64) |
//! | 2 moved | at i64, base u64, state epoch u32, keep u8 |
//! | 3 removed | |
//! | 4 hold | hold u8 |
//! | 5 evicted | records u64 |
//! | 6 marked | count u32, marks (first u64, end u64, failed u16, why u8, letter u8, sequence u64, not before i64) |
//! | 7 letters | sequence of the next one u64 |
//! | 16 groups | length u32, a delta of the groups of a coordinator shard; the uuid is nil |
//!
//! Little-endian.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::time::TimestampMs;
use uuid::Uuid;

use serving_dispatch::{Letter, Mark, Why};

use super::cursor::NewCursor;
use crate::state::record::{RecordError, need};
use serving_dispatch::OffsetRange;

/// Kind of a change of groups.
const GROUPS: u8 = 16;
/// Bytes of a range.
const RANGE_BYTES: usize = 16;
/// Bytes of a mark and its range.
const MARK_BYTES: usize = RANGE_BYTES + 20;

/// Changes that become durable together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CursorDelta(pub Vec<(SubscriptionId, Change)>);

/// One change of one cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It begins to exist; one that exists is not touched.
    Made(NewCursor),
    /// These are processed.
    Acked {
        /// The owner's clock.
        at: TimestampMs,
        /// Everything below it.
        to: Offset,
        /// And these.
        ranges: Vec<OffsetRange>,
    },
    /// It stands elsewhere.
    Moved {
        /// The owner's clock.
        at: TimestampMs,
        /// Where.
        base: Offset,
        /// From now on.
        state_epoch: u32,
        /// It goes forward only, and what is processed above the place stays so.
        keep_acked: bool,
    },
    /// It ends to exist.
    Removed,
    /// It keeps the log from its base on, or does not.
    Hold(bool),
    /// So many records more were given up because it kept too much.
    Evicted(u64),
    /// Of no cursor: the groups of a coordinator shard (ARCHITECTURE D8).
    Groups(Arc<serving_groups::Delta>),
    /// These records came back; disjoint.
    Marked(Vec<(OffsetRange, Mark)>),
    /// Sequence of the next dead letter.
    Letters(u64),
}

impl CursorDelta {
    /// Bytes that a change takes.
    pub(crate) fn bytes_of(change: &Change) -> usize {
        17 + match change {
            Change::Made(new) => 19 + new.name.len(),
            Change::Acked { ranges, .. } => 20 + ranges.len() * RANGE_BYTES,
            Change::Moved { .. } => 21,
            Change::Removed => 0,
            Change::Hold(_) => 1,
            Change::Evicted(_) | Change::Letters(_) => 8,
            Change::Marked(marks) => 4 + marks.len() * MARK_BYTES,
            Change::Groups(delta) => 4 + delta.encode().len(),
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        let bytes = self.0.iter().map(|(_, change)| Self::bytes_of(change));
        let mut out = BytesMut::with_capacity(bytes.sum());
        for (id, change) in &self.0 {
            let kind = match change {
                Change::Made(_) => 0,
                Change::Acked { .. } => 1,
                Change::Moved { .. } => 2,
                Change::Removed => 3,
                Change::Hold(_) => 4,
                Change::Evicted(_) => 5,
                Change::Groups(_) => GROUPS,
                Change::Marked(_) => 6,
                Change::Letters(_) => 7,
            };
            out.put_u8(kind);
            out.put_slice(id.0.as_bytes());
            match change {
                Change::Made(new) => {
                    out.put_u8(new.hold.into());
                    out.put_u64_le(new.base.0);
                    out.put_i64_le(new.at);
                    put_name(&mut out, &new.name);
                }
                Change::Acked { at, to, ranges } => {
                    out.put_i64_le(*at);
                    out.put_u64_le(to.0);
                    put_ranges(&mut out, ranges.len(), ranges.iter().copied());
                }
                Change::Moved {
                    at,
                    base,
                    state_epoch,
                    keep_acked,
                } => {
                    out.put_i64_le(*at);
                    out.put_u64_le(base.0);
                    out.put_u32_le(*state_epoch);
                    out.put_u8((*keep_acked).into());
                }
                Change::Removed => {}
                Change::Hold(hold) => out.put_u8((*hold).into()),
                Change::Evicted(number) | Change::Letters(number) => out.put_u64_le(*number),
                Change::Marked(marks) => put_marks(&mut out, marks.len(), marks.iter().copied()),
                Change::Groups(delta) => {
                    let bytes = delta.encode();
                    out.put_u32_le(bytes.len() as u32);
                    out.put_slice(&bytes);
                }
            }
        }
        out.freeze()
    }

    pub(super) fn decode(mut bytes: &[u8]) -> Result<Self, RecordError> {
        let mut changes = Vec::new();
        while !bytes.is_empty() {
            need(bytes, 17)?;
            let kind = bytes.get_u8();
            let id = SubscriptionId(Uuid::from_u128(bytes.get_u128()));
            changes.push((id, decode_change(kind, &mut bytes)?));
        }
        Ok(Self(changes))
    }
}

fn decode_change(kind: u8, bytes: &mut &[u8]) -> Result<Change, RecordError> {
    Ok(match kind {
        0 => {
            need(bytes, 17)?;
            let hold = flag(bytes.get_u8())?;
            let (base, at) = (Offset(bytes.get_u64_le()), bytes.get_i64_le());
            let name = get_name(bytes)?;
            Change::Made(NewCursor {
                name,
                hold,
                base,
                at,
            })
        }
        1 => {
            need(bytes, 16)?;
            let (at, to) = (bytes.get_i64_le(), Offset(bytes.get_u64_le()));
            let ranges = get_ranges(bytes)?;
            Change::Acked { at, to, ranges }
        }
        2 => {
            need(bytes, 21)?;
            Change::Moved {
                at: bytes.get_i64_le(),
                base: Offset(bytes.get_u64_le()),
                state_epoch: bytes.get_u32_le(),
                keep_acked: flag(bytes.get_u8())?,
            }
        }
        3 => Change::Removed,
        4 => {
            need(bytes, 1)?;
            Change::Hold(flag(bytes.get_u8())?)
        }
        5 => {
            need(bytes, 8)?;
            Change::Evicted(bytes.get_u64_le())
        }
        6 => Change::Marked(get_marks(bytes)?),
        7 => {
            need(bytes, 8)?;
            Change::Letters(bytes.get_u64_le())
        }
        GROUPS => {
            need(bytes, 4)?;
            let length = bytes.get_u32_le() as usize;
            need(bytes, length)?;
            let delta = serving_groups::Delta::decode(&bytes[..length])?;
            bytes.advance(length);
            Change::Groups(Arc::new(delta))
        }
        other => {
            return Err(RecordError::Field {
                field: "kind of change",
                found: u64::from(other),
            });
        }
    })
}

pub(super) fn flag(byte: u8) -> Result<bool, RecordError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(RecordError::Field {
            field: "flag",
            found: u64::from(other),
        }),
    }
}

pub(super) fn put_name(out: &mut BytesMut, name: &str) {
    // Names are checked where they come in: far below 64 KiB.
    out.put_u16_le(name.len() as u16);
    out.put_slice(name.as_bytes());
}

pub(super) fn get_name(bytes: &mut &[u8]) -> Result<Arc<str>, RecordError> {
    need(bytes, 2)?;
    let length = usize::from(bytes.get_u16_le());
    need(bytes, length)?;
    let name = std::str::from_utf8(&bytes[..length]).map_err(|error| RecordError::Field {
        field: "name, not UTF-8 at byte",
        found: error.valid_up_to() as u64,
    })?;
    let name = name.into();
    bytes.advance(length);
    Ok(name)
}

pub(super) fn put_ranges(
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

pub(super) fn get_ranges(bytes: &mut &[u8]) -> Result<Vec<OffsetRange>, RecordError> {
    need(bytes, 4)?;
    let count = bytes.get_u32_le() as usize;
    need(bytes, count.saturating_mul(RANGE_BYTES))?;
    let mut ranges = Vec::with_capacity(count);
    for _ in 0..count {
        let range = OffsetRange {
            first: Offset(bytes.get_u64_le()),
            end: Offset(bytes.get_u64_le()),
        };
        if range.is_empty() {
            return Err(RecordError::Field {
                field: "end of a range",
                found: range.end.0,
            });
        }
        ranges.push(range);
    }
    Ok(ranges)
}

pub(super) fn put_marks(
    out: &mut BytesMut,
    count: usize,
    marks: impl Iterator<Item = (OffsetRange, Mark)>,
) {
    out.put_u32_le(count as u32);
    for (range, mark) in marks {
        out.put_u64_le(range.first.0);
        out.put_u64_le(range.end.0);
        out.put_u16_le(mark.failed);
        out.put_u8(match mark.why {
            Why::None => 0,
            Why::Rejected => 1,
            Why::LockExpired => 2,
            Why::Crashed => 3,
        });
        let (letter, sequence) = match mark.letter {
            Letter::None => (0, 0),
            Letter::Wanted => (1, 0),
            Letter::Numbered(sequence) => (2, sequence),
        };
        out.put_u8(letter);
        out.put_u64_le(sequence);
        out.put_i64_le(mark.retry_at);
    }
}

pub(super) fn get_marks(bytes: &mut &[u8]) -> Result<Vec<(OffsetRange, Mark)>, RecordError> {
    need(bytes, 4)?;
    let count = bytes.get_u32_le() as usize;
    need(bytes, count.saturating_mul(MARK_BYTES))?;
    let mut marks = Vec::with_capacity(count);
    let wrong = |field, found| Err(RecordError::Field { field, found });
    for _ in 0..count {
        let range = OffsetRange::new(bytes.get_u64_le(), bytes.get_u64_le());
        if range.is_empty() {
            return wrong("end of a marked range", range.end.0);
        }
        let failed = bytes.get_u16_le();
        let why = match bytes.get_u8() {
            0 => Why::None,
            1 => Why::Rejected,
            2 => Why::LockExpired,
            3 => Why::Crashed,
            other => return wrong("reason of a mark", other.into()),
        };
        let letter = match (bytes.get_u8(), bytes.get_u64_le()) {
            (0, 0) => Letter::None,
            (1, 0) => Letter::Wanted,
            (2, sequence) => Letter::Numbered(sequence),
            (other, _) => return wrong("letter of a mark", other.into()),
        };
        let mark = Mark {
            failed,
            why,
            letter,
            retry_at: bytes.get_i64_le(),
        };
        marks.push((range, mark));
    }
    Ok(marks)
}
