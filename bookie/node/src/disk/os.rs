//! Files of the operating system.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags, SeekFrom, fallocate};
use rustix::io::Errno;

use super::{Disk, DiskError, DiskErrorKind, DiskFile, DiskLock, Space};

const LOCK_NAME: &str = "lock";

/// A directory of a real file system.
#[derive(Debug)]
pub struct OsDisk {
    path: PathBuf,
    /// Kept open: a process that is out of file handles must still be able to make names durable.
    directory: File,
}

impl OsDisk {
    /// Takes a directory, making it (and its parents) when it is not there.
    ///
    /// # Errors
    /// When it cannot be made or is not a directory.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let path = path.into();
        std::fs::create_dir_all(&path)
            .map_err(|error| DiskError::new("create directory", &path.to_string_lossy(), &error))?;
        let directory = File::open(&path)
            .map_err(|error| DiskError::new("open directory", &path.to_string_lossy(), &error))?;
        Ok(Self { path, directory })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, name: &str, file: File) -> Arc<dyn DiskFile> {
        Arc::new(OsFile {
            name: self.path.join(name).to_string_lossy().into_owned(),
            file,
        })
    }

    fn error(&self, operation: &'static str, name: &str, error: &io::Error) -> DiskError {
        DiskError::new(operation, &self.path.join(name).to_string_lossy(), error)
    }
}

struct OsLock(#[expect(dead_code, reason = "holds the lock until it is dropped")] File);

impl DiskLock for OsLock {}

impl Disk for OsDisk {
    fn lock(&self) -> Result<Box<dyn DiskLock>, DiskError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.path.join(LOCK_NAME))
            .map_err(|error| self.error("lock", LOCK_NAME, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(OsLock(file))),
            Err(TryLockError::WouldBlock) => Err(DiskError {
                kind: DiskErrorKind::Locked,
                operation: "lock",
                name: self.path.to_string_lossy().into_owned(),
                why: "another process holds it".to_owned(),
            }),
            Err(TryLockError::Error(error)) => Err(self.error("lock", LOCK_NAME, &error)),
        }
    }

    fn list(&self) -> Result<Vec<String>, DiskError> {
        let fail = |error: io::Error| self.error("list", "", &error);
        let mut names = Vec::new();
        for item in std::fs::read_dir(&self.path).map_err(fail)? {
            let item = item.map_err(fail)?;
            if item.file_type().map_err(fail)?.is_file() && item.file_name() != LOCK_NAME {
                names.push(item.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn DiskFile>, DiskError> {
        let file = OpenOptions::new()
            .create_new(true)
            .read(true)
            .write(true)
            .open(self.path.join(name))
            .map_err(|error| self.error("create", name, &error))?;
        if let Err(error) = preallocate(&file, bytes) {
            // What is left behind would only take the space that is missing.
            let _ = std::fs::remove_file(self.path.join(name));
            return Err(self.error("preallocate", name, &error));
        }
        Ok(self.file(name, file))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>, DiskError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path.join(name))
            .map_err(|error| self.error("open", name, &error))?;
        Ok(self.file(name, file))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        std::fs::rename(self.path.join(from), self.path.join(to))
            .map_err(|error| self.error("rename", from, &error))
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.error("remove", name, &error))
            }
            _ => Ok(()),
        }
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        self.directory
            .sync_all()
            .map_err(|error| self.error("sync directory", "", &error))
    }

    fn space(&self) -> Result<Space, DiskError> {
        let found = rustix::fs::statvfs(&self.path)
            .map_err(|error| self.error("statvfs", "", &error.into()))?;
        Ok(Space {
            free: found.f_bavail.saturating_mul(found.f_frsize),
            total: found.f_blocks.saturating_mul(found.f_frsize),
        })
    }
}

fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // A file system without it: the length at least is set, and a full disk shows itself at a write.
        Err(Errno::OPNOTSUPP) => file.set_len(bytes),
        other => other.map_err(io::Error::from),
    }
}

struct OsFile {
    name: String,
    file: File,
}

impl OsFile {
    fn error(&self, operation: &'static str, error: &io::Error) -> DiskError {
        DiskError::new(operation, &self.name, error)
    }
}

impl DiskFile for OsFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|error| self.error("write", &error))
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, DiskError> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            let read =
                match rustix::io::pread(&self.file, rustix::buffer::spare_capacity(&mut bytes), at)
                {
                    Err(Errno::INTR) => continue,
                    other => other.map_err(|error| self.error("read", &error.into()))?,
                };
            if read == 0 {
                break;
            }
        }
        // The allocator may have given more room than was asked for.
        bytes.truncate(len);
        Ok(bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.file
            .sync_data()
            .map_err(|error| self.error("sync", &error))
    }

    fn settle(&self) -> Result<(), DiskError> {
        self.sync()?;
        // Clean pages are dropped; those that a failed write-back marked clean go with them.
        rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)
            .map_err(|error| self.error("drop caches", &error.into()))
    }

    fn bytes(&self) -> Result<u64, DiskError> {
        let metadata = self.file.metadata();
        Ok(metadata.map_err(|error| self.error("stat", &error))?.len())
    }

    fn truncate(&self, bytes: u64) -> Result<(), DiskError> {
        self.file
            .set_len(bytes)
            .map_err(|error| self.error("truncate", &error))
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, DiskError> {
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            // A file system that cannot tell: everything may be data.
            Err(_) => Ok((offset < self.bytes()?).then_some(offset)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Out of file handles, a node must still make the removal of a file durable: it opens nothing for it.
    #[test]
    fn directory_is_synced_by_the_handle_that_is_open() {
        let place = tempfile::tempdir().unwrap();
        let disk = OsDisk::open(place.path().join("data")).unwrap();
        std::fs::rename(place.path().join("data"), place.path().join("moved")).unwrap();
        disk.sync_dir().unwrap();
    }
}
