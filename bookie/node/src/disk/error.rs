//! Why a disk did not do what it was asked.

use std::io;

use rustix::io::Errno;

/// What kind of failure; decides what the node does (storage.md §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskErrorKind {
    /// No space is left, or a quota is reached.
    Full,
    /// The process or the system may open no further file.
    NoFile,
    /// The directory or the medium cannot be written.
    ReadOnly,
    /// Another process holds the lock.
    Locked,
    /// No such file.
    Missing,
    /// The file is there already.
    Exists,
    /// Anything else: the medium is not to be trusted.
    Io,
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} of {name}: {why}")]
pub struct DiskError {
    /// What kind.
    pub kind: DiskErrorKind,
    /// What was tried.
    pub operation: &'static str,
    /// On which file or directory.
    pub name: String,
    /// The operating system's words.
    pub why: String,
}

impl DiskError {
    /// From an I/O error.
    pub(crate) fn new(operation: &'static str, name: &str, error: &io::Error) -> Self {
        let errno = Errno::from_io_error(error);
        let kind = match error.kind() {
            _ if matches!(errno, Some(Errno::MFILE | Errno::NFILE)) => DiskErrorKind::NoFile,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskErrorKind::Full,
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                DiskErrorKind::ReadOnly
            }
            io::ErrorKind::NotFound => DiskErrorKind::Missing,
            io::ErrorKind::AlreadyExists => DiskErrorKind::Exists,
            io::ErrorKind::WouldBlock => DiskErrorKind::Locked,
            _ => DiskErrorKind::Io,
        };
        Self {
            kind,
            operation,
            name: name.to_owned(),
            why: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_without_a_file_descriptor_is_not_the_mediums() {
        for errno in [Errno::MFILE, Errno::NFILE] {
            let error = DiskError::new("create", "x", &io::Error::from(errno));
            assert_eq!(error.kind, DiskErrorKind::NoFile);
        }
        let error = DiskError::new("create", "x", &io::Error::from(Errno::IO));
        assert_eq!(error.kind, DiskErrorKind::Io);
    }
}
