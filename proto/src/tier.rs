//! What metadata say of a ledger's way into object storage (storage.md 7.1): a part of [`crate::ledger::LedgerMetadata`].
//!
//! ```text
//! settled ─► attempt (INTENT) ─► segment (COMMITTED) ─► dropping ─► dropped
//!                └── given up: into `garbage`, by the change that makes the next one
//! ```
//!
//! # Invariants
//! 1. Whatever object may exist, its attempt stands here before its first byte was sent (O2).
//! 2. Local copies are given up only while a segment stands here (O8).

use bytes::Bytes;

use crate::id::{LedgerId, Offset, ProducerId, SegmentId};
use crate::ledger::{ClosedTotals, LedgerKind, LedgerMetadataError, bad, nonce};
use crate::time::TimestampMs;
use crate::wire::metadata as wire;

/// Most aborted ranges that stand in the metadata themselves; more go into a ledger of their own (ARCHITECTURE D7).
pub const ABORTED_MAX: usize = 48;
/// Most attempts that wait for their objects to be deleted.
pub const GARBAGE_MAX: usize = 8;
/// Longest name of a bucket, bytes.
pub const BUCKET_BYTES_MAX: usize = 64;
/// Longest name of an object, bytes: what S3 takes.
pub const OBJECT_BYTES_MAX: usize = 1024;
/// Longest index of one ledger in a segment.
pub const INDEX_BYTES_MAX: u32 = 16 << 20;

/// Offsets of an aborted transaction, as answers to Kafka's fetches name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbortedRange {
    /// Its first record.
    pub first: Offset,
    /// Exclusive: one past its marker.
    pub end: Offset,
    /// Whose.
    pub producer: ProducerId,
}

/// The owner's word that nothing of a ledger is undecided any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settled {
    /// The ledger may be tiered from then on. A hint of the owner's clock; no safety rests on it.
    pub tier_after: TimestampMs,
    /// At most [`ABORTED_MAX`].
    pub aborted: Vec<AbortedRange>,
    /// A ledger of one entry that holds the ranges instead.
    pub aborted_ledger: Option<LedgerId>,
}

/// One try to make an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Never given twice.
    pub id: SegmentId,
    /// The bucket, by the name that config gives it (O18).
    pub bucket: String,
    /// The whole name of the object (O18).
    pub object: String,
}

/// A committed object, and where in it a ledger is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its attempt.
    pub attempt: Attempt,
    /// Of the whole object.
    pub object_bytes: u64,
    /// What the store said of the object, if anything.
    pub etag: String,
    /// Where the ledger's blocks begin; they end where its index begins.
    pub first_byte: u64,
    /// Where its index begins.
    pub index_at: u64,
    /// Length of its index.
    pub index_bytes: u32,
    /// The CRC32C that stands at its index's end.
    pub index_crc: u32,
}

/// Whether bookies still have the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LocalCopies {
    /// They do.
    #[default]
    Held,
    /// They may have dropped them: the segment is the only source.
    Dropping,
    /// All have dropped them.
    Dropped,
}

/// Where a ledger stands on its way into object storage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tier {
    /// What the owner said; nothing is uploaded before.
    pub settled: Option<Settled>,
    /// The attempt under way.
    pub attempt: Option<Attempt>,
    /// Attempts that were given up, of which objects may exist; at most [`GARBAGE_MAX`].
    pub garbage: Vec<Attempt>,
    /// The segment that stands for the ledger.
    pub segment: Option<Segment>,
    /// What bookies have.
    pub local: LocalCopies,
    /// Set by tiering's own changes only (amended M3).
    pub nonce: [u8; 16],
}

impl Tier {
    /// True when an object of this attempt is, or may become, the ledger's.
    pub fn names(&self, id: SegmentId) -> bool {
        self.attempts().any(|attempt| attempt.id == id)
    }

