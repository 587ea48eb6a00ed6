//! Finds, reads and writes the footer of a file on the disk.

use std::sync::Arc;

use super::files::SlotTable;
use super::format::footer::{
    Footer, FooterSlot, TRAILER_BYTES, Trailer, encode_pages, encode_tail,
};
use super::format::{BLOCK_BYTES, file_name, side_name};
use crate::disk::{Disk, DiskError, DiskErrorKind, DiskFile};

/// One write of a long footer.
const WRITE_BYTES: usize = 4 << 20;
const TMP_NAME: &str = "footer.tmp";

/// The footer of file `number`: in a file of its own, which is there only if what stands behind the body was damaged, or behind the
/// body. `None` when there is none that can be believed; also when the disk does not read it: then the body is tried.
pub fn read_footer(
    disk: &dyn Disk,
    number: u64,
    file: &Arc<dyn DiskFile>,
) -> Option<(Footer, SlotTable)> {
    let aside = disk.open(&side_name(number)).ok();
    let aside = aside.and_then(|aside| footer_of(number, &aside));
    aside.or_else(|| footer_of(number, file))
}

fn footer_of(number: u64, file: &Arc<dyn DiskFile>) -> Option<(Footer, SlotTable)> {
    try_footer(number, file).ok().flatten()
}

/// Reads a footer anew, from where its slots are.
///
/// # Errors
/// Of the disk; also when what was a footer is none any more.
pub fn read_again(number: u64, slots: &SlotTable) -> Result<Footer, DiskError> {
    let found = try_footer(number, &slots.file)?;
    found.map(|(footer, _)| footer).ok_or_else(|| DiskError {
        kind: DiskErrorKind::Io,
        operation: "read footer",
        name: file_name(number),
        why: "it was whole a moment ago".to_owned(),
    })
}

fn try_footer(
    number: u64,
    file: &Arc<dyn DiskFile>,
) -> Result<Option<(Footer, SlotTable)>, DiskError> {
    let file_bytes = file.bytes()?;
    let Some(at) = file_bytes.checked_sub(TRAILER_BYTES as u64) else {
        return Ok(None);
    };
    let trailer = Trailer::decode(&file.read_at(at, TRAILER_BYTES)?, file_bytes);
    let Some(trailer) = trailer.filter(|trailer| trailer.file == number) else {
        return Ok(None);
    };
    let Some(directory_at) = trailer.directory_at() else {
        return Ok(None);
    };
    let directory = file.read_at(directory_at, trailer.directory_bytes as usize)?;
    let footer = Footer::decode_directory(&directory, &trailer);
    Ok(footer.map(|footer| {
        let slots = SlotTable {
            file: Arc::clone(file),
            at: trailer.pages_at,
            pages: trailer.pages,
            salt: footer.header.salt,
        };
        (footer, slots)
    }))
}

/// Writes the slot pages of a file of this salt; not durable yet. What is to be read of them later.
///
/// # Errors
/// Of the disk.
pub fn write_pages(
    file: &Arc<dyn DiskFile>,
    at: u64,
    salt: u64,
    slots: &[FooterSlot],
) -> Result<SlotTable, DiskError> {
    let pages = encode_pages(salt, slots);
    write_all(file.as_ref(), at, &pages)?;
    Ok(SlotTable {
        file: Arc::clone(file),
        at,
        pages: (pages.len() / BLOCK_BYTES) as u32,
        salt,
    })
}

/// Writes the rest of the footer behind the pages, and cuts what the file has behind it; not durable yet. The length of the file.
///
/// # Errors
/// Of the disk.
pub fn write_tail(footer: &Footer, slots: &SlotTable) -> Result<u64, DiskError> {
    let at = slots.at + u64::from(slots.pages) * BLOCK_BYTES as u64;
    let tail = encode_tail(footer, slots.at);
    write_all(slots.file.as_ref(), at, &tail)?;
    let end = at + tail.len() as u64;
    // The trailer is found at the file's end.
    if slots.file.bytes()? != end {
        slots.file.truncate(end)?;
    }
    Ok(end)
}

/// Writes a footer into a file of its own; durable on return.
///
/// # Errors
/// Of the disk; `Full` leaves nothing behind.
pub fn write_side(
    disk: &dyn Disk,
    footer: &Footer,
    slots: &[FooterSlot],
) -> Result<SlotTable, DiskError> {
    disk.remove(TMP_NAME)?;
    let file = disk.create(TMP_NAME, 0)?;
    let written = write_pages(&file, 0, footer.header.salt, slots).and_then(|table| {
        write_tail(footer, &table)?;
        file.sync()?;
        disk.rename(TMP_NAME, &side_name(footer.header.file))?;
        disk.sync_dir()?;
        Ok(table)
    });
    if written.is_err() {
        let _ = disk.remove(TMP_NAME);
    }
    written
}

fn write_all(file: &dyn DiskFile, mut at: u64, bytes: &[u8]) -> Result<(), DiskError> {
    for chunk in bytes.chunks(WRITE_BYTES) {
        file.write_at(at, chunk)?;
        at += chunk.len() as u64;
    }
    Ok(())
}
