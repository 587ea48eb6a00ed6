//! The open log files, shared by the writer and the readers.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::disk::DiskFile;

/// Open files by number. Clones share them.
#[derive(Clone, Default)]
pub struct FileTable {
    files: Arc<RwLock<BTreeMap<u32, Arc<dyn DiskFile>>>>,
}

impl FileTable {
    /// The file, if it is there.
    pub fn get(&self, file: u32) -> Option<Arc<dyn DiskFile>> {
        let files = self
            .files
            .read()
            .expect("no code panics while it holds the lock");
        files.get(&file).cloned()
    }

    /// Adds a file.
    pub fn insert(&self, file: u32, open: Arc<dyn DiskFile>) {
        let mut files = self
            .files
            .write()
            .expect("no code panics while it holds the lock");
        files.insert(file, open);
    }
}