    /// Every attempt of which an object may exist: the committed one, the one under way, and those given up (O10).
    pub fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        let committed = self.segment.as_ref().map(|segment| &segment.attempt);
        committed
            .into_iter()
            .chain(&self.attempt)
            .chain(&self.garbage)
    }

    pub(crate) fn to_wire(&self) -> wire::Tier {
        wire::Tier {
            settled: self.settled.as_ref().map(|settled| wire::Settled {
                tier_after_ms: settled.tier_after,
                aborted: settled
                    .aborted
                    .iter()
                    .map(|range| range.to_wire())
                    .collect(),
                aborted_ledger: settled.aborted_ledger.map_or(0, |ledger| ledger.0),
            }),
            attempt: self.attempt.as_ref().map(Attempt::to_wire),
            garbage: self.garbage.iter().map(Attempt::to_wire).collect(),
            segment: self.segment.as_ref().map(Segment::to_wire),
            local: match self.local {
                LocalCopies::Held => wire::tier::Local::Held,
                LocalCopies::Dropping => wire::tier::Local::Dropping,
                LocalCopies::Dropped => wire::tier::Local::Dropped,
            } as i32,
            nonce: match self.nonce == [0; 16] {
                true => Bytes::new(),
                false => Bytes::copy_from_slice(&self.nonce),
            },
        }
    }

    pub(crate) fn from_wire(
        value: &wire::Tier,
        kind: LedgerKind,
        closed: Option<ClosedTotals>,
    ) -> Result<Self, LedgerMetadataError> {
        if kind != LedgerKind::Log {
            return Err(bad("tier", "only log ledgers are tiered"));
        }
        let garbage = value.garbage.len();
        if garbage > GARBAGE_MAX {
            return Err(bad("tier.garbage", format!("{garbage} are too many")));
        }
        let attempts = value.garbage.iter().map(Attempt::from_wire);
        let local = match wire::tier::Local::try_from(value.local) {
            Ok(wire::tier::Local::Held) => LocalCopies::Held,
            Ok(wire::tier::Local::Dropping) => LocalCopies::Dropping,
            Ok(wire::tier::Local::Dropped) => LocalCopies::Dropped,
            Err(_) => return Err(bad("tier.local", format!("unknown value {}", value.local))),
        };
        let tier = Self {
            settled: value.settled.as_ref().map(Settled::from_wire).transpose()?,
            attempt: value.attempt.as_ref().map(Attempt::from_wire).transpose()?,
            garbage: attempts.collect::<Result<_, _>>()?,
            segment: value.segment.as_ref().map(Segment::from_wire).transpose()?,
            local,
            nonce: nonce("tier.nonce", &value.nonce)?,
        };
        if closed.is_none() && tier != Self::default() {
            return Err(bad("tier", "the ledger has no end yet"));
        }
        if tier.segment.is_none() && local != LocalCopies::Held {
            return Err(bad("tier.local", "no copies and no segment"));
        }
        Ok(tier)
    }
}

impl AbortedRange {
    fn to_wire(self) -> wire::AbortedRange {
        wire::AbortedRange {
            producer_id: self.producer.0,
            first_offset: self.first.0,
            end_offset: self.end.0,
        }
    }
}

impl Settled {
    fn from_wire(value: &wire::Settled) -> Result<Self, LedgerMetadataError> {
        let count = value.aborted.len();
        if count > ABORTED_MAX {
            return Err(bad("tier.aborted", format!("{count} ranges are too many")));
        }
        let ranges = value.aborted.iter().map(|range| AbortedRange {
            first: Offset(range.first_offset),
            end: Offset(range.end_offset),
            producer: ProducerId(range.producer_id),
        });
        let aborted: Vec<AbortedRange> = ranges.collect();
        if aborted.iter().any(|range| range.first >= range.end) {
            return Err(bad("tier.aborted", "a range without offsets"));
        }
        Ok(Self {
            tier_after: value.tier_after_ms,
            aborted,
            aborted_ledger: match value.aborted_ledger {
                0 => None,
                ledger => Some(LedgerId(ledger)),
            },
        })
    }
}

impl Attempt {
    fn to_wire(&self) -> wire::Attempt {
        wire::Attempt {
            uuid: self.id.to_bytes(),
            bucket: self.bucket.clone(),
            object: self.object.clone(),
        }
    }

