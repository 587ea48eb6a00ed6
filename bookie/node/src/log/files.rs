//! The open log files, shared by the writer and the readers.
//!
//! A reader holds an [`Arc`] of the file it reads, so that removing a file never fails a read that found it. One that finds its
//! file gone looks its entry up anew, once (storage.md G11): whoever removes a file has moved its live entries before.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::disk::DiskFile;

/// Where the slot pages of a sealed file stand.
#[derive(Clone)]
pub struct SlotTable {
    /// The file itself, or its footer's own one.
    pub file: Arc<dyn DiskFile>,
    /// Where in it the first page begins.
    pub at: u64,
    /// How many pages.
    pub pages: u32,
    /// Salt of the sealed file.
    pub salt: u64,
}

/// An open file.
#[derive(Clone)]
pub struct OpenFile {
    /// Its bytes.
    pub file: Arc<dyn DiskFile>,
    /// Its slots, once it is sealed.
    pub slots: Option<SlotTable>,
}

/// Open files by number. Clones share them.
#[derive(Clone, Default)]
pub struct FileTable {
    files: Arc<RwLock<BTreeMap<u32, OpenFile>>>,
}

impl FileTable {
    /// The file, if it is there.
    pub fn get(&self, file: u32) -> Option<Arc<dyn DiskFile>> {
        self.read(|files| files.get(&file).map(|open| Arc::clone(&open.file)))
    }

    /// The slots of a file, if it is there and sealed.
    pub fn slots(&self, file: u32) -> Option<SlotTable> {
        self.read(|files| files.get(&file)?.slots.clone())
    }

    /// Numbers of all files.
    pub fn numbers(&self) -> Vec<u32> {
        self.read(|files| files.keys().copied().collect())
    }

    fn read<T>(&self, look: impl FnOnce(&BTreeMap<u32, OpenFile>) -> T) -> T {
        let files = self.files.read();
        look(&files.expect("no code panics while it holds the lock"))
    }

    /// Adds a file that is not sealed.
    pub fn insert(&self, file: u32, open: Arc<dyn DiskFile>) {
        let slots = None;
        self.write(|files| files.insert(file, OpenFile { file: open, slots }));
    }

    /// Adds a sealed file, or seals one.
    pub fn insert_sealed(&self, file: u32, open: Arc<dyn DiskFile>, slots: SlotTable) {
        let slots = Some(slots);
        self.write(|files| files.insert(file, OpenFile { file: open, slots }));
    }

    /// Takes a file away, and gives it, if it was there. Reads that hold it go on; its bytes are freed when the last one ends.
    pub fn remove(&self, file: u32) -> Option<Arc<dyn DiskFile>> {
        self.write(|files| files.remove(&file).map(|open| open.file))
    }

    fn write<T>(&self, change: impl FnOnce(&mut BTreeMap<u32, OpenFile>) -> T) -> T {
        let files = self.files.write();
        change(&mut files.expect("no code panics while it holds the lock"))
    }
}
