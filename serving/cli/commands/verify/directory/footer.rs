//! The footer of a sealed file: its own checksums, and that it says the same as the body.

use bookie_node::disk::DiskFile;
use bookie_node::log::BLOCK_BYTES;
use bookie_node::log::footer::{Footer, PAGE_SLOTS, TRAILER_BYTES, Trailer, decode_page};

/// A footer whose parts hold.
pub(super) struct Sealed {
    pub(super) footer: Footer,
}

/// Reads the footer of file `number` behind `file`'s body, or in `file` as a whole. `None`: there is none, which is no damage: a file
/// that is not sealed has none, and one that is can get it again.
///
/// # Errors
/// What of it is damaged. A trailer that does not hold is no footer.
pub(super) fn read(number: u64, file: &dyn DiskFile) -> Result<Option<Sealed>, String> {
    let words = |error: bookie_node::DiskError| error.to_string();
    let bytes = file.bytes().map_err(words)?;
    let Some(at) = bytes.checked_sub(TRAILER_BYTES as u64) else {
        return Ok(None);
    };
    let trailer = Trailer::decode(&file.read_at(at, TRAILER_BYTES).map_err(words)?, bytes);
    let Some(trailer) = trailer.filter(|trailer| trailer.file == number) else {
        return Ok(None);
    };
    let Some(directory_at) = trailer.directory_at() else {
        return Err("its directory lies nowhere".to_owned());
    };
    let directory = file
        .read_at(directory_at, trailer.directory_bytes as usize)
        .map_err(words)?;
    let footer = Footer::decode_directory(&directory, &trailer)
        .ok_or_else(|| "the directory's checksum or content is wrong".to_owned())?;
    let mut slots = 0;
    for page in 0..trailer.pages {
        let at = trailer.pages_at + u64::from(page) * BLOCK_BYTES as u64;
        let block = file.read_at(at, BLOCK_BYTES).map_err(words)?;
        let page_slots = decode_page(&block, footer.header.salt, page)
            .ok_or_else(|| format!("slot page {page}: its checksum or content is wrong"))?;
        slots += page_slots.iter().filter(|slot| slot.bytes > 0).count();
    }
    let entries = footer.entries();
    if slots as u64 != entries || u64::from(trailer.pages) != entries.div_ceil(PAGE_SLOTS as u64) {
        return Err(format!(
            "it has {slots} slots in {} pages for {entries} entries",
            trailer.pages
        ));
    }
    Ok(Some(Sealed { footer }))
}
