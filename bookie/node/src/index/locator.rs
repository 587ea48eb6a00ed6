//! From held entries to their places: loads the slot pages that are missing. Called by the threads that read.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use hulse_proto::id::EntryId;

use super::entries::ColdRun;
use super::runs::{Location, Slot};
use super::slot_cache::SlotCache;
use super::wanted::{Located, Part, Wanted};
use crate::disk::Disk;
use crate::log::BLOCK_BYTES;
use crate::log::files::{FileTable, SlotTable};
use crate::log::footer::{FooterSlot, PAGE_SLOTS, decode_page};
use crate::log::recovery::slots_again;
use crate::log::writer::is_full;

/// Why a place or an entry could not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFault {
    /// The disk did not read.
    Disk(String),
    /// The bytes are not those of the entry, or of its slot.
    Damaged,
    /// The file was removed meanwhile: the entry is to be looked up anew, once (storage.md G11).
    Gone,
    /// Its slots are damaged, and the disk is too full to make them again from the body. Nothing is known to be lost.
    NoRoom,
}

impl ReadFault {
    /// True when the entry itself is at fault: it is to be marked (storage.md E2).
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Disk(_) | Self::Damaged)
    }
}

/// Finds places. Clones share files and pages.
#[derive(Clone)]
pub struct Locator {
    disk: Arc<dyn Disk>,
    files: FileTable,
    pages: Arc<SlotCache>,
    /// Files whose slots were made again, or could not be; once per start.
    mended: Arc<Mutex<BTreeSet<u32>>>,
}

impl Locator {
    /// Over these files of the disk, with a cache of at most so many bytes.
    pub fn new(disk: Arc<dyn Disk>, files: FileTable, cache_bytes: usize) -> Self {
        Self {
            disk,
            files,
            pages: Arc::new(SlotCache::new(cache_bytes)),
            mended: Arc::default(),
        }
    }

    /// The open files.
    pub fn files(&self) -> &FileTable {
        &self.files
    }

    /// The pages that are kept.
    pub fn pages(&self) -> &SlotCache {
        &self.pages
    }

    /// The places of the wanted entries, in order, until they reach the wanted bytes; at least one entry. Behind the first that
    /// cannot be had nothing is looked for, and its fault is returned beside the rest.
    pub fn locate(&self, wanted: &Wanted) -> (Vec<Located>, Option<(EntryId, ReadFault)>) {
        let mut taken = Taken::new(wanted);
        for part in &wanted.parts {
            let enough = match part {
                Part::Hot(slots) => taken.take(slots.iter().copied()),
                Part::Cold(run) => match self.locate_run(run, &mut taken) {
                    Ok(enough) => enough,
                    Err(fault) => return (taken.found, Some((EntryId(taken.next), fault))),
                },
            };
            if enough {
                break;
            }
        }
        (taken.found, None)
    }

    /// Page by page. True when it is enough.
    fn locate_run(&self, run: &ColdRun, taken: &mut Taken) -> Result<bool, ReadFault> {
        let end = run.slot as usize + run.entries as usize;
        let mut at = run.slot as usize;
        while at < end {
            let base = at / PAGE_SLOTS * PAGE_SLOTS;
            let stop = end.min(base + PAGE_SLOTS);
            let page = self.page(run.file, (at / PAGE_SLOTS) as u32)?;
            let slots = page[at - base..stop - base].iter();
            if taken.take(slots.map(|slot| slot_in(run.file, slot))) {
                return Ok(true);
            }
            at = stop;
        }
        Ok(false)
    }

    fn page(&self, file: u32, page: u32) -> Result<Arc<Vec<FooterSlot>>, ReadFault> {
        if let Some(found) = self.pages.get(file, page) {
            return Ok(found);
        }
        let table = self.files.slots(file).ok_or(ReadFault::Gone)?;
        let slots = match read_page(&table, page) {
            Err(fault) => read_page(&self.mend(file)?.ok_or(fault)?, page)?,
            Ok(slots) => slots,
        };
        let slots = Arc::new(slots);
        self.pages.insert(file, page, &slots);
        Ok(slots)
    }

    /// Makes the slots of a file again from its body; who comes meanwhile waits. `None`: it cannot be done. A full disk is tried again
    /// with the next read.
    fn mend(&self, file: u32) -> Result<Option<SlotTable>, ReadFault> {
        let mut mended = self.mended.lock().expect("nothing panics under this lock");
        if !mended.contains(&file) {
            let open = self.files.get(file).ok_or(ReadFault::Gone)?;
            match slots_again(self.disk.as_ref(), file, &open) {
                Err(error) if is_full(&error) => {
                    tracing::warn!(file, %error, "slots of a log file are damaged, and the disk is too full to make them again");
                    return Err(ReadFault::NoRoom);
                }
                Ok(Some(slots)) => {
                    tracing::warn!(
                        file,
                        "slots of a log file were damaged; they are made again from its body"
                    );
                    self.files.insert_sealed(file, open, slots);
                }
                other => {
                    let error = other.err();
                    tracing::error!(
                        file,
                        ?error,
                        "slots of a log file are damaged, and cannot be made again from its body"
                    );
                }
            }
            mended.insert(file);
        }
        Ok(self.files.slots(file))
    }
}

fn read_page(table: &SlotTable, page: u32) -> Result<Vec<FooterSlot>, ReadFault> {
    let at = table.at + u64::from(page) * BLOCK_BYTES as u64;
    let bytes = table.file.read_at(at, BLOCK_BYTES);
    let bytes = bytes.map_err(|error| ReadFault::Disk(error.to_string()))?;
    decode_page(&bytes, table.salt, page).ok_or(ReadFault::Damaged)
}

fn slot_in(file: u32, slot: &FooterSlot) -> Slot {
    Slot {
        location: Location {
            file,
            offset: slot.offset,
            bytes: slot.bytes,
        },
        digest: slot.digest,
    }
}

/// Entries that are located, and how many bytes more are wanted.
struct Taken {
    found: Vec<Located>,
    next: u64,
    left: u64,
    head_bytes: Option<u32>,
}

impl Taken {
    fn new(wanted: &Wanted) -> Self {
        Self {
            found: Vec::new(),
            next: wanted.first.0,
            left: wanted.bytes,
            head_bytes: wanted.head_bytes,
        }
    }

    /// Takes slots until they are enough; true when they are.
    fn take(&mut self, slots: impl Iterator<Item = Slot>) -> bool {
        for slot in slots {
            let all = slot.location.bytes;
            let bytes = u64::from(self.head_bytes.unwrap_or(all).min(all));
            if bytes > self.left && !self.found.is_empty() {
                return true;
            }
            self.left = self.left.saturating_sub(bytes);
            self.found.push(Located {
                entry: EntryId(self.next),
                slot,
            });
            self.next += 1;
        }
        false
    }
}
