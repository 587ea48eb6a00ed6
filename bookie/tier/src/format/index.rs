//! The index of one ledger in a segment: which block holds what, and the ledger's aborted ranges.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | mark `HIDX` |
//! | 4 | 1 | version (1) |
//! | 5 | 3 | reserved (0) |
//! | 8 | 8 | ledger |
//! | 16 | 16 | topic |
//! | 32 | 4 | partition |
//! | 36 | 4 | blocks |
//! | 40 | 4 | aborted ranges |
//! | 44 | 4 | reserved (0) |
//! | 48 | 8 | base offset |
//! | 56 | 8 | entries |
//! | 64 | 8 | offset span |
//! | 72 | 8 | records |
//! | 80 | 8 | payload bytes |
//! | 88 | 8 | digest (storage.md 4.2) |
//! | 96 | 56 each | block: first entry u64, first offset u64, place u64 (byte of the object), length u32, CRC32C of the block's entries u32, lowest, highest and running highest timestamp i64 |
//! | … | 24 each | aborted range: first offset u64, end u64, producer i64 |
//! | … | 4 | CRC32C of all before |
//!
//! The lowest timestamp of a block is that of the first records of its batches: what headers tell without opening a batch. The running
//! highest is the partition's up to and including the block, so it is what a look-up by time searches (amended 4.4).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hulse_proto::entry::crc32c;
use hulse_proto::id::{EntryId, LedgerId, Offset, PartitionId, ProducerId, TopicId};
use hulse_proto::ledger::ClosedTotals;
use hulse_proto::tier::{AbortedRange, INDEX_BYTES_MAX};
use hulse_proto::time::TimestampMs;

use super::FORMAT_VERSION;
use super::block::{BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES};
use super::error::{FormatError, check, checked, zeros};

const MARK: &[u8; 4] = b"HIDX";
const PART: &str = "index";
const HEAD_BYTES: usize = 96;
const ROW_BYTES: usize = 56;
const ABORTED_BYTES: usize = 24;
const CRC_BYTES: usize = 4;

/// Where a block is and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRow {
    /// Its first entry.
    pub first: EntryId,
    /// Offset of its first record.
    pub first_offset: Offset,
    /// First byte in the object.
    pub at: u64,
    /// Bytes, header included.
    pub bytes: u32,
    /// CRC32C of its entries: the same that stands in its header.
    pub crc: u32,
    /// Lowest timestamp of a batch's first record; `i64::MAX` without batches.
    pub min_timestamp: TimestampMs,
    /// Highest timestamp; `i64::MIN` without batches.
    pub max_timestamp: TimestampMs,
    /// Highest of the partition so far.
    pub running_max_timestamp: TimestampMs,
}

/// Whose index it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexHead {
    /// The ledger.
    pub ledger: LedgerId,
    /// Whose it is.
    pub partition: PartitionId,
    /// Offset of its first record.
    pub base_offset: Offset,
    /// As it was closed.
    pub totals: ClosedTotals,
}

/// An index whose checksum was right and whose rows lie one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Whose.
    pub head: IndexHead,
    /// In order; at least one.
    pub blocks: Vec<BlockRow>,
    /// In order of their first offsets.
    pub aborted: Vec<AbortedRange>,
}

