//! Records of a group: the node's frame and what stands in it (storage.md 4.1, 4.2).
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | length of the content |
//! | 4 | 1 | type |
//! | 5 | 1 | flags; bit 0: a reader that does not know the type may skip it |
//! | 6 | 1 | version (1) |
//! | 7 | 1 | origin of an entry: 0 writer, 1 recovery, 2 copy |
//! | 8 | 8 | confirmed end that the add carried; else 0 |
//! | 16 | 8 | fence token; else 0 |
//! | 24 | 4 | CRC32C of bytes 0..24 and, unless it is an entry, of the content |
//! | 28 | … | content |
//!
//! An entry's content is the writer's bytes, which carry their own two checksums. Contents of the other types are u64s. What is written
//! for people alone (types 12 and 13) may be skipped. The numbers of a ledger (type 9) are: ledger, flags (1: contacted, 2: deleted), confirmed end, fence token, boot up to which limbo is cleared, and
//! the boots of the three kinds of limbo; zeros at the end are left out, the first two never.

use bytes::{Buf, BufMut};
use hulse_proto::bookie::Origin;
use hulse_proto::entry::{Crc32c, Entry, EntryDigest, EntryError, EntryHeader};
use hulse_proto::id::{EntryId, FenceToken, LedgerId};

use super::group_header::GROUP_BODY_BYTES_MAX;
use super::ledger_row::LedgerRow;

/// Length of the frame before a record's content.
pub const FRAME_BYTES: usize = 28;

const OPTIONAL: u8 = 1;
/// Most entries of one [`DamagedRun`].
pub const DAMAGED_RUN_MAX: u64 = 4_096;
/// Version of every record that is written.
const VERSION: u8 = 1;

/// Why a ledger may have lost entries or fences here (storage.md S3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimboKind {
    /// Written bytes that were never synced may be gone (amendment to B5).
    Unsynced,
    /// Part of the log is damaged.
    Damage,
    /// The disk is older than metadata remembers (C4).
    Stale,
}

impl LimboKind {
    /// In the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Unsynced, Self::Damage, Self::Stale];
}

/// A run of bytes of the log that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DamagedRange {
    /// The file.
    pub file: u64,
    /// First byte.
    pub first: u64,
    /// Exclusive; `u64::MAX`: to the end of the file.
    pub end: u64,
}

/// Entries in a row that were found damaged in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DamagedRun {
    /// Of this ledger.
    pub ledger: LedgerId,
    /// The first.
    pub first: EntryId,
    /// Exclusive; at most [`DAMAGED_RUN_MAX`] behind the first.
    pub end: EntryId,
    /// Number of the file.
    pub file: u32,
}

/// An entry's record, as far as the index needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRecord {
    /// The ledger.
    pub ledger: LedgerId,
    /// The entry.
    pub entry: EntryId,
    /// Identity of the content.
    pub digest: EntryDigest,
    /// Confirmed end that the add carried.
    pub confirmed_end: EntryId,
    /// The writer's own, which may raise the ledger's confirmed end (B9).
    pub normal: bool,
}

/// What a record says. All merge in any order, any number of times (storage.md B1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// An entry is stored.
    Entry(EntryRecord),
    /// A ledger is fenced.
    Fence {
        /// The ledger.
        ledger: LedgerId,
        /// By whom.
        token: FenceToken,
    },
    /// A ledger may have lost something; `boot` orders it against clears.
    Limbo {
        /// The ledger.
        ledger: LedgerId,
        /// Why.
        kind: LimboKind,
        /// The boot that found out.
        boot: u64,
    },
    /// Limbo of boots up to this one is over.
    LimboClear {
        /// The ledger.
        ledger: LedgerId,
        /// Last covered boot.
        boot: u64,
    },
    /// A ledger is deleted for ever.
    Tombstone {
        /// The ledger.
        ledger: LedgerId,
    },
    /// Ledgers below are dead unless known here (G4).
    DeadBelow {
        /// Exclusive.
        below: LedgerId,
    },
    /// The logical end of an earlier file; an end of 0 means that the file is void.
    SealMark {
        /// Which.
        file: u64,
        /// Its end.
        end: u64,
    },
    /// Damage that was seen and answered with limbo; it is not new at the next start.
    KnownDamage(DamagedRange),
    /// Files were taken away on purpose, or never counted: their absence is no damage.
    FilesRemoved {
        /// The first.
        first: u64,
        /// Exclusive.
        end: u64,
    },
    /// All that a state snapshot at the head of a file says of one ledger (storage.md G10).
    Ledger(LedgerRow),
    /// Entries were found damaged; for people, and to be looked at again by the next start.
    DamagedEntries(DamagedRun),
    /// Nothing is missing any more by damage that was seen: for people.
    DamageCovered(DamagedRange),
    /// The snapshot at this file's head is complete: it names so many ledgers, and every ledger that older files know.
    SnapshotEnd {
        /// [`Record::Ledger`]s before this one in the same file.
        ledgers: u64,
    },
}

