//! Looks at an object before anything rests on it: at its parts before the commit (storage.md O5), at its blocks before copies are
//! dropped (O8).

use bytes::Bytes;
use hulse_proto::entry::{Entry, Totals};
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::tier::{Attempt, Segment};

use super::fetch::Fetcher;
use crate::format::{
    Block, BlockRow, Directory, FormatError, Index, TRAILER_BYTES, Trailer, seal_of,
};
use crate::protocol::{ObjectError, Uploaded};

/// How much of a segment is read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadBack {
    /// Every block, and the totals that they add up to.
    Whole,
    /// First, last and this many between.
    Sample(usize),
}

fn damaged(attempt: &Attempt, error: FormatError) -> ObjectError {
    ObjectError::Damaged {
        object: attempt.object.clone(),
        error,
    }
}

fn differs(attempt: &Attempt, part: &'static str) -> ObjectError {
    let why = "it is not what was sent";
    damaged(attempt, FormatError::Content { part, why })
}

/// Compares what is there with what was sent: length, name, trailer, directory, indexes.
///
/// # Errors
/// [`ObjectError`]; it is a proof that the object is not to be used unless the store did not answer.
pub async fn verify(
    fetcher: &Fetcher,
    attempt: &Attempt,
    uploaded: &Uploaded,
) -> Result<(), ObjectError> {
    let written = &uploaded.written;
    let (found, etag) = fetcher.length(attempt).await?;
    let expected = written.object_bytes;
    if found != expected {
        let object = attempt.object.clone();
        return Err(ObjectError::Length {
            object,
            found,
            expected,
        });
    }
    if etag.is_some_and(|etag| !uploaded.etag.is_empty() && etag != uploaded.etag) {
        return Err(differs(attempt, "object"));
    }
    let trailer_at = expected.saturating_sub(TRAILER_BYTES as u64);
    let bytes = fetcher.range(attempt, trailer_at..expected).await?;
    let trailer = Trailer::decode(&bytes).map_err(|error| damaged(attempt, error))?;
    if trailer.segment != attempt.id || trailer.object_bytes != expected {
        return Err(differs(attempt, "trailer"));
    }
    let end = trailer.directory_at + u64::from(trailer.directory_bytes);
    let bytes = fetcher.range(attempt, trailer.directory_at..end).await?;
    let directory = Directory::decode(&bytes).map_err(|error| damaged(attempt, error))?;
    if directory != written.directory || seal_of(&bytes) != trailer.directory_crc {
        return Err(differs(attempt, "directory"));
    }
    for row in &directory.rows {
        let bytes = fetcher.range(attempt, row.index()).await?;
        let index = checked_index(attempt, &bytes, row.index_crc)?;
        let right = index.head.ledger == row.ledger
            && index.head.totals.end == row.end
            && index.place() == (row.first_byte..row.index_at);
        if !right {
            return Err(differs(attempt, "index"));
        }
    }
    Ok(())
}

fn checked_index(attempt: &Attempt, bytes: &Bytes, crc: u32) -> Result<Index, ObjectError> {
    if seal_of(bytes) != crc {
        return Err(differs(attempt, "index"));
    }
    Index::decode(bytes).map_err(|error| damaged(attempt, error))
}

/// Reads the index of a ledger in a segment, as metadata name it.
pub(crate) async fn read_index(
    fetcher: &Fetcher,
    ledger: LedgerId,
    segment: &Segment,
) -> Result<Index, ObjectError> {
    let attempt = &segment.attempt;
    let range = segment.index_at..segment.index_at + u64::from(segment.index_bytes);
    let bytes = fetcher.range(attempt, range).await?;
    let index = checked_index(attempt, &bytes, segment.index_crc)?;
    let right =
        index.head.ledger == ledger && index.place() == (segment.first_byte..segment.index_at);
    match right {
        true => Ok(index),
        false => Err(differs(attempt, "index")),
    }
}

/// Checks a block that was read or was in a cache against the index.
pub(crate) fn checked_block(
    ledger: LedgerId,
    row: &BlockRow,
    bytes: Bytes,
) -> Result<Block, FormatError> {
    let block = Block::decode(bytes)?;
    let header = block.header();
    let right = header.ledger == ledger
        && header.first == row.first
        && header.first_offset == row.first_offset
        && header.body_crc == row.crc
        && header.block_bytes() == row.bytes as usize;
    let (part, why) = ("block", "it is another one than its index names");
    match right {
        true => Ok(block),
        false => Err(FormatError::Content { part, why }),
    }
}

/// Reads a ledger's blocks from its segment, past every cache, and checks each entry.
///
/// # Errors
/// As [`verify`].
pub async fn read_back(
    fetcher: &Fetcher,
    ledger: LedgerId,
    segment: &Segment,
    how: ReadBack,
) -> Result<(), ObjectError> {
    let attempt = &segment.attempt;
    let index = read_index(fetcher, ledger, segment).await?;
    let blocks = index.blocks.len();
    let step = match how {
        ReadBack::Whole => 1,
        ReadBack::Sample(between) => (blocks / (between + 1)).max(1),
    };
    let (mut totals, mut next) = (Totals::default(), EntryId(0));
    for (at, row) in index.blocks.iter().enumerate() {
        if at % step != 0 && at + 1 != blocks {
            continue;
        }
        let range = row.at..row.at + u64::from(row.bytes);
        let bytes = fetcher.range(attempt, range).await?;
        let block = checked_block(ledger, row, bytes);
        let block = block.map_err(|error| damaged(attempt, error))?;
        next = row.first;
        for entry in block.entries() {
            let entry = entry.map_err(|error| damaged(attempt, error))?;
            add(&mut totals, &entry).map_err(|error| damaged(attempt, error))?;
            next = next.next();
        }
        if next != index.end_of(at) {
            return Err(differs(attempt, "block"));
        }
    }
    let closed = index.head.totals;
    let same = totals.bytes == closed.bytes && totals.digest == closed.digest;
    match how == ReadBack::Whole && !(same && next == closed.end) {
        true => Err(differs(attempt, "ledger")),
        false => Ok(()),
    }
}

fn add(totals: &mut Totals, entry: &Entry) -> Result<(), FormatError> {
    entry.verify()?;
    totals.bytes += u64::from(entry.header().payload_len);
    totals.digest = totals.digest.wrapping_add(entry.digest_share());
    Ok(())
}