impl Index {
    /// The bytes.
    ///
    /// # Errors
    /// [`FormatError::Length`] when it is longer than a reader believes; [`FormatError::Content`] when it could not be read back.
    pub fn encode(&self) -> Result<Bytes, FormatError> {
        let len = encoded_len(self.blocks.len() as u64, self.aborted.len() as u64);
        if len > u64::from(INDEX_BYTES_MAX) {
            let (found, expected) = (len, u64::from(INDEX_BYTES_MAX));
            let part = PART;
            return Err(FormatError::Length {
                part,
                found,
                expected,
            });
        }
        self.check()?;
        let mut out = BytesMut::with_capacity(len as usize);
        let (head, totals) = (&self.head, &self.head.totals);
        out.put_slice(MARK);
        out.put_u8(FORMAT_VERSION);
        out.put_bytes(0, 3);
        out.put_u64_le(head.ledger.0);
        out.put_slice(head.partition.topic.0.as_bytes());
        out.put_u32_le(head.partition.index);
        out.put_u32_le(self.blocks.len() as u32);
        out.put_u32_le(self.aborted.len() as u32);
        out.put_u32_le(0);
        out.put_u64_le(head.base_offset.0);
        out.put_u64_le(totals.end.0);
        out.put_u64_le(totals.offset_span);
        out.put_u64_le(totals.record_count);
        out.put_u64_le(totals.bytes);
        out.put_u64_le(totals.digest);
        for row in &self.blocks {
            out.put_u64_le(row.first.0);
            out.put_u64_le(row.first_offset.0);
            out.put_u64_le(row.at);
            out.put_u32_le(row.bytes);
            out.put_u32_le(row.crc);
            out.put_i64_le(row.min_timestamp);
            out.put_i64_le(row.max_timestamp);
            out.put_i64_le(row.running_max_timestamp);
        }
        for range in &self.aborted {
            out.put_u64_le(range.first.0);
            out.put_u64_le(range.end.0);
            out.put_i64_le(range.producer.0);
        }
        let crc = crc32c(&out);
        out.put_u32_le(crc);
        Ok(out.freeze())
    }

