//! The body of one file: groups, the records in them, the entries in those.

use std::collections::BTreeMap;
use std::sync::Arc;

use bookie_node::DiskError;
use bookie_node::disk::DiskFile;
use bookie_node::log::format::GroupHeader;
use bookie_node::log::record::{FRAME_BYTES, PlacedRecord, RecordError, Records};
use bookie_node::log::scan::FileScan;
use bookie_node::log::{BLOCK_BYTES, Record};
use bytes::Bytes;
use hulse_proto::entry::Entry;

/// What a body holds.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) groups: u64,
    pub(super) entries: u64,
    /// Behind the last group.
    pub(super) end: u64,
    pub(super) bytes: u64,
    /// Numbers of the first group and behind the last one.
    pub(super) sequences: Option<(u64, u64)>,
    /// What the records say of other files.
    pub(super) seals: BTreeMap<u64, u64>,
    pub(super) removed: Vec<(u64, u64)>,
    /// Offset and words of each damaged place.
    pub(super) damage: Vec<(u64, String)>,
    /// Where the groups end, if not at the limit; nothing valid stands behind.
    pub(super) stopped: Option<(u64, String)>,
}

/// Reads the groups of a file of this salt, up to `limit`.
///
/// # Errors
/// The disk does not read.
pub(super) fn read(file: &Arc<dyn DiskFile>, salt: u64, limit: u64) -> Result<Body, DiskError> {
    let mut scan = FileScan::new(Arc::clone(file), salt, limit);
    let mut body = Body::default();
    let mut at = BLOCK_BYTES as u64;
    while at < limit {
        let why = match scan.group_at(at)? {
            Ok((header, area)) => {
                body.group(&header, area);
                at += header.padded_bytes();
                body.end = at;
                continue;
            }
            Err(error) => error.to_string(),
        };
        let sequence = body.sequences.map_or(0, |(_, next)| next);
        match scan.next_group(at + BLOCK_BYTES as u64, sequence)? {
            Some(next) => {
                let words = format!("bytes {at} to {} cannot be read: {why}", next.offset);
                body.damage.push((at, words));
                at = next.offset;
            }
            None => {
                body.stopped = Some((at, why));
                break;
            }
        }
    }
    body.bytes = scan.read_bytes();
    Ok(body)
}

impl Body {
    fn group(&mut self, header: &GroupHeader, area: &[u8]) {
        self.groups += 1;
        let first = self.sequences.map_or(header.sequence, |(first, _)| first);
        self.sequences = Some((first, header.sequence + 1));
        let mut records = 0;
        for record in Records::new(area) {
            match record {
                Ok(placed) => {
                    records += 1;
                    self.record(header, &placed, area);
                }
                Err(error @ (RecordError::Unknown { .. } | RecordError::EntryVersion { .. })) => {
                    let words = format!("{error}; another version wrote it");
                    self.damage.push((header.offset, words));
                    return;
                }
                Err(error) => {
                    self.damage.push((header.offset, error.to_string()));
                    return;
                }
            }
        }
        // Optional records of a newer version are passed over, so there may be fewer.
        if records > header.records {
            let words = format!(
                "the group says {} records and holds {records}",
                header.records
            );
            self.damage.push((header.offset, words));
        }
    }

    fn record(&mut self, header: &GroupHeader, placed: &PlacedRecord, area: &[u8]) {
        match placed.record {
            Record::Entry(entry) => {
                let content = &area[placed.at + FRAME_BYTES..placed.at + placed.bytes];
                let checked =
                    Entry::decode(Bytes::copy_from_slice(content)).and_then(|entry| entry.verify());
                match checked {
                    Ok(()) => self.entries += 1,
                    Err(error) => {
                        let words = format!(
                            "entry {} of ledger {}: {error}",
                            entry.entry.0, entry.ledger.0
                        );
                        self.damage.push((header.offset, words));
                    }
                }
            }
            Record::SealMark { file, end } => {
                self.seals.insert(file, end);
            }
            Record::FilesRemoved { first, end } => self.removed.push((first, end)),
            _ => {}
        }
    }
}
