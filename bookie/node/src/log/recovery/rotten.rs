//! Groups that were durable and whose bytes are wrong now, but of which every record tells by its own checksums what it is and where:
//! then the payload of entries is all that rotted, and of nothing that stood there is unknown what it was. No ledger has to go into
//! limbo for it (storage.md S3); whoever reads those entries hears that they are damaged, as in a sealed file.

use bytes::Bytes;
use hulse_proto::entry::Entry;
use hulse_proto::id::{EntryId, LedgerId};

use crate::index::Location;
use crate::log::format::record::FRAME_BYTES;
use crate::log::format::{GROUP_HEADER_BYTES, GroupHeader};
use crate::log::record::{PlacedRecord, Record, Records};

/// An entry whose payload is not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RottenEntry {
    /// The ledger.
    pub ledger: LedgerId,
    /// The entry.
    pub entry: EntryId,
    /// Where it stands.
    pub location: Location,
}

/// The rotten entries of a group whose header is right and whose body is not; `None` when one of its records does not tell what it
/// was, or they are not as many as the header says.
pub(super) fn rotten_entries(
    file: u64,
    header: &GroupHeader,
    body: &[u8],
) -> Option<Vec<RottenEntry>> {
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

/// Where a record of a group stands.
pub(super) fn location_of(file: u64, header: &GroupHeader, record: &PlacedRecord) -> Location {
    Location {
        file: file as u32,
        offset: (header.offset + (GROUP_HEADER_BYTES + record.at) as u64) as u32,
        bytes: record.bytes as u32,
    }
}
