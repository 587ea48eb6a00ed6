//! A block: whole entries of one ledger, one after the other, under one checksum.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | mark `HBLK` |
//! | 4 | 1 | version (1) |
//! | 5 | 3 | reserved (0) |
//! | 8 | 8 | ledger |
//! | 16 | 8 | first entry |
//! | 24 | 8 | first offset |
//! | 32 | 4 | entries |
//! | 36 | 4 | length of the entries, bytes |
//! | 40 | 4 | CRC32C of the entries |
//! | 44 | 4 | CRC32C of bytes 0..44 |
//! | 48 | … | entries: 76 bytes of header and the payload, each |

use bytes::{Buf, BufMut, Bytes};
use hulse_proto::entry::{Entry, EntryHeader, HEADER_BYTES, crc32c};
use hulse_proto::id::{EntryId, LedgerId, Offset};
use hulse_proto::limits::ENTRY_BYTES_MAX;

use super::FORMAT_VERSION;
use super::error::{FormatError, check, checked, zeros};

/// Length of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 48;
/// Longest block: one entry of the longest kind. Below what the cache's disk takes as one value.
pub const BLOCK_BYTES_MAX: usize = BLOCK_HEADER_BYTES + ENTRY_BYTES_MAX;

const MARK: &[u8; 4] = b"HBLK";
const PART: &str = "block";

/// The header, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// Of which ledger.
    pub ledger: LedgerId,
    /// Its first entry.
    pub first: EntryId,
    /// Offset of its first record.
    pub first_offset: Offset,
    /// How many; at least one.
    pub entries: u32,
    /// Their bytes.
    pub body_bytes: u32,
    /// CRC32C of their bytes.
    pub body_crc: u32,
}

impl BlockHeader {
    /// Decodes and checks the header at the start of `bytes`; what follows is not looked at.
    ///
    /// # Errors
    /// [`FormatError`]; nothing is allocated.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let found = bytes.len();
        let Some(mut rest) = bytes.get(..BLOCK_HEADER_BYTES) else {
            return Err(FormatError::length(PART, found, BLOCK_HEADER_BYTES));
        };
        if !rest.starts_with(MARK) {
            return Err(FormatError::Mark { part: PART });
        }
        let sealed = &rest[..BLOCK_HEADER_BYTES - 4];
        rest.advance(MARK.len());
        let found = rest.get_u8();
        if found != FORMAT_VERSION {
            return Err(FormatError::Version { part: PART, found });
        }
        rest.advance(3);
        let header = Self {
            ledger: LedgerId(rest.get_u64_le()),
            first: EntryId(rest.get_u64_le()),
            first_offset: Offset(rest.get_u64_le()),
            entries: rest.get_u32_le(),
            body_bytes: rest.get_u32_le(),
            body_crc: rest.get_u32_le(),
        };
        checked(PART, sealed, rest.get_u32_le())?;
        zeros(PART, &sealed[5..8])?;
        let body = header.body_bytes as usize;
        check(body <= ENTRY_BYTES_MAX, PART, "longer than a block may be")?;
        let least = (header.entries as usize).checked_mul(HEADER_BYTES);
        let holds = header.entries > 0 && least.is_some_and(|least| least <= body);
        check(holds, PART, "more entries than its bytes can hold, or none")?;
        let end = header.first.0.checked_add(u64::from(header.entries));
        check(end.is_some(), PART, "entries beyond all numbers")?;
        Ok(header)
    }

    /// One past its last entry.
    pub fn end(&self) -> EntryId {
        EntryId(self.first.0 + u64::from(self.entries))
    }

    /// Header and entries together.
    pub fn block_bytes(&self) -> usize {
        BLOCK_HEADER_BYTES + self.body_bytes as usize
    }
}

/// Writes the header's 48 bytes.
pub(crate) fn encode_header(header: &BlockHeader) -> [u8; BLOCK_HEADER_BYTES] {
    let mut bytes = [0; BLOCK_HEADER_BYTES];
    let mut out = &mut bytes[..];
    out.put_slice(MARK);
    out.put_u8(FORMAT_VERSION);
    out.put_bytes(0, 3);
    out.put_u64_le(header.ledger.0);
    out.put_u64_le(header.first.0);
    out.put_u64_le(header.first_offset.0);
    out.put_u32_le(header.entries);
    out.put_u32_le(header.body_bytes);
    out.put_u32_le(header.body_crc);
    let crc = crc32c(&bytes[..BLOCK_HEADER_BYTES - 4]);
    bytes[BLOCK_HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A block whose checksums were right. Cheap to clone; entries are slices of its bytes.
#[derive(Debug, Clone)]
pub struct Block {
    header: BlockHeader,
    bytes: Bytes,
}

impl Block {
    /// Checks a block that fills `bytes` exactly: header, length, and the checksum of all entries. The entries are not walked.
    ///
    /// # Errors
    /// [`FormatError`]. Nothing is copied.
    pub fn decode(bytes: Bytes) -> Result<Self, FormatError> {
        let header = BlockHeader::decode(&bytes)?;
        if bytes.len() != header.block_bytes() {
            let expected = header.block_bytes();
            return Err(FormatError::length(PART, bytes.len(), expected));
        }
        checked(PART, &bytes[BLOCK_HEADER_BYTES..], header.body_crc)?;
        Ok(Self { header, bytes })
    }

    /// Its header.
    pub fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// All its bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Its entries from the first on.
    pub fn entries(&self) -> Entries {
        Entries {
            block: self.clone(),
            at: BLOCK_HEADER_BYTES,
            next: self.header.first,
        }
    }
}

/// Entries of a block, in order; remembers where it is, so that nobody walks a block twice (storage.md K6). Ends after an error.
#[derive(Debug, Clone)]
pub struct Entries {
    block: Block,
    at: usize,
    next: EntryId,
}

impl Entries {
    /// The entry that comes next; the block's end when there is none.
    pub fn next_entry(&self) -> EntryId {
        self.next
    }

    /// Passes over everything below `entry`.
    ///
    /// # Errors
    /// As reading the entries that are passed over, but their payloads are not looked at.
    pub fn seek(&mut self, entry: EntryId) -> Result<(), FormatError> {
        while self.next < entry && self.next < self.block.header.end() {
            let header = self.header()?;
            self.pass(&header);
        }
        Ok(())
    }

    fn header(&self) -> Result<EntryHeader, FormatError> {
        let header = EntryHeader::decode(&self.block.bytes[self.at..])?;
        let right = header.ledger == self.block.header.ledger && header.entry == self.next;
        check(right, PART, "an entry that is not the next of its ledger")?;
        let left = self.block.bytes.len() - self.at;
        check(header.entry_len() <= left, PART, "an entry beyond its end")?;
        Ok(header)
    }

    fn pass(&mut self, header: &EntryHeader) {
        self.at += header.entry_len();
        self.next = self.next.next();
    }

    fn read(&mut self) -> Result<Entry, FormatError> {
        let header = self.header()?;
        let end = self.at + header.entry_len();
        let payload = self.at + HEADER_BYTES;
        // The block's checksum covers the payload; whoever moves the entry on verifies it once more.
        let parts = vec![self.block.bytes.slice(payload..end)];
        let entry = Entry::from_parts(&self.block.bytes[self.at..payload], parts)?;
        self.pass(&header);
        if self.next == self.block.header.end() {
            check(
                self.at == self.block.bytes.len(),
                PART,
                "bytes behind its entries",
            )?;
        }
        Ok(entry)
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.block.header.end() {
            return None;
        }
        let found = self.read();
        if found.is_err() {
            self.next = self.block.header.end();
        }
        Some(found)
    }
}
