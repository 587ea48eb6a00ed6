//! The end of a segment: which ledgers it holds, and a trailer of fixed length that says where that stands.
//!
//! Directory:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | mark `HDIR` |
//! | 4 | 1 | version (1) |
//! | 5 | 3 | reserved (0) |
//! | 8 | 4 | ledgers |
//! | 12 | 4 | reserved (0) |
//! | 16 | 40 each | ledger u64, first byte u64, place of the index u64, length of the index u32, the CRC32C at the index's end u32, entries u64 |
//! | … | 4 | CRC32C of all before |
//!
//! Trailer:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | place of the directory |
//! | 8 | 4 | length of the directory |
//! | 12 | 4 | the CRC32C at the directory's end |
//! | 16 | 16 | segment |
//! | 32 | 8 | length of the object |
//! | 40 | 1 | version (1) |
//! | 41 | 3 | reserved (0) |
//! | 44 | 4 | CRC32C of bytes 0..44 |
//! | 48 | 8 | mark `HULSESEG` |

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hulse_proto::entry::crc32c;
use hulse_proto::id::{EntryId, LedgerId, SegmentId};
use hulse_proto::tier::INDEX_BYTES_MAX;

use super::FORMAT_VERSION;
use super::error::{FormatError, check, checked, zeros};

/// Length of the trailer.
pub const TRAILER_BYTES: usize = 56;
/// Most ledgers in one segment (storage.md O17).
pub const DIRECTORY_LEDGERS_MAX: usize = 32;

const DIRECTORY_MARK: &[u8; 4] = b"HDIR";
const TRAILER_MARK: &[u8; 8] = b"HULSESEG";
const HEAD_BYTES: usize = 16;
const ROW_BYTES: usize = 40;
const CRC_BYTES: usize = 4;
const DIRECTORY: &str = "directory";
const TRAILER: &str = "trailer";

/// Where a ledger is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryRow {
    /// Which.
    pub ledger: LedgerId,
    /// Where its blocks begin; they end where its index begins.
    pub first_byte: u64,
    /// Where its index begins.
    pub index_at: u64,
    /// Length of its index.
    pub index_bytes: u32,
    /// The CRC32C that stands at its index's end.
    pub index_crc: u32,
    /// Its entries; exclusive end.
    pub end: EntryId,
}

impl DirectoryRow {
    /// Where its index is in the object.
    pub fn index(&self) -> std::ops::Range<u64> {
        self.index_at..self.index_at + u64::from(self.index_bytes)
    }
}

/// The ledgers of a segment, in the order of their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// 1 to [`DIRECTORY_LEDGERS_MAX`].
    pub rows: Vec<DirectoryRow>,
}

impl Directory {
    /// The bytes.
    ///
    /// # Errors
    /// [`FormatError::Content`] when it could not be read back.
    pub fn encode(&self) -> Result<Bytes, FormatError> {
        self.check()?;
        let mut out = BytesMut::with_capacity(encoded_len(self.rows.len()));
        out.put_slice(DIRECTORY_MARK);
        out.put_u8(FORMAT_VERSION);
        out.put_bytes(0, 3);
        out.put_u32_le(self.rows.len() as u32);
        out.put_u32_le(0);
        for row in &self.rows {
            out.put_u64_le(row.ledger.0);
            out.put_u64_le(row.first_byte);
            out.put_u64_le(row.index_at);
            out.put_u32_le(row.index_bytes);
            out.put_u32_le(row.index_crc);
            out.put_u64_le(row.end.0);
        }
        let crc = crc32c(&out);
        out.put_u32_le(crc);
        Ok(out.freeze())
    }