    fn from_wire(value: &wire::Attempt) -> Result<Self, LedgerMetadataError> {
        let id = SegmentId::from_slice(&value.uuid)
            .ok_or_else(|| bad("tier.attempt.uuid", "not 16 bytes"))?;
        let name = |field, name: &String, max: usize| match name.is_empty() || name.len() > max {
            true => Err(bad(field, format!("{} bytes", name.len()))),
            false => Ok(name.clone()),
        };
        Ok(Self {
            id,
            bucket: name("tier.attempt.bucket", &value.bucket, BUCKET_BYTES_MAX)?,
            object: name("tier.attempt.object", &value.object, OBJECT_BYTES_MAX)?,
        })
    }
}

impl Segment {
    fn to_wire(&self) -> wire::Segment {
        wire::Segment {
            attempt: Some(self.attempt.to_wire()),
            object_bytes: self.object_bytes,
            etag: self.etag.clone(),
            first_byte: self.first_byte,
            index_at: self.index_at,
            index_bytes: self.index_bytes,
            index_crc: self.index_crc,
        }
    }

    fn from_wire(value: &wire::Segment) -> Result<Self, LedgerMetadataError> {
        let attempt = value.attempt.as_ref();
        let attempt = attempt.ok_or_else(|| bad("tier.segment", "without an attempt"))?;
        let index_end = value.index_at.checked_add(u64::from(value.index_bytes));
        let fits = value.first_byte <= value.index_at
            && index_end.is_some_and(|end| end <= value.object_bytes)
            && value.index_bytes <= INDEX_BYTES_MAX;
        if !fits || value.etag.len() > OBJECT_BYTES_MAX {
            return Err(bad("tier.segment", "its places cannot be"));
        }
        Ok(Self {
            attempt: Attempt::from_wire(attempt)?,
            object_bytes: value.object_bytes,
            etag: value.etag.clone(),
            first_byte: value.first_byte,
            index_at: value.index_at,
            index_bytes: value.index_bytes,
            index_crc: value.index_crc,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::EntryId;

    fn attempt(number: u8) -> Attempt {
        Attempt {
            id: SegmentId::from_slice(&[number; 16]).unwrap(),
            bucket: "main".to_owned(),
            object: format!("hulse/cell/topic/0/9/{number}"),
        }
    }

    fn tier() -> Tier {
        Tier {
            settled: Some(Settled {
                tier_after: 1_700_000_000_000,
                aborted: vec![AbortedRange {
                    first: Offset(5),
                    end: Offset(9),
                    producer: ProducerId(4711),
                }],
                aborted_ledger: Some(LedgerId(77)),
            }),
            attempt: Some(attempt(2)),
            garbage: vec![attempt(1)],
            segment: Some(Segment {
                attempt: attempt(3),
                object_bytes: 10_000,
                etag: "\"abc\"".to_owned(),
                first_byte: 0,
                index_at: 9_000,
                index_bytes: 500,
                index_crc: 7,
            }),
            local: LocalCopies::Dropping,
            nonce: [9; 16],
        }
    }

    fn decode(value: &wire::Tier) -> Result<Tier, LedgerMetadataError> {
        let closed = ClosedTotals {
            end: EntryId(1),
            offset_span: 1,
            record_count: 1,
            bytes: 1,
            digest: 1,
        };
        Tier::from_wire(value, LedgerKind::Log, Some(closed))
    }

    #[test]
    fn roundtrip_keeps_every_field() {
        for tier in [tier(), Tier::default()] {
            assert_eq!(decode(&tier.to_wire()), Ok(tier));
        }
    }

    #[test]
    fn decode_rejects_what_would_be_a_hole_or_cannot_be() {
        let field = |change: &dyn Fn(&mut wire::Tier)| {
            let mut value = tier().to_wire();
            change(&mut value);
            match decode(&value) {
                Err(LedgerMetadataError::Field { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(field(&|value| value.segment = None), "tier.local");
        assert_eq!(field(&|value| value.local = 9), "tier.local");
        assert_eq!(
            field(&|value| value.garbage = vec![attempt(1).to_wire(); GARBAGE_MAX + 1]),
            "tier.garbage"
        );
        let index = |value: &mut wire::Tier| value.segment.as_mut().unwrap().index_at = u64::MAX;
        assert_eq!(field(&index), "tier.segment");
        let open = Tier::from_wire(&tier().to_wire(), LedgerKind::Log, None);
        let state = Tier::from_wire(&Tier::default().to_wire(), LedgerKind::State, None);
        assert!(open.is_err() && state.is_err());
    }
}
