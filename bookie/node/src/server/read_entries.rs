//! Finds entries in log files, reads them and checks them. Blocks: called by the read threads, and by `step`.

use bytes::Bytes;
use hulse_proto::bookie::{EntryHead, HeldRun, StoredEntry, entry_mark};
use hulse_proto::entry::{Entry, EntryDigest, EntryHeader, Envelope, HEADER_BYTES};
use hulse_proto::id::EntryId;

use crate::core::Part;
use crate::index::{Located, Locator, ReadFault, Wanted};
use crate::log::files::FileTable;
use crate::log::record::{FRAME_BYTES, open_entry_record};

/// Entries this close in a file are read together, bytes between them included.
const JOIN_GAP_BYTES: u32 = 64 << 10;
/// Most bytes of one read call.
const JOIN_BYTES_MAX: u32 = 4 << 20;
/// Enough for the head of most entries.
const HEAD_GUESS_BYTES: u32 = 2048;

/// What was read in order, and the first entry that could not be had.
pub type Found<T> = (Vec<T>, Option<(EntryId, ReadFault)>);

/// Reads one entry.
///
/// # Errors
/// [`ReadFault`]; damage and a disk that does not read both mean UNKNOWN to the caller (storage.md E2).
pub fn read_entry(locator: &Locator, wanted: &Wanted) -> Result<StoredEntry, ReadFault> {
    let located = one(locator, wanted)?;
    let bytes = read(locator.files(), &located, located.slot.location.bytes)?;
    decode(bytes.into(), &located)
}

/// The checksums of one entry, as its slot has them.
///
/// # Errors
/// As [`read_entry`].
pub fn digest_of(locator: &Locator, wanted: &Wanted) -> Result<EntryDigest, ReadFault> {
    one(locator, wanted).map(|located| located.slot.digest)
}

/// The digest of entries that are held (storage.md X8), from their slots. `want` looks up a run from an entry on. `None` when a slot
/// cannot be had.
pub fn digest_of_run(
    locator: &Locator,
    run: &HeldRun,
    want: impl Fn(EntryId) -> Option<Wanted>,
) -> Option<u64> {
    let mut digest = 0_u64;
    let mut at = run.first;
    while at < run.end {
        let (located, fault) = locator.locate(&want(at)?);
        if located.is_empty() || fault.is_some() {
            return None;
        }
        for found in located.iter().take_while(|found| found.entry < run.end) {
            digest = digest.wrapping_add(entry_mark(found.entry, found.slot.digest));
            at = found.entry.next();
        }
    }
    Some(digest)
}

fn one(locator: &Locator, wanted: &Wanted) -> Result<Located, ReadFault> {
    match locator.locate(wanted) {
        (located, None) => located.first().copied().ok_or(ReadFault::Gone),
        (_, Some((_, fault))) => Err(fault),
    }
}

fn read(files: &FileTable, located: &Located, bytes: u32) -> Result<Vec<u8>, ReadFault> {
    let place = located.slot.location;
    let file = files.get(place.file).ok_or(ReadFault::Gone)?;
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
pub fn read_run(locator: &Locator, wanted: &Wanted) -> Found<StoredEntry> {
    read_each(locator, wanted, decode)
}

/// The same as whole records, frames included, checked all the same (storage.md G13).
pub fn read_records(locator: &Locator, wanted: &Wanted) -> Found<Bytes> {
    let whole = |bytes: Bytes, located: &Located| decode(bytes.clone(), located).map(|_| bytes);
    read_each(locator, wanted, whole)
}

fn read_each<T>(
    locator: &Locator,
    wanted: &Wanted,
    make: impl Fn(Bytes, &Located) -> Result<T, ReadFault>,
) -> Found<T> {
    let (located, unplaced) = locator.locate(wanted);
    let mut found = Vec::with_capacity(located.len());
    let mut rest = &located[..];
    while !rest.is_empty() {
        let (joined, bytes) = join(rest);
        let (now, later) = rest.split_at(joined);
        rest = later;
        let base = now[0].slot.location.offset;
        let all = match read(locator.files(), &now[0], bytes) {
            Ok(all) => Bytes::from(all),
            Err(fault) => return (found, Some((now[0].entry, fault))),
        };
        for located in now {
            let place = located.slot.location;
            let from = (place.offset - base) as usize;
            let end = from + place.bytes as usize;
            let entry = match all.len() >= end {
                true => make(all.slice(from..end), located),
                false => Err(ReadFault::Damaged),
            };
            match entry {
                Ok(entry) => found.push(entry),
                Err(fault) => return (found, Some((located.entry, fault))),
            }
        }
    }
    (found, unplaced)
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
pub fn read_heads(locator: &Locator, wanted: &Wanted) -> Found<EntryHead> {
    let (located, unplaced) = locator.locate(wanted);
    let mut found = Vec::with_capacity(located.len());
    for located in &located {
        match read_head(locator.files(), located) {
            Ok(head) => found.push(head),
            Err(fault) => return (found, Some((located.entry, fault))),
        }
    }
    (found, unplaced)
}

/// How heads are asked for.
pub fn heads() -> Part {
    let guess = HEAD_GUESS_BYTES;
    Part::Head { guess }
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