    /// Decodes and checks a directory that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let found = bytes.len();
        if !(encoded_len(1)..=encoded_len(DIRECTORY_LEDGERS_MAX)).contains(&found) {
            return Err(FormatError::length(DIRECTORY, found, encoded_len(1)));
        }
        if !bytes.starts_with(DIRECTORY_MARK) {
            return Err(FormatError::Mark { part: DIRECTORY });
        }
        let version = bytes[DIRECTORY_MARK.len()];
        if version != FORMAT_VERSION {
            let (part, found) = (DIRECTORY, version);
            return Err(FormatError::Version { part, found });
        }
        let (sealed, mut crc) = bytes.split_at(found - CRC_BYTES);
        checked(DIRECTORY, sealed, crc.get_u32_le())?;
        zeros(DIRECTORY, &sealed[5..8])?;
        zeros(DIRECTORY, &sealed[12..16])?;
        let mut rest = &sealed[8..];
        let rows = rest.get_u32_le() as usize;
        rest.advance(4);
        if rows > DIRECTORY_LEDGERS_MAX || encoded_len(rows) != found {
            return Err(FormatError::length(DIRECTORY, found, HEAD_BYTES));
        }
        let rows = (0..rows).map(|_| DirectoryRow {
            ledger: LedgerId(rest.get_u64_le()),
            first_byte: rest.get_u64_le(),
            index_at: rest.get_u64_le(),
            index_bytes: rest.get_u32_le(),
            index_crc: rest.get_u32_le(),
            end: EntryId(rest.get_u64_le()),
        });
        let directory = Self {
            rows: rows.collect(),
        };
        directory.check()?;
        Ok(directory)
    }

    /// Ledgers stand one after the other from the first byte on, and every one has entries and an index.
    fn check(&self) -> Result<(), FormatError> {
        let count = self.rows.len();
        let counted = (1..=DIRECTORY_LEDGERS_MAX).contains(&count);
        check(counted, DIRECTORY, "no ledgers, or too many")?;
        let ordered = self.rows.is_sorted_by(|a, b| a.ledger < b.ledger);
        check(ordered, DIRECTORY, "ledgers that are not in order")?;
        let mut at = 0;
        for row in &self.rows {
            let placed = row.first_byte == at
                && row.first_byte < row.index_at
                && row.end > EntryId(0)
                && row.index_bytes <= INDEX_BYTES_MAX;
            check(placed, DIRECTORY, "a ledger in a place that cannot be")?;
            let end = row.index_at.checked_add(u64::from(row.index_bytes));
            let why = "a ledger in a place that cannot be";
            at = end.ok_or(FormatError::Content {
                part: DIRECTORY,
                why,
            })?;
        }
        Ok(())
    }

    /// Where one ledger is.
    pub fn row(&self, ledger: LedgerId) -> Option<&DirectoryRow> {
        self.rows.iter().find(|row| row.ledger == ledger)
    }
}

fn encoded_len(rows: usize) -> usize {
    HEAD_BYTES + rows * ROW_BYTES + CRC_BYTES
}

/// The last bytes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// Which segment it is: what its name says, too.
    pub segment: SegmentId,
    /// Where the directory begins.
    pub directory_at: u64,
    /// Its length.
    pub directory_bytes: u32,
    /// The CRC32C that stands at its end.
    pub directory_crc: u32,
    /// Length of the whole object.
    pub object_bytes: u64,
}

impl Trailer {
    /// The 56 bytes.
    pub fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        let mut out = &mut bytes[..];
        out.put_u64_le(self.directory_at);
        out.put_u32_le(self.directory_bytes);
        out.put_u32_le(self.directory_crc);
        out.put_slice(self.segment.0.as_bytes());
        out.put_u64_le(self.object_bytes);
        out.put_u8(FORMAT_VERSION);
        let crc = crc32c(&bytes[..44]);
        bytes[44..48].copy_from_slice(&crc.to_le_bytes());
        bytes[48..].copy_from_slice(TRAILER_MARK);
        bytes
    }

    /// Decodes and checks a trailer that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`FormatError`]; nothing is allocated.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() != TRAILER_BYTES {
            return Err(FormatError::length(TRAILER, bytes.len(), TRAILER_BYTES));
        }
        if bytes[48..] != TRAILER_MARK[..] {
            return Err(FormatError::Mark { part: TRAILER });
        }
        let found = bytes[40];
        if found != FORMAT_VERSION {
            let part = TRAILER;
            return Err(FormatError::Version { part, found });
        }
        checked(TRAILER, &bytes[..44], (&bytes[44..48]).get_u32_le())?;
        zeros(TRAILER, &bytes[41..44])?;
        let segment = SegmentId::from_slice(&bytes[16..32]);
        let mut rest = bytes;
        let trailer = Self {
            directory_at: rest.get_u64_le(),
            directory_bytes: rest.get_u32_le(),
            directory_crc: rest.get_u32_le(),
            segment: segment.unwrap_or_default(),
            object_bytes: (&bytes[32..40]).get_u64_le(),
        };
        let end = trailer
            .directory_at
            .checked_add(u64::from(trailer.directory_bytes))
            .and_then(|end| end.checked_add(TRAILER_BYTES as u64));
        let placed = end == Some(trailer.object_bytes);
        check(
            placed,
            TRAILER,
            "a directory that does not end where it begins",
        )?;
        let bytes = trailer.directory_bytes as usize;
        let sized = bytes <= encoded_len(DIRECTORY_LEDGERS_MAX);
        check(sized, TRAILER, "a directory longer than any")?;
        Ok(trailer)
    }
}
