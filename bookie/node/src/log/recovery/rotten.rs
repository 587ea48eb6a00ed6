//! Groups that were durable and whose bytes are wrong now, but which tell all the same what they held: then of nothing that stood there
//! is unknown what it was, and no ledger has to go into limbo for it (storage.md S3).
//!
//! Two kinds of wrong bytes leave no doubt, also together in header and records of one group:
//! * Payload of entries, whatever happened to it: every record tells by its own checksums what it is and where.
//! * One bit of anything else. The checksums say which one it was (`mend`), and what is put right in memory must agree with all of them.
//!
//! Whoever reads an entry of which a byte is wrong hears that it is damaged, as in a sealed file. On the disk nothing is put right: a
//! copy, or the footer of the file, takes the place of what is wrong.

use bytes::Bytes;
use hulse_proto::entry::{Entry, crc32c};
use hulse_proto::id::{EntryId, LedgerId};

use crate::disk::DiskError;
use crate::index::Location;
use crate::log::format::record::FRAME_BYTES;
use crate::log::format::{GROUP_HEADER_BYTES, GroupHeader};
use crate::log::mend::mended_body;
use crate::log::record::{PlacedRecord, Record, Records};
use crate::log::scan::FileScan;

/// An entry whose bytes are not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RottenEntry {
    /// The ledger.
    pub ledger: LedgerId,
    /// The entry.
    pub entry: EntryId,
    /// Where it stands.
    pub location: Location,
}

/// A group whose bytes are wrong, and what it was.
pub(super) struct ToldGroup {
    pub(super) header: GroupHeader,
    /// Its records, as they are on the disk but for a bit that is no payload.
    pub(super) body: Vec<u8>,
    /// Entries that cannot be read from the disk.
    pub(super) rotten: Vec<RottenEntry>,
}

/// The group at `at`, if it tells what it held; `None` when it does not.
///
/// # Errors
/// Of the disk.
pub(super) fn told_group(
    file: u64,
    scan: &mut FileScan,
    at: u64,
) -> Result<Option<ToldGroup>, DiskError> {
    let Some((header, body)) = scan.body_at(at)? else {
        return Ok(None);
    };
    if let Some(rotten) = rotten_entries(file, &header, body) {
        let body = body.to_vec();
        return Ok(Some(ToldGroup {
            header,
            body,
            rotten,
        }));
    }
    let mended = mended_body(&header, body);
    Ok(mended.and_then(|(body, byte)| {
        let whole = rotten_entries(file, &header, &body)?.is_empty();
        let rotten = rotten_at(file, &header, &body, byte);
        (whole && crc32c(&body) == header.body_crc).then_some(ToldGroup {
            header,
            body,
            rotten,
        })
    }))
}

/// The rotten entries of a group whose header is right and whose body is not; `None` when one of its records does not tell what it
/// was, or they are not as many as the header says.
fn rotten_entries(file: u64, header: &GroupHeader, body: &[u8]) -> Option<Vec<RottenEntry>> {
    let mut records = 0;
    let mut rotten = Vec::new();
    for record in Records::new(body) {
        let placed = record.ok()?;
        records += 1;
        let Record::Entry(found) = placed.record else {
            continue;
        };
        let bytes = &body[placed.at + FRAME_BYTES..placed.at + placed.bytes];
        let entry = Entry::decode(Bytes::copy_from_slice(bytes));
        if entry.and_then(|entry| entry.verify()).is_err() {
            rotten.push(RottenEntry {
                ledger: found.ledger,
                entry: found.entry,
                location: location_of(file, header, &placed),
            });
        }
    }
    (records == header.records).then_some(rotten)
}

/// The entry whose record holds this byte, if one does.
fn rotten_at(file: u64, header: &GroupHeader, body: &[u8], byte: usize) -> Vec<RottenEntry> {
    let records = Records::new(body).map_while(Result::ok);
    let mut holding =
        records.filter(|placed| (placed.at..placed.at + placed.bytes).contains(&byte));
    let rotten = holding.find_map(|placed| match placed.record {
        Record::Entry(found) => Some(RottenEntry {
            ledger: found.ledger,
            entry: found.entry,
            location: location_of(file, header, &placed),
        }),
        _ => None,
    });
    rotten.into_iter().collect()
}

/// Where a record of a group stands.
pub(super) fn location_of(file: u64, header: &GroupHeader, record: &PlacedRecord) -> Location {
    Location {
        file: file as u32,
        offset: (header.offset + (GROUP_HEADER_BYTES + record.at) as u64) as u32,
        bytes: record.bytes as u32,
    }
}
