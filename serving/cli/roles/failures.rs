//! What keeps a server from starting or going on, in four parts.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use bookie_metadata::cell::CellError;
use bookie_metadata::{MetadataError, OpenError};
use bookie_node::StartError;

use super::ports::Taken;
use super::presence::PresenceError;
use crate::failure::{Code, Failure};

/// Splits "what is wrong; what to do".
fn with_advice(code: Code, what: &str, words: &dyn Display, advice: &str) -> Failure {
    let words = words.to_string();
    let (why, next) = words.rsplit_once("; ").unwrap_or((&words, advice));
    Failure::new(code, what).why(why).next(next)
}

/// Listening addresses that are not ours; at least one.
pub(super) fn addresses(all: &[Taken]) -> Failure {
    let at: Vec<String> = all.iter().map(|one| one.at.to_string()).collect();
    let why: Vec<String> = match all {
        [one] => vec![one.why.to_string()],
        all => {
            let each = all.iter().map(|one| format!("{}: {}", one.at, one.why));
            each.collect()
        }
    };
    let keys: Vec<&str> = all.iter().map(|one| one.key).collect();
    let in_use = all
        .iter()
        .all(|one| one.why.kind() == io::ErrorKind::AddrInUse);
    // The parts of one process move together: the first of a flag stands for all.
    let first = |(index, one): &(usize, &Taken)| {
        let before = all[..*index].iter();
        before.into_iter().all(|other| other.flag != one.flag)
    };
    let others: Vec<String> = all
        .iter()
        .enumerate()
        .filter(first)
        .map(|(_, one)| match in_use {
            true => {
                let (ip, port) = (one.at.ip(), one.at.port().saturating_add(100));
                format!("{} {}", one.flag, SocketAddr::new(ip, port))
            }
            false => format!("{} 127.0.0.1:PORT", one.flag),
        })
        .collect();
    let others = others.join(" ");
    let next = match (in_use, all.len()) {
        (true, 1) => format!(
            "stop the process that listens there (another hulse?), or choose another one: {others}"
        ),
        (true, _) => format!(
            "stop the process that listens there (another hulse?), or start beside it: {others} --data ANOTHER_DIR"
        ),
        (false, _) => format!("choose addresses of this machine: {others}"),
    };
    Failure::new(Code::Address, format!("cannot listen on {}", at.join(", ")))
        .why(why.join("\n"))
        .object(keys.join(", "))
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

/// The cell's record, in the store at `at`.
pub(crate) fn cell(error: &CellError, at: &dyn Display) -> Failure {
    let code = match error {
        CellError::Disagrees { .. } | CellError::NewerFormat { .. } => Code::CellDisagrees,
        CellError::Quorums(_) => Code::Config,
        CellError::Metadata(_) => Code::Metadata,
    };
    let advice = "hulse config show --origin";
    with_advice(code, "this node does not fit its cell", error, advice).object(at)
}

/// The bookie's directory and its log.
pub(crate) fn bookie(error: &StartError, path: &Path) -> Failure {
    use StartError as E;
    let code = match error {
        E::Locked { .. } | E::Runs { .. } => Code::DataDirLocked,
        E::ReadOnlyDirectory { .. } => Code::DataDirReadOnly,
        E::NotFormatted
        | E::NotEmpty { .. }
        | E::IdentityMissing
        | E::Identity(_)
        | E::OtherCell { .. }
        | E::OtherName { .. }
        | E::DiskLost { .. }
        | E::NotRegistered { .. }
        | E::NeverRegistered { .. }
        | E::OtherIncarnation { .. }
        | E::MetadataOlder { .. }
        | E::Retired { .. } => Code::DataDirForeign,
        E::Registration { .. } | E::Metadata(_) => Code::Metadata,
        E::Disk(_) | E::Log(_) | E::Interrupted(_) => Code::StorageFailed,
    };
    let advice = "look at the disk and the system log, then start again";
    with_advice(code, "the bookie does not start", error, advice).object(path.display())
}

/// Metadata that do not answer at start, in the store at `at`.
pub(super) fn metadata(error: &MetadataError, at: &dyn Display) -> Failure {
    Failure::new(Code::Metadata, "the metadata store does not answer")
        .why(error)
        .object(at)
        .next("look at the store, its disk and its log, then start again")
}

/// The node's name in metadata: not had, or not kept.
pub(super) fn presence(error: &PresenceError, at: &dyn Display) -> Failure {
    match error {
        PresenceError::Metadata(error) => metadata(error, at),
        PresenceError::OtherCell(_) => {
            Failure::new(Code::Metadata, "the metadata store has not this cell's metadata any more")
                .why(error)
                .object(at)
                .next("put the right store back at this address, or name it in the configuration; nothing was written to this one")
        }
        PresenceError::Taken { .. } => {
            Failure::new(Code::DataDirLocked, "another node has this name")
                .why(error)
                .object("node.name")
                .next("stop the other process, or choose another name with --name; a copy of a bookie's disk must not serve beside it")
        }
    }
}

/// Storage that failed while the server ran (storage.md E1).
pub(crate) fn storage(why: impl Display, path: &Path) -> Failure {
    Failure::new(Code::StorageFailed, "the bookie's log failed, so the server ends")
        .why(why)
        .object(path.display())
        .next("look at the disk and the system log, then start again: nothing that was acknowledged is given up")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(flag: &'static str, port: u16, kind: io::ErrorKind) -> Taken {
        Taken {
            key: "listen.x",
            flag,
            at: SocketAddr::from(([127, 0, 0, 1], port)),
            why: kind.into(),
        }
    }

    #[test]
    fn addresses_that_are_taken_are_told_together_with_others_to_take() {
        let used = io::ErrorKind::AddrInUse;
        let told = addresses(&[taken("--grpc", 7400, used), taken("--http", 7480, used)]);
        let told = told.to_string();
        for words in [
            "cannot listen on 127.0.0.1:7400, 127.0.0.1:7480",
            "--grpc 127.0.0.1:7500 --http 127.0.0.1:7580 --data",
        ] {
            assert!(told.contains(words), "{told}");
        }
        let told = addresses(&[taken("--grpc", 7400, used)]).to_string();
        assert!(
            told.contains("choose another one: --grpc 127.0.0.1:7500"),
            "{told}"
        );
        let not_ours = io::ErrorKind::AddrNotAvailable;
        let told = addresses(&[taken("--grpc", 7400, not_ours)]).to_string();
        assert!(told.contains("--grpc 127.0.0.1:PORT"), "{told}");
    }
}