/// Why bytes are not a record. In a group whose checksum holds this is never damage but another version's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Runs over the end of the group.
    #[error("a record of {claimed} bytes runs over the end of its group")]
    CutOff {
        /// Length it claims.
        claimed: u32,
    },
    /// The frame's checksum is wrong.
    #[error("a record's checksum is wrong")]
    Crc,
    /// A type, or a version of one, that must not be skipped.
    #[error("record type {kind} version {version} is not known to this build")]
    Unknown {
        /// The type.
        kind: u8,
        /// The version.
        version: u8,
    },
    /// An entry of another format version than this build reads (storage.md 4.5).
    #[error("{}", EntryError::Version(*version))]
    EntryVersion {
        /// The version.
        version: u8,
    },
    /// The content does not fit the type.
    #[error("content of record type {kind} is malformed")]
    Content {
        /// The type.
        kind: u8,
    },
}

struct Frame {
    content_bytes: u32,
    kind: u8,
    flags: u8,
    version: u8,
    origin: u8,
    confirmed_end: u64,
    token: u64,
}

impl Frame {
    fn new(kind: u8, content_bytes: usize) -> Self {
        Self {
            content_bytes: content_bytes as u32,
            kind,
            flags: if kind > KIND_SNAPSHOT_END {
                OPTIONAL
            } else {
                0
            },
            version: VERSION,
            origin: 0,
            confirmed_end: 0,
            token: 0,
        }
    }

    fn encode(&self, content: &[u8], out: &mut Vec<u8>) {
        let at = out.len();
        out.put_u32_le(self.content_bytes);
        out.put_u8(self.kind);
        out.put_u8(self.flags);
        out.put_u8(self.version);
        out.put_u8(self.origin);
        out.put_u64_le(self.confirmed_end);
        out.put_u64_le(self.token);
        let mut crc = Crc32c::default();
        crc.update(&out[at..]);
        crc.update(content);
        out.put_u32_le(crc.finish());
    }

    /// The frame at the start of `bytes`, its stored checksum beside it.
    fn decode(bytes: &[u8]) -> Option<(Self, u32)> {
        let mut rest = bytes.get(..FRAME_BYTES)?;
        let frame = Self {
            content_bytes: rest.get_u32_le(),
            kind: rest.get_u8(),
            flags: rest.get_u8(),
            version: rest.get_u8(),
            origin: rest.get_u8(),
            confirmed_end: rest.get_u64_le(),
            token: rest.get_u64_le(),
        };
        Some((frame, rest.get_u32_le()))
    }
}

/// Bytes an entry's record takes.
pub fn entry_record_bytes(entry: &Entry) -> usize {
    FRAME_BYTES + entry.header().entry_len()
}

/// Appends an entry's record.
pub fn encode_entry(entry: &Entry, origin: Origin, confirmed_end: EntryId, out: &mut Vec<u8>) {
    let mut frame = Frame::new(KIND_ENTRY, entry.header().entry_len());
    frame.confirmed_end = confirmed_end.0;
    (frame.origin, frame.token) = match origin {
        Origin::Normal => (0, 0),
        Origin::Recovery { token } => (1, token.0),
        Origin::Copy { .. } => (2, 0),
    };
    frame.encode(&[], out);
    entry.encode_into(out);
}

