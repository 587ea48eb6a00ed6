//! Makes the slots of a sealed file again from its body, when a page of them turns out damaged (storage.md 4.4).

use std::sync::Arc;

use super::rotten::told_group;
use crate::disk::{Disk, DiskError, DiskFile};
use crate::log::files::SlotTable;
use crate::log::footer::{Footer, FooterSlot};
use crate::log::footer_builder::FooterBuilder;
use crate::log::footer_file::{read_footer, write_side};
use crate::log::format::BLOCK_BYTES;
use crate::log::scan::FileScan;

/// Reads the body and writes a footer of its own for it; durable on return. `None` when the body is damaged so that it does not tell
/// what it holds, or the disk does not read it: the slots would not be those that the index points to.
///
/// # Errors
/// The footer cannot be written. With a full disk it is worth another try.
pub fn slots_again(
    disk: &dyn Disk,
    number: u32,
    file: &Arc<dyn DiskFile>,
) -> Result<Option<SlotTable>, DiskError> {
    let Some((footer, slots)) = slots_of_body(disk, number, file) else {
        return Ok(None);
    };
    write_side(disk, &footer, &slots).map(Some)
}

fn slots_of_body(
    disk: &dyn Disk,
    number: u32,
    file: &Arc<dyn DiskFile>,
) -> Option<(Footer, Vec<FooterSlot>)> {
    let (footer, _) = read_footer(disk, u64::from(number), file)?;
    let mut scan = FileScan::new(Arc::clone(file), footer.header.salt, footer.end);
    let mut builder = FooterBuilder::default();
    let mut at = BLOCK_BYTES as u64;
    while at < footer.end {
        if scan.group_at(at).ok()?.is_err()
            && let Some(told) = told_group(u64::from(number), &mut scan, at).ok()?
        {
            builder.group_of(number, &told.header, &told.body)?;
            at += told.header.padded_bytes();
            continue;
        }
        let next = scan.next_group(at, 0).ok()??;
        let (header, area) = scan.group_at(next.offset).ok()?.ok()?;
        builder.group_of(number, &header, area)?;
        at = header.offset + header.padded_bytes();
    }
    let (made, slots) = builder.finish(footer.header.clone());
    (made.ledgers == footer.ledgers).then_some((footer, slots))
}
