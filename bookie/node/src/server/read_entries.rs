//! Reads entries from log files and checks them.

use bytes::Bytes;
use hulse_proto::bookie::{EntryHead, StoredEntry};
use hulse_proto::entry::{Entry, EntryHeader, Envelope, HEADER_BYTES};
use hulse_proto::id::EntryId;

use crate::core::Located;
use crate::log::files::FileTable;
use crate::log::record::{FRAME_BYTES, open_entry_record};

/// Entries this close in a file are read together, bytes between them included.
const JOIN_GAP_BYTES: u32 = 64 << 10;
/// Most bytes of one read call.
const JOIN_BYTES_MAX: u32 = 4 << 20;
/// Enough for the head of most entries.
const HEAD_GUESS_BYTES: u32 = 2048;

/// What an entry turned out not to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFault {
    /// The disk did not read.
    Disk(String),
    /// The bytes are not those of the entry.
    Damaged,
}

/// Reads one entry.
///
/// # Errors
/// [`ReadFault`]; both mean UNKNOWN to the caller (storage.md E2).
pub fn read_entry(files: &FileTable, located: &Located) -> Result<StoredEntry, ReadFault> {
    let bytes = read(files, located, located.slot.location.bytes)?;
    decode(bytes.into(), located)
}

fn read(files: &FileTable, located: &Located, bytes: u32) -> Result<Vec<u8>, ReadFault> {
    let place = located.slot.location;
    let file = files.get(place.file).ok_or(ReadFault::Damaged)?;
    file.read_at(u64::from(place.offset), bytes as usize)
        .map_err(|error| ReadFault::Disk(error.to_string()))
}

fn decode(bytes: Bytes, located: &Located) -> Result<StoredEntry, ReadFault> {
    let (confirmed_end, _) = open_entry_record(&bytes).ok_or(ReadFault::Damaged)?;
    let entry = Entry::decode(bytes.slice(FRAME_BYTES..)).map_err(|_| ReadFault::Damaged)?;
    check(entry.header(), located)?;
    Ok(StoredEntry {
        entry,
        confirmed_end,
    })
}

fn check(header: &EntryHeader, located: &Located) -> Result<(), ReadFault> {
    let right = header.entry == located.entry && header.digest() == located.slot.digest;
    right.then_some(()).ok_or(ReadFault::Damaged)
}

/// Reads entries in order up to the first that cannot be had; that one's fault is returned beside them.
pub(super) fn read_run(
    files: &FileTable,
    wanted: &[Located],
) -> (Vec<StoredEntry>, Option<(EntryId, ReadFault)>) {
    let mut found = Vec::with_capacity(wanted.len());
    let mut rest = wanted;
    while !rest.is_empty() {
        let (joined, bytes) = join(rest);
        let (now, later) = rest.split_at(joined);
        rest = later;
        let base = now[0].slot.location.offset;
        let all = match read(files, &now[0], bytes) {
            Ok(all) => Bytes::from(all),
            Err(fault) => return (found, Some((now[0].entry, fault))),
        };
        for located in now {
            let place = located.slot.location;
            let from = (place.offset - base) as usize;
            let end = from + place.bytes as usize;
            let entry = match all.len() >= end {
                true => decode(all.slice(from..end), located),
                false => Err(ReadFault::Damaged),
            };
            match entry {
                Ok(entry) => found.push(entry),
                Err(fault) => return (found, Some((located.entry, fault))),
            }
        }
    }
    (found, None)
}

/// How many of the first entries lie close together in one file, and the length of the read that covers them.
fn join(wanted: &[Located]) -> (usize, u32) {
    let first = wanted[0].slot.location;
    let mut end = first.offset + first.bytes;
    let mut joined = 1;
    for located in &wanted[1..] {
        let next = located.slot.location;
        let near = next.file == first.file
            && next.offset >= end
            && next.offset - end <= JOIN_GAP_BYTES
            && next.offset - first.offset + next.bytes <= JOIN_BYTES_MAX;
        if !near {
            break;
        }
        end = next.offset + next.bytes;
        joined += 1;
    }
    (joined, end - first.offset)
}

/// Reads heads in order up to the first that cannot be had.
pub(super) fn read_heads(
    files: &FileTable,
    wanted: &[Located],
) -> (Vec<EntryHead>, Option<(EntryId, ReadFault)>) {
    let mut found = Vec::with_capacity(wanted.len());
    for located in wanted {
        match read_head(files, located) {
            Ok(head) => found.push(head),
            Err(fault) => return (found, Some((located.entry, fault))),
        }
    }
    (found, None)
}

/// Bytes a head counts towards a read's limit.
pub(super) fn head_bytes() -> u32 {
    HEAD_GUESS_BYTES
}

fn read_head(files: &FileTable, located: &Located) -> Result<EntryHead, ReadFault> {
    let all = located.slot.location.bytes;
    let mut bytes = read(files, located, all.min(HEAD_GUESS_BYTES))?;
    let entry = bytes.get(FRAME_BYTES..).ok_or(ReadFault::Damaged)?;
    let header = EntryHeader::decode(entry).map_err(|_| ReadFault::Damaged)?;
    check(&header, located)?;
    let from = FRAME_BYTES + HEADER_BYTES;
    let end = from + header.envelope_len as usize;
    if end > bytes.len() && end <= all as usize {
        bytes = read(files, located, end as u32)?;
    }
    if end > bytes.len() {
        return Err(ReadFault::Damaged);
    }
    let envelope = Bytes::from(bytes).slice(from..end);
    Envelope::decode(&envelope).map_err(|_| ReadFault::Damaged)?;
    Ok(EntryHead { header, envelope })
}