const KIND_ENTRY: u8 = 1;
const KIND_FENCE: u8 = 2;
const KIND_LIMBO: u8 = 3;
const KIND_LIMBO_CLEAR: u8 = 4;
const KIND_TOMBSTONE: u8 = 5;
const KIND_DEAD_BELOW: u8 = 6;
const KIND_SEAL_MARK: u8 = 7;
const KIND_KNOWN_DAMAGE: u8 = 8;
const KIND_LEDGER: u8 = 9;
const KIND_FILES_REMOVED: u8 = 10;
const KIND_SNAPSHOT_END: u8 = 11;
// Builds that do not know those that follow skip them.
const KIND_DAMAGED_ENTRIES: u8 = 12;
const KIND_DAMAGE_COVERED: u8 = 13;

impl Record {
    /// Appends the record.
    ///
    /// # Panics
    /// For [`Record::Entry`], whose bytes are not here: [`encode_entry`] makes those.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut token = 0;
        let row;
        let (kind, numbers): (u8, &[u64]) = match self {
            Self::Entry(_) => unreachable!("entries are encoded from their bytes"),
            Self::Fence { ledger, token: by } => {
                token = by.0;
                (KIND_FENCE, &[ledger.0])
            }
            Self::Limbo { ledger, kind, boot } => (KIND_LIMBO, &[ledger.0, *kind as u64, *boot]),
            Self::LimboClear { ledger, boot } => (KIND_LIMBO_CLEAR, &[ledger.0, *boot]),
            Self::Tombstone { ledger } => (KIND_TOMBSTONE, &[ledger.0]),
            Self::DeadBelow { below } => (KIND_DEAD_BELOW, &[below.0]),
            Self::SealMark { file, end } => (KIND_SEAL_MARK, &[*file, *end]),
            Self::KnownDamage(range) => (KIND_KNOWN_DAMAGE, &[range.file, range.first, range.end]),
            Self::FilesRemoved { first, end } => (KIND_FILES_REMOVED, &[*first, *end]),
            Self::Ledger(ledger) => {
                row = ledger.numbers();
                (KIND_LEDGER, LedgerRow::trimmed(&row))
            }
            Self::SnapshotEnd { ledgers } => (KIND_SNAPSHOT_END, &[*ledgers]),
            Self::DamagedEntries(run) => (
                KIND_DAMAGED_ENTRIES,
                &[run.ledger.0, run.first.0, run.end.0, run.file.into()],
            ),
            Self::DamageCovered(range) => {
                (KIND_DAMAGE_COVERED, &[range.file, range.first, range.end])
            }
        };
        let content: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let mut frame = Frame::new(kind, content.len());
        frame.token = token;
        frame.encode(&content, out);
        out.put_slice(&content);
    }

    fn decode(frame: &Frame, content: &[u8]) -> Result<Self, RecordError> {
        let kind = frame.kind;
        let malformed = RecordError::Content { kind };
        if kind == KIND_ENTRY {
            let header = EntryHeader::decode(content).map_err(|error| match error {
                EntryError::Version(version) => RecordError::EntryVersion { version },
                _ => malformed,
            })?;
            if header.entry_len() != content.len() || frame.origin > 2 {
                return Err(malformed);
            }
            return Ok(Self::Entry(EntryRecord {
                ledger: header.ledger,
                entry: header.entry,
                digest: header.digest(),
                confirmed_end: EntryId(frame.confirmed_end),
                normal: frame.origin == 0,
            }));
        }
        let (numbers, rest) = content.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().map(|n| u64::from_le_bytes(*n)).collect();
        if !rest.is_empty() {
            return Err(malformed);
        }
        Ok(match (kind, &numbers[..]) {
            (KIND_FENCE, &[ledger]) => Self::Fence {
                ledger: LedgerId(ledger),
                token: FenceToken(frame.token),
            },
            (KIND_LIMBO, &[ledger, kind, boot]) => Self::Limbo {
                ledger: LedgerId(ledger),
                kind: *usize::try_from(kind)
                    .ok()
                    .and_then(|kind| LimboKind::ALL.get(kind))
                    .ok_or(malformed)?,
                boot,
            },
            (KIND_LIMBO_CLEAR, &[ledger, boot]) => Self::LimboClear {
                ledger: LedgerId(ledger),
                boot,
            },
            (KIND_TOMBSTONE, &[ledger]) => Self::Tombstone {
                ledger: LedgerId(ledger),
            },
            (KIND_DEAD_BELOW, &[below]) => Self::DeadBelow {
                below: LedgerId(below),
            },
            (KIND_SEAL_MARK, &[file, end]) => Self::SealMark { file, end },
            (KIND_KNOWN_DAMAGE, &[file, first, end]) => {
                Self::KnownDamage(DamagedRange { file, first, end })
            }
            (KIND_FILES_REMOVED, &[first, end]) if first < end => Self::FilesRemoved { first, end },
            (KIND_LEDGER, numbers) => {
                Self::Ledger(LedgerRow::from_numbers(numbers).ok_or(malformed)?)
            }
            (KIND_SNAPSHOT_END, &[ledgers]) => Self::SnapshotEnd { ledgers },
            (KIND_DAMAGED_ENTRIES, &[ledger, first, end, file])
                if end.wrapping_sub(first).wrapping_sub(1) < DAMAGED_RUN_MAX && first < end =>
            {
                Self::DamagedEntries(DamagedRun {
                    ledger: LedgerId(ledger),
                    first: EntryId(first),
                    end: EntryId(end),
                    file: u32::try_from(file).map_err(|_| malformed)?,
                })
            }
            (KIND_DAMAGE_COVERED, &[file, first, end]) => {
                Self::DamageCovered(DamagedRange { file, first, end })
            }
            _ => return Err(malformed),
        })
    }
}

