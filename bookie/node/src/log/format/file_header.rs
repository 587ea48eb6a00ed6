//! The header of a log file (storage.md 4.1), one block, format version 1.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `HULSELOG` |
//! | 8 | 4 | format version (1); governs groups and footer of the file, too |
//! | 12 | 4 | feature bits a reader must know |
//! | 16 | 4 | feature bits a reader may ignore |
//! | 20 | 4 | kind: 1 log, 2 compacted |
//! | 24 | 16 | cell |
//! | 40 | 16 | incarnation |
//! | 56 | 16 | disk uuid |
//! | 72 | 8 | file number |
//! | 80 | 8 | salt |
//! | 88 | 8 | created at, ms since 1970 |
//! | 96 | 8 | preallocated length |
//! | 104 | 8 | how many files it replaces (compacted only) |
//! | 112 | 8 each | numbers of these files, ascending |
//! | … | … | zero |
//! | 4084 | 8 | number of the log file as which its entries count, plus 1; 0: as the newest that it replaces (compacted only) |
//! | 4092 | 4 | CRC32C of all before |
//!
//! Little-endian. Numbers are given once, over both kinds.

use bytes::{Buf, BufMut};
use hulse_proto::entry::crc32c;
use hulse_proto::id::{CellId, Incarnation};
use uuid::Uuid;

use super::group_header::{BLOCK_BYTES, DiskIdentity};

/// The version that is written and read.
pub const FORMAT_VERSION: u32 = 1;
/// Most files that one compacted file replaces.
pub const REPLACES_MAX: usize = 256;

const COUNTS_AS_AT: usize = BLOCK_BYTES - 12;
const FILE_MAGIC: u64 = u64::from_le_bytes(*b"HULSELOG");

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// Write-ahead log and store at once; entries in the order of their arrival.
    Log,
    /// Entries that were live in other files, sorted by ledger and entry (storage.md G8).
    Compacted,
}

impl FileKind {
    fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Log),
            2 => Some(Self::Compacted),
            _ => None,
        }
    }

    fn code(self) -> u32 {
        match self {
            Self::Log => 1,
            Self::Compacted => 2,
        }
    }
}

/// A log file's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeader {
    /// What it is.
    pub kind: FileKind,
    /// Whose.
    pub identity: DiskIdentity,
    /// Number of the file.
    pub file: u64,
    /// Tells groups of this file from those of an earlier use of the same blocks.
    pub salt: u64,
    /// When it was made, ms.
    pub created_at: i64,
    /// Preallocated length.
    pub file_bytes: u64,
    /// Files whose live entries it took over, ascending; at most [`REPLACES_MAX`].
    pub replaces: Vec<u64>,
    /// The log file as which its entries count, if that is not the newest that it replaces: some of these are compacted themselves.
    pub counts_as: Option<u64>,
}

/// Why bytes are not a log file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileHeaderError {
    /// Shorter than a block.
    #[error("the header is cut off after {0} bytes")]
    CutOff(usize),
    /// Another kind of file, or damaged.
    #[error("the header's magic number, checksum or content is wrong")]
    Damaged,
    /// Written by another version.
    #[error("format version {0}; this build reads version {FORMAT_VERSION}")]
    Version(u32),
    /// Needs a feature this build lacks.
    #[error("needs features {0:#x} that this build does not know")]
    Features(u32),
}

impl FileHeader {
    /// The newest log file of which it holds entries. Of several copies of an entry the one of the newest log file counts.
    pub fn newest_log_file(&self) -> u64 {
        let newest = self.counts_as.or(self.replaces.last().copied());
        newest.unwrap_or(self.file)
    }

    /// The block.
    ///
    /// # Panics
    /// With more than [`REPLACES_MAX`] replaced files.
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.replaces.len() <= REPLACES_MAX,
            "a compacted file replaces no more files than its header can name"
        );
        let mut out = Vec::with_capacity(BLOCK_BYTES);
        out.put_u64_le(FILE_MAGIC);
        out.put_u32_le(FORMAT_VERSION);
        out.put_bytes(0, 8);
        out.put_u32_le(self.kind.code());
        out.put_slice(self.identity.cell.0.as_bytes());
        out.put_slice(self.identity.incarnation.0.as_bytes());
        out.put_slice(self.identity.disk.as_bytes());
        out.put_u64_le(self.file);
        out.put_u64_le(self.salt);
        out.put_i64_le(self.created_at);
        out.put_u64_le(self.file_bytes);
        out.put_u64_le(self.replaces.len() as u64);
        self.replaces.iter().for_each(|file| out.put_u64_le(*file));
        out.resize(COUNTS_AS_AT, 0);
        out.put_u64_le(self.counts_as.map_or(0, |file| file + 1));
        let crc = crc32c(&out);
        out.put_u32_le(crc);
        out
    }

    /// Decodes and checks the block at the start of `bytes`.
    ///
    /// # Errors
    /// [`FileHeaderError`]; the checksum is judged before the version, so that damage is never taken for another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, FileHeaderError> {
        let Some(block) = bytes.get(..BLOCK_BYTES) else {
            return Err(FileHeaderError::CutOff(bytes.len()));
        };
        let (mut rest, mut tail) = block.split_at(BLOCK_BYTES - 4);
        let computed = crc32c(rest);
        if rest.get_u64_le() != FILE_MAGIC || tail.get_u32_le() != computed {
            return Err(FileHeaderError::Damaged);
        }
        let version = rest.get_u32_le();
        if version != FORMAT_VERSION {
            return Err(FileHeaderError::Version(version));
        }
        let required = rest.get_u32_le();
        if required != 0 {
            return Err(FileHeaderError::Features(required));
        }
        rest.advance(4);
        let kind = FileKind::from_code(rest.get_u32_le()).ok_or(FileHeaderError::Damaged)?;
        let mut uuid = || {
            let mut raw = [0; 16];
            rest.copy_to_slice(&mut raw);
            Uuid::from_bytes(raw)
        };
        let identity = DiskIdentity {
            cell: CellId(uuid()),
            incarnation: Incarnation(uuid()),
            disk: uuid(),
        };
        Ok(Self {
            kind,
            identity,
            file: rest.get_u64_le(),
            salt: rest.get_u64_le(),
            created_at: rest.get_i64_le(),
            file_bytes: rest.get_u64_le(),
            replaces: replaces(&mut rest)?,
            counts_as: (&block[COUNTS_AS_AT..]).get_u64_le().checked_sub(1),
        })
    }
}

fn replaces(rest: &mut &[u8]) -> Result<Vec<u64>, FileHeaderError> {
    let count = rest.get_u64_le();
    if count > REPLACES_MAX as u64 {
        return Err(FileHeaderError::Damaged);
    }
    let files: Vec<u64> = (0..count).map(|_| rest.get_u64_le()).collect();
    match files.is_sorted_by(|a, b| a < b) {
        true => Ok(files),
        false => Err(FileHeaderError::Damaged),
    }
}
