//! Files of a directory, for reading only.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bookie_node::disk::DiskFile;
use bookie_node::{DiskError, DiskErrorKind};

use crate::failure::{Code, Failure};

/// What a node locks while it runs.
const LOCK: &str = "lock";

/// The directory of a node's log.
#[derive(Debug)]
pub(super) struct ReadOnlyDisk {
    path: PathBuf,
    /// Shared: several may look, no node may start.
    _lock: File,
}

impl ReadOnlyDisk {
    /// Holds the directory.
    ///
    /// # Errors
    /// A node holds it, or it cannot be read.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let lock = File::open(path.join(LOCK)).map_err(|error| cannot(path, &error))?;
        match lock.try_lock_shared() {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(Failure::new(
                Code::DataDirLocked,
                "a node runs on this directory",
            )
            .why("its log changes while it is read")
            .object(path.display())
            .next("stop the node first; hulse verify TOPIC looks at a running one")),
            Err(TryLockError::Error(error)) => Err(cannot(path, &error)),
        }
    }

    /// Names of all files, sorted.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn list(&self) -> Result<Vec<String>, Failure> {
        let items = std::fs::read_dir(&self.path).map_err(|error| cannot(&self.path, &error))?;
        let mut names = Vec::new();
        for item in items {
            let item = item.map_err(|error| cannot(&self.path, &error))?;
            names.push(item.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// It is not there or cannot be read.
    pub(super) fn file(&self, name: &str) -> Result<Arc<dyn DiskFile>, DiskError> {
        let path = self.path.join(name);
        match File::open(&path) {
            Ok(file) => Ok(Arc::new(ReadOnlyFile {
                name: path.display().to_string(),
                file,
            })),
            Err(error) => Err(failed("open", &path.display().to_string(), &error)),
        }
    }
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::File, "cannot read the directory")
        .why(error)
        .object(path.display())
        .next("look at its permissions, and at the disk")
}

struct ReadOnlyFile {
    name: String,
    file: File,
}

fn failed(operation: &'static str, name: &str, error: &io::Error) -> DiskError {
    DiskError {
        kind: match error.kind() {
            io::ErrorKind::NotFound => DiskErrorKind::Missing,
            _ => DiskErrorKind::Io,
        },
        operation,
        name: name.to_owned(),
        why: error.to_string(),
    }
}

impl ReadOnlyFile {
    fn refused(&self, operation: &'static str) -> DiskError {
        DiskError {
            kind: DiskErrorKind::ReadOnly,
            operation,
            name: self.name.clone(),
            why: "it is opened for reading only".to_owned(),
        }
    }
}

impl DiskFile for ReadOnlyFile {
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<(), DiskError> {
        Err(self.refused("write"))
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, DiskError> {
        let mut bytes = vec![0; len];
        let mut filled = 0;
        while filled < len {
            match self
                .file
                .read_at(&mut bytes[filled..], offset + filled as u64)
            {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read", &self.name, &error)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
        Err(self.refused("sync"))
    }

    fn settle(&self) -> Result<(), DiskError> {
        Err(self.refused("settle"))
    }

    fn bytes(&self) -> Result<u64, DiskError> {
        let metadata = self.file.metadata();
        Ok(metadata
            .map_err(|error| failed("stat", &self.name, &error))?
            .len())
    }

    fn truncate(&self, _bytes: u64) -> Result<(), DiskError> {
        Err(self.refused("truncate"))
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, DiskError> {
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(found) => Ok(Some(found)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            // A file system that cannot tell: everything may be data.
            Err(_) => Ok((offset < self.bytes()?).then_some(offset)),
        }
    }
}
