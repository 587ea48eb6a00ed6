//! What keeps a server from starting or going on, in four parts.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use bookie_metadata::cell::CellError;
use bookie_metadata::{MetadataError, OpenError};
use bookie_node::StartError;

use crate::failure::{Code, Failure};

/// Splits "what is wrong; what to do".
fn with_advice(code: Code, what: &str, words: &dyn Display, advice: &str) -> Failure {
    let words = words.to_string();
    let (why, next) = words.rsplit_once("; ").unwrap_or((&words, advice));
    Failure::new(code, what).why(why).next(next)
}

/// A listening address.
pub(crate) fn address(key: &str, flag: &str, address: SocketAddr, error: &io::Error) -> Failure {
    let next = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "stop the process that listens there (another hulse?), or choose another one: {flag} {}:{}",
            address.ip(),
            address.port().saturating_add(100)
        ),
        _ => format!("choose an address of this machine: {flag} 127.0.0.1:PORT"),
    };
    Failure::new(Code::Address, format!("cannot listen on {address}"))
        .why(error)
        .object(key)
        .next(next)
}

/// The embedded metadata.
pub(crate) fn open(error: &OpenError, path: &Path) -> Failure {
    let code = match error {
        OpenError::Locked { .. } => Code::DataDirLocked,
        OpenError::ReadOnly { .. } => Code::DataDirReadOnly,
        OpenError::NotMetadata { .. } | OpenError::NewerFormat { .. } => Code::DataDirForeign,
        OpenError::Damaged { .. } | OpenError::Io { .. } => Code::Metadata,
    };
    let advice = "look at the disk and the system log";
    with_advice(code, "cannot open the metadata", error, advice).object(path.display())
}

/// The cell's record.
pub(crate) fn cell(error: &CellError, path: &Path) -> Failure {
    let code = match error {
        CellError::Disagrees { .. } | CellError::NewerFormat { .. } => Code::CellDisagrees,
        CellError::Quorums(_) => Code::Config,
        CellError::Metadata(_) => Code::Metadata,
    };
    let advice = "hulse config show --origin";
    with_advice(code, "this node does not fit its cell", error, advice).object(path.display())
}

/// The bookie's directory and its log.
pub(crate) fn bookie(error: &StartError, path: &Path) -> Failure {
    use StartError as E;
    let code = match error {
        E::Locked { .. } => Code::DataDirLocked,
        E::ReadOnlyDirectory { .. } => Code::DataDirReadOnly,
        E::NotFormatted
        | E::NotEmpty { .. }
        | E::IdentityMissing
        | E::Identity(_)
        | E::OtherCell { .. }
        | E::OtherName { .. }
        | E::DiskLost { .. }
        | E::NotRegistered { .. }
        | E::OtherIncarnation { .. }
        | E::MetadataOlder { .. }
        | E::Retired { .. } => Code::DataDirForeign,
        E::Registration { .. } | E::Metadata(_) => Code::Metadata,
        E::Disk(_) | E::Log(_) | E::Interrupted(_) => Code::StorageFailed,
    };
    let advice = "look at the disk and the system log, then start again";
    with_advice(code, "the bookie does not start", error, advice).object(path.display())
}

/// Metadata that do not answer at start.
pub(crate) fn metadata(error: &MetadataError, path: &Path) -> Failure {
    Failure::new(Code::Metadata, "the metadata store does not answer")
        .why(error)
        .object(path.display())
        .next("look at the disk and the system log, then start again")
}

/// Storage that failed while the server ran (storage.md E1).
pub(crate) fn storage(why: impl Display, path: &Path) -> Failure {
    Failure::new(Code::StorageFailed, "the bookie's log failed, so the server ends")
        .why(why)
        .object(path.display())
        .next("look at the disk and the system log, then start again: nothing that was acknowledged is given up")
}