    /// Decodes and checks an index that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`FormatError`]. Allocates no more than a small multiple of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let found = bytes.len();
        if found < HEAD_BYTES + CRC_BYTES || found > INDEX_BYTES_MAX as usize {
            return Err(FormatError::length(PART, found, HEAD_BYTES + CRC_BYTES));
        }
        if !bytes.starts_with(MARK) {
            return Err(FormatError::Mark { part: PART });
        }
        let version = bytes[MARK.len()];
        if version != FORMAT_VERSION {
            let found = version;
            return Err(FormatError::Version { part: PART, found });
        }
        let (sealed, mut crc) = bytes.split_at(found - CRC_BYTES);
        checked(PART, sealed, crc.get_u32_le())?;
        zeros(PART, &sealed[5..8])?;
        zeros(PART, &sealed[44..48])?;
        let mut rest = &sealed[8..];
        let ledger = LedgerId(rest.get_u64_le());
        let topic = TopicId::from_slice(&rest[..16]);
        rest.advance(16);
        let index = rest.get_u32_le();
        let blocks = rest.get_u32_le();
        let aborted = rest.get_u32_le();
        rest.advance(4);
        let expected = encoded_len(u64::from(blocks), u64::from(aborted));
        if expected != found as u64 {
            let (part, found) = (PART, found as u64);
            return Err(FormatError::Length {
                part,
                found,
                expected,
            });
        }
        let head = IndexHead {
            ledger,
            partition: PartitionId {
                topic: topic.ok_or(FormatError::Content {
                    part: PART,
                    why: "no topic",
                })?,
                index,
            },
            base_offset: Offset(rest.get_u64_le()),
            totals: ClosedTotals {
                end: EntryId(rest.get_u64_le()),
                offset_span: rest.get_u64_le(),
                record_count: rest.get_u64_le(),
                bytes: rest.get_u64_le(),
                digest: rest.get_u64_le(),
            },
        };
        let blocks = (0..blocks).map(|_| row(&mut rest)).collect();
        let aborted = (0..aborted).map(|_| range(&mut rest)).collect();
        let index = Self {
            head,
            blocks,
            aborted,
        };
        index.check()?;
        Ok(index)
    }

    /// Rows lie one after the other, without a gap, and none holds nothing.
    fn check(&self) -> Result<(), FormatError> {
        let end = self.head.totals.end;
        let base = self.head.base_offset;
        let first = self.blocks.first();
        let begins = first.is_some_and(|row| row.first == EntryId(0) && row.first_offset == base);
        check(begins, PART, "its first block does not begin the ledger")?;
        let offsets = base.0.checked_add(self.head.totals.offset_span);
        check(offsets.is_some(), PART, "offsets beyond all numbers")?;
        let grows = self.blocks.is_sorted_by(|a, b| {
            a.first < b.first
                && a.first_offset <= b.first_offset
                && a.at.checked_add(u64::from(a.bytes)) == Some(b.at)
        });
        check(grows, PART, "its blocks do not follow each other")?;
        let whole = self.blocks.last().is_some_and(|row| {
            row.first < end && row.at.checked_add(u64::from(row.bytes)).is_some()
        });
        check(whole, PART, "a block beyond the ledger's end")?;
        let sized = self
            .blocks
            .iter()
            .all(|row| (BLOCK_HEADER_BYTES..=BLOCK_BYTES_MAX).contains(&(row.bytes as usize)));
        check(sized, PART, "a block of a length that cannot be")?;
        let ordered = self.aborted.iter().all(|range| range.first < range.end)
            && self.aborted.is_sorted_by_key(|range| range.first);
        check(ordered, PART, "aborted ranges that are not in order")
    }

    /// Where the blocks begin and end in the object.
    pub fn place(&self) -> std::ops::Range<u64> {
        let end = self
            .blocks
            .last()
            .map_or(0, |row| row.at + u64::from(row.bytes));
        self.blocks.first().map_or(0, |row| row.at)..end
    }

    /// The row of the block that holds an entry; `None` at or above the ledger's end.
    pub fn block_of(&self, entry: EntryId) -> Option<usize> {
        if entry >= self.head.totals.end {
            return None;
        }
        let after = self.blocks.partition_point(|row| row.first <= entry);
        after.checked_sub(1)
    }

    /// The row of the block that holds an offset, or the first one above it in a gap that compaction left.
    pub fn block_of_offset(&self, offset: Offset) -> Option<usize> {
        let end = self.head.base_offset.0 + self.head.totals.offset_span;
        if offset < self.head.base_offset || offset.0 >= end {
            return None;
        }
        let after = self
            .blocks
            .partition_point(|row| row.first_offset <= offset);
        after.checked_sub(1)
    }

    /// The row of the first block in which a record may be as late as `timestamp`; `None`: all are earlier.
    pub fn block_at_time(&self, timestamp: TimestampMs) -> Option<usize> {
        let rows = &self.blocks;
        let first = rows.partition_point(|row| row.running_max_timestamp < timestamp);
        (first < rows.len()).then_some(first)
    }

    /// One past the last entry of a block.
    pub fn end_of(&self, block: usize) -> EntryId {
        let next = self.blocks.get(block + 1);
        next.map_or(self.head.totals.end, |row| row.first)
    }
}

fn encoded_len(blocks: u64, aborted: u64) -> u64 {
    let fixed = (HEAD_BYTES + CRC_BYTES) as u64;
    fixed + blocks * ROW_BYTES as u64 + aborted * ABORTED_BYTES as u64
}

fn row(rest: &mut &[u8]) -> BlockRow {
    BlockRow {
        first: EntryId(rest.get_u64_le()),
        first_offset: Offset(rest.get_u64_le()),
        at: rest.get_u64_le(),
        bytes: rest.get_u32_le(),
        crc: rest.get_u32_le(),
        min_timestamp: rest.get_i64_le(),
        max_timestamp: rest.get_i64_le(),
        running_max_timestamp: rest.get_i64_le(),
    }
}

fn range(rest: &mut &[u8]) -> AbortedRange {
    AbortedRange {
        first: Offset(rest.get_u64_le()),
        end: Offset(rest.get_u64_le()),
        producer: ProducerId(rest.get_i64_le()),
    }
}
