//! The traits.

use std::sync::Arc;

use super::DiskError;

/// Keeps the directory locked while it lives.
pub trait DiskLock: Send + Sync {}

/// What the volume of a directory has, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// That this process may still take.
    pub free: u64,
    /// Altogether.
    pub total: u64,
}

/// A directory that belongs to one node.
pub trait Disk: Send + Sync + 'static {
    /// Takes the exclusive lock of the directory.
    ///
    /// # Errors
    /// [`super::DiskErrorKind::Locked`] when another process, or another handle of this one, has it.
    fn lock(&self) -> Result<Box<dyn DiskLock>, DiskError>;

    /// Names of all files, sorted.
    fn list(&self) -> Result<Vec<String>, DiskError>;

    /// Makes a new file of `bytes` preallocated bytes that read as zero.
    ///
    /// # Errors
    /// [`super::DiskErrorKind::Full`] when there is no room (nothing is left behind), [`super::DiskErrorKind::Exists`].
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Renames a file, over an existing one if need be.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file; open handles still read it. A missing one is fine.
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// Makes creates, renames and removes durable.
    fn sync_dir(&self) -> Result<(), DiskError>;

    /// What the volume has; others may take of it at any time.
    fn space(&self) -> Result<Space, DiskError>;
}

/// An open file.
pub trait DiskFile: Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Reads up to `len` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, DiskError>;

    /// Makes every byte written before durable, and the length if it changed.
    fn sync(&self) -> Result<(), DiskError>;

    /// Makes what is read the same as what is on the medium: written bytes are synced, and bytes that only a failed sync left in a
    /// cache are forgotten (storage.md 4.3).
    fn settle(&self) -> Result<(), DiskError>;

    /// Length, preallocated bytes included.
    fn bytes(&self) -> Result<u64, DiskError>;

    /// Cuts the file; durable after the next sync.
    fn truncate(&self, bytes: u64) -> Result<(), DiskError>;

    /// First offset at or after `offset` that may hold anything but zeros; `None` when there is none. A hint that saves reads.
    fn next_data(&self, offset: u64) -> Result<Option<u64>, DiskError>;
}