/// A record and where its frame begins in the records' area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedRecord {
    /// What it says.
    pub record: Record,
    /// Offset of the frame from the start of the area.
    pub at: usize,
    /// Length of frame and content.
    pub bytes: usize,
}

/// Walks the records of a group; unknown optional ones are skipped.
pub struct Records<'a> {
    area: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// Begins at the first record. The area's checksum was checked.
    pub fn new(area: &'a [u8]) -> Self {
        Self { area, at: 0 }
    }

    fn step(&mut self) -> Result<Option<PlacedRecord>, RecordError> {
        while self.at < self.area.len() {
            let bytes = &self.area[self.at..];
            let (frame, stored) = Frame::decode(bytes).ok_or(RecordError::CutOff { claimed: 0 })?;
            let claimed = frame.content_bytes;
            let end = FRAME_BYTES + claimed as usize;
            let content = bytes
                .get(FRAME_BYTES..end)
                .filter(|content| content.len() <= GROUP_BODY_BYTES_MAX)
                .ok_or(RecordError::CutOff { claimed })?;
            let mut crc = Crc32c::default();
            crc.update(&bytes[..FRAME_BYTES - 4]);
            if frame.kind != KIND_ENTRY {
                crc.update(content);
            }
            if crc.finish() != stored {
                return Err(RecordError::Crc);
            }
            let at = self.at;
            self.at += end;
            if frame.version == VERSION && (KIND_ENTRY..=KIND_DAMAGE_COVERED).contains(&frame.kind)
            {
                let record = Record::decode(&frame, content)?;
                return Ok(Some(PlacedRecord {
                    record,
                    at,
                    bytes: end,
                }));
            }
            if frame.flags & OPTIONAL == 0 {
                return Err(RecordError::Unknown {
                    kind: frame.kind,
                    version: frame.version,
                });
            }
        }
        Ok(None)
    }
}

impl Iterator for Records<'_> {
    type Item = Result<PlacedRecord, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.step().transpose();
        if matches!(item, Some(Err(_))) {
            self.at = self.area.len();
        }
        item
    }
}

/// The confirmed end in an entry record's frame and the entry's bytes behind it; `None` when the frame is damaged.
pub fn open_entry_record(bytes: &[u8]) -> Option<(EntryId, usize)> {
    let (frame, stored) = Frame::decode(bytes)?;
    let intact = hulse_proto::entry::crc32c(&bytes[..FRAME_BYTES - 4]) == stored;
    (intact && frame.kind == KIND_ENTRY)
        .then_some((EntryId(frame.confirmed_end), frame.content_bytes as usize))
}
