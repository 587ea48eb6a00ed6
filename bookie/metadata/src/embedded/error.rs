//! Why a store could not be opened, and what a person does about it.

use std::io;
use std::path::{Path, PathBuf};

use hulse_proto::error::ErrorKind;

/// Why [`crate::EmbeddedStore::open`] refused. No fact in the store was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "metadata file {path} is held by {holder}; one process may open it at a time: stop the other one or choose another data directory"
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// What the holder wrote of itself.
        holder: String,
    },
    /// The directory or a file cannot be written.
    #[error(
        "metadata file {path} cannot be written ({source}); make the directory and its files writable for this user, and the file system writable"
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
    /// The file is something else.
    #[error(
        "{path} is not a metadata file of hulse ({why}); point the data directory elsewhere, or move the file away if it is not needed"
    )]
    NotMetadata {
        /// The file.
        path: PathBuf,
        /// What gives it away.
        why: String,
    },
    /// A newer release wrote it.
    #[error(
        "metadata file {path} has format {found}, this release knows up to {known}; start a release that is at least as new as the one that wrote it"
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// Ours.
        known: u64,
    },
    /// It was ours and cannot be read.
    #[error(
        "metadata file {path} is damaged ({why}); keep a copy and restore the latest backup of the metadata"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The operating system failed.
    #[error(
        "metadata file {path}: {doing}: {source}; look at the disk and the system log, then start again"
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The operating system's word.
        source: io::Error,
    },
}

impl OpenError {
    /// What the caller should do, in the words all layers share.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Locked { .. } => ErrorKind::Exists,
            Self::ReadOnly { .. } => ErrorKind::Denied,
            Self::NotMetadata { .. } | Self::NewerFormat { .. } => ErrorKind::Conflict,
            Self::Damaged { .. } => ErrorKind::Corrupt,
            Self::Io { .. } => ErrorKind::Unavailable,
        }
    }

    /// Tells a missing permission from other failures.
    pub(super) fn io(path: &Path, doing: &'static str, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path, source }
            }
            _ => Self::Io {
                path,
                doing,
                source,
            },
        }
    }
}
