//! The fixed header of a group (storage.md 4.1), as pure functions over bytes; blocks and places.
//!
//! Group header, at a block boundary, followed by the records and zeros up to the next boundary:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `HULSEGRP` xor the file's salt |
//! | 8 | 8 | group sequence, dense over all files |
//! | 16 | 8 | offset of this header in its file |
//! | 24 | 4 | length of the records |
//! | 28 | 4 | number of records; 0: a mark |
//! | 32 | 8 | durable so far: file id |
//! | 40 | 8 | durable so far: offset (exclusive) |
//! | 48 | 8 | reserved (0) |
//! | 56 | 4 | CRC32C of the records |
//! | 60 | 4 | CRC32C of bytes 0..60 |
//!
//! Little-endian. The version stands in the file's header ([`super::file_header`]).

use bytes::{Buf, BufMut};
use hulse_proto::entry::crc32c;
use hulse_proto::id::{CellId, Incarnation};
use hulse_proto::limits::ENTRY_BYTES_MAX;
use uuid::Uuid;

/// Groups begin on multiples of this; a block that was synced is never written again.
pub const BLOCK_BYTES: usize = 4096;
/// Length of a group's header.
pub const GROUP_HEADER_BYTES: usize = 64;
/// Longest record area a reader believes: one entry of the largest size and its frame, or many small ones.
pub const GROUP_BODY_BYTES_MAX: usize = ENTRY_BYTES_MAX + (64 << 10);

const GROUP_MAGIC: u64 = u64::from_le_bytes(*b"HULSEGRP");

/// A place in the log: file, then offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPosition {
    /// The file.
    pub file: u64,
    /// Bytes from its start.
    pub offset: u64,
}

/// Whose files these are; in every file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskIdentity {
    /// The cluster.
    pub cell: CellId,
    /// This life of the disk.
    pub incarnation: Incarnation,
    /// The disk.
    pub disk: Uuid,
}

/// A group's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupHeader {
    /// Dense number.
    pub sequence: u64,
    /// Where it stands in its file.
    pub offset: u64,
    /// Length of the records.
    pub body_bytes: u32,
    /// How many.
    pub records: u32,
    /// Everything before this place was durable when the header was made.
    pub synced: LogPosition,
    /// CRC32C of the records.
    pub body_crc: u32,
}

/// Why bytes are not a valid group at their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// Shorter than they claim.
    #[error("the group is cut off")]
    CutOff,
    /// Not this file's magic number, e.g. never written.
    #[error("no group begins here")]
    Absent,
    /// The header's checksum is wrong.
    #[error("the group header's checksum is wrong")]
    HeaderCrc,
    /// Written for another place.
    #[error("the group says it stands at {0}")]
    Misplaced(u64),
    /// A length no writer makes.
    #[error("the group claims {0} bytes")]
    Length(u32),
    /// The records' checksum is wrong.
    #[error("the records' checksum is wrong")]
    BodyCrc,
}

impl GroupHeader {
    /// The header's bytes, for a file with this salt.
    pub fn encode(&self, salt: u64) -> [u8; GROUP_HEADER_BYTES] {
        let mut bytes = [0; GROUP_HEADER_BYTES];
        let mut out = &mut bytes[..];
        out.put_u64_le(GROUP_MAGIC ^ salt);
        out.put_u64_le(self.sequence);
        out.put_u64_le(self.offset);
        out.put_u32_le(self.body_bytes);
        out.put_u32_le(self.records);
        out.put_u64_le(self.synced.file);
        out.put_u64_le(self.synced.offset);
        out.put_u64_le(0);
        out.put_u32_le(self.body_crc);
        let crc = crc32c(&bytes[..GROUP_HEADER_BYTES - 4]);
        bytes[GROUP_HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes and checks the header at the start of `bytes`, which stand at `offset` of a file with this salt.
    ///
    /// # Errors
    /// [`GroupError`]; the records are not looked at.
    pub fn decode(bytes: &[u8], salt: u64, offset: u64) -> Result<Self, GroupError> {
        let mut rest = bytes.get(..GROUP_HEADER_BYTES).ok_or(GroupError::CutOff)?;
        let computed = crc32c(&rest[..GROUP_HEADER_BYTES - 4]);
        if rest.get_u64_le() != GROUP_MAGIC ^ salt {
            return Err(GroupError::Absent);
        }
        let sequence = rest.get_u64_le();
        let stands_at = rest.get_u64_le();
        let body_bytes = rest.get_u32_le();
        let records = rest.get_u32_le();
        let synced = LogPosition {
            file: rest.get_u64_le(),
            offset: rest.get_u64_le(),
        };
        let _reserved = rest.get_u64_le();
        let body_crc = rest.get_u32_le();
        if rest.get_u32_le() != computed {
            return Err(GroupError::HeaderCrc);
        }
        if stands_at != offset {
            return Err(GroupError::Misplaced(stands_at));
        }
        if body_bytes as usize > GROUP_BODY_BYTES_MAX {
            return Err(GroupError::Length(body_bytes));
        }
        Ok(Self {
            sequence,
            offset,
            body_bytes,
            records,
            synced,
            body_crc,
        })
    }

    /// Length of header, records and padding.
    pub fn padded_bytes(&self) -> u64 {
        padded(GROUP_HEADER_BYTES + self.body_bytes as usize) as u64
    }

    /// The records of the group whose header this is; `bytes` begin with the header.
    ///
    /// # Errors
    /// [`GroupError::CutOff`] or [`GroupError::BodyCrc`].
    pub fn body<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], GroupError> {
        let end = GROUP_HEADER_BYTES + self.body_bytes as usize;
        let body = bytes
            .get(GROUP_HEADER_BYTES..end)
            .ok_or(GroupError::CutOff)?;
        if crc32c(body) != self.body_crc {
            return Err(GroupError::BodyCrc);
        }
        Ok(body)
    }
}

/// The next multiple of a block.
pub fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(BLOCK_BYTES)
}
