//! Reads the state snapshot at the head of a sealed file.

use std::sync::Arc;

use super::error::LogError;
use crate::disk::DiskFile;
use crate::log::footer::Footer;
use crate::log::format::BLOCK_BYTES;
use crate::log::record::{Record, Records};
use crate::log::scan::FileScan;

/// The records of the groups that hold the snapshot; `None` when any of them is damaged, or there is no snapshot.
///
/// # Errors
/// Of the disk.
pub fn read_head(
    file: &Arc<dyn DiskFile>,
    footer: &Footer,
) -> Result<Option<Vec<Record>>, LogError> {
    let mut scan = FileScan::new(Arc::clone(file), footer.header.salt, footer.snapshot_end);
    let mut at = BLOCK_BYTES as u64;
    let mut sequence = footer.first_sequence;
    let (mut records, mut rows) = (Vec::new(), 0);
    let mut complete = false;
    while at < footer.snapshot_end {
        let Ok((header, area)) = scan.group_at(at)? else {
            return Ok(None);
        };
        if header.sequence != sequence {
            return Ok(None);
        }
        for placed in Records::new(area) {
            let Ok(placed) = placed else {
                return Ok(None);
            };
            match placed.record {
                Record::Ledger(_) => rows += 1,
                Record::SnapshotEnd { ledgers } => complete |= ledgers == rows,
                _ => {}
            }
            records.push(placed.record);
        }
        at += header.padded_bytes();
        sequence += 1;
    }
    Ok(complete.then_some(records))
}
