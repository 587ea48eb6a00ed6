//! Why a node does not start. Each says what, why and what to do.

use bookie_metadata::MetadataError;
use hulse_proto::id::{CellId, Incarnation, LedgerId, NodeName};

use crate::disk::DiskError;
use crate::identity::IdentityError;
use crate::log::recovery::LogError;

/// Why a node does not start. Nothing was changed unless the variant says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Another process has the directory.
    #[error("directory {path} is locked by another process; stop it, or choose another directory")]
    Locked {
        /// The directory.
        path: String,
    },
    /// The directory cannot be written.
    #[error("directory is read-only: {source}; make it writable for this user")]
    ReadOnlyDirectory {
        /// What was tried.
        source: DiskError,
    },
    /// Never formatted.
    #[error("directory is empty; format it first")]
    NotFormatted,
    /// Something else lies in it.
    #[error("directory is not a bookie's: it holds {name:?}; choose an empty one")]
    NotEmpty {
        /// What.
        name: String,
    },
    /// Log files without an identity.
    #[error(
        "directory has log files but no identity file; restore the file, or move the directory away and format an empty one"
    )]
    IdentityMissing,
    /// The identity cannot be read.
    #[error("identity cannot be read: {0}")]
    Identity(#[from] IdentityError),
    /// Of another cluster.
    #[error(
        "directory belongs to cell {found}, this node serves cell {asked}; check the directory and the metadata store"
    )]
    OtherCell {
        /// The directory's.
        found: CellId,
        /// Configured.
        asked: CellId,
    },
    /// Of another node.
    #[error(
        "directory belongs to bookie {found}, this node is named {asked}; check the directory and the name"
    )]
    OtherName {
        /// The directory's.
        found: NodeName,
        /// Configured.
        asked: NodeName,
    },
    /// The disk is empty, but metadata knows a disk of this name.
    #[error(
        "bookie {name} is registered with incarnation {incarnation}, but the directory is empty: the disk is lost or not mounted; mount it, or give the bookie a new one with `hulse bookie replace`"
    )]
    DiskLost {
        /// The bookie.
        name: NodeName,
        /// What metadata knows.
        incarnation: Incarnation,
    },
    /// The disk is formatted, but metadata does not know it.
    #[error(
        "bookie {name} is formatted but metadata does not know it; check that the metadata store is the right one"
    )]
    NotRegistered {
        /// The bookie.
        name: NodeName,
    },
    /// There is no disk to be replaced.
    #[error(
        "no bookie {name} was ever registered, so there is none to replace; format the directory"
    )]
    NeverRegistered {
        /// The bookie.
        name: NodeName,
    },
    /// A process runs under the name: its disk is not gone.
    #[error(
        "bookie {name} runs at {endpoint}, or did until some seconds ago; only a bookie that does not run can be given a new disk"
    )]
    Runs {
        /// The bookie.
        name: NodeName,
        /// Where.
        endpoint: String,
    },
    /// Metadata knows another disk under this name.
    #[error(
        "bookie {name} is registered with incarnation {registered}, the directory has {found}; a swapped, copied or older disk must not serve"
    )]
    OtherIncarnation {
        /// The bookie.
        name: NodeName,
        /// Metadata's.
        registered: Incarnation,
        /// The directory's.
        found: Incarnation,
    },
    /// Retired or declared lost; never returns (C3).
    #[error(
        "bookie {name} is retired or lost in metadata, and its disk never serves again; give it a new one with `hulse bookie replace`"
    )]
    Retired {
        /// The bookie.
        name: NodeName,
    },
    /// The registration cannot be read.
    #[error("registration of bookie {name} in metadata cannot be read")]
    Registration {
        /// The bookie.
        name: NodeName,
    },
    /// Metadata were put back to an older copy: they would give numbers a second time.
    #[error(
        "metadata are older than this disk: they never gave number {ledger} to a ledger, and the disk holds it; put metadata back that are as new as the disk, or a copy of the disk as old as the metadata"
    )]
    MetadataOlder {
        /// The newest one that is held.
        ledger: LedgerId,
    },
    /// Metadata did not do it.
    #[error("metadata: {0}")]
    Metadata(#[from] MetadataError),
    /// The disk failed.
    #[error(transparent)]
    Disk(DiskError),
    /// The log cannot be opened.
    #[error(transparent)]
    Log(LogError),
    /// The start was cut off.
    #[error("start was interrupted: {0}")]
    Interrupted(String),
}

impl From<DiskError> for StartError {
    fn from(source: DiskError) -> Self {
        use crate::disk::DiskErrorKind;
        match source.kind {
            DiskErrorKind::Locked => Self::Locked { path: source.name },
            DiskErrorKind::ReadOnly => Self::ReadOnlyDirectory { source },
            _ => Self::Disk(source),
        }
    }
}

impl From<LogError> for StartError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Disk(error) => error.into(),
            other => Self::Log(other),
        }
    }
}
