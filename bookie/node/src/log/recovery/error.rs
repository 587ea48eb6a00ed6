//! Why the log cannot be opened or written.

use crate::disk::DiskError;
use crate::log::format::FileHeaderError;
use crate::log::record::RecordError;

/// Why the log cannot be opened or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file of another cell, incarnation or disk lies in the directory.
    #[error(
        "log file {name} belongs to another disk (cell {cell}); remove what does not belong here"
    )]
    Foreign {
        /// The file.
        name: String,
        /// Its cell.
        cell: hulse_proto::id::CellId,
    },
    /// A file of a newer version.
    #[error("log file {name}: {source}; start the version that wrote it")]
    Version {
        /// The file.
        name: String,
        /// What is newer.
        source: FileHeaderError,
    },
    /// A record of a newer version.
    #[error("log file {name} at {offset}: {source}; start the version that wrote it")]
    Record {
        /// The file.
        name: String,
        /// Of the group.
        offset: u64,
        /// What is newer.
        source: RecordError,
    },
    /// More files than numbers.
    #[error("log file numbers are used up at {0}")]
    Numbers(u64),
}
