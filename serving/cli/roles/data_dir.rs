//! The data directory: may it be used, and what is where in it.
//!
//! ```text
//! DIR/metadata/store.redb   embedded metadata, locked while we run
//! DIR/bookie/               the bookie's log and identity, locked while we run
//! ```
//!
//! An empty directory is ours to format; one that holds both folders is ours; anything else is someone else's.

use std::io;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::failure::{Code, Failure};

/// Folder of the embedded metadata.
const METADATA: &str = "metadata";
/// File of the embedded metadata.
const STORE: &str = "store.redb";
/// What a formatted bookie's directory holds.
const IDENTITY: &str = "identity";
/// What a file system puts into its own root.
const IGNORED: [&str; 1] = ["lost+found"];
/// Most foreign names that a failure lists.
const NAMES_MAX: usize = 5;

/// The folders of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataDir {
    /// File of the embedded metadata.
    pub(crate) metadata: PathBuf,
    /// The bookie's directory.
    pub(crate) bookie: PathBuf,
}

fn cannot(doing: &str, path: &Path, error: &io::Error) -> Failure {
    let denied = matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    );
    let (code, next) = match denied {
        true => (
            Code::DataDirReadOnly,
            "make it writable for this user, or choose another one with --data DIR",
        ),
        false => (
            Code::File,
            "look at the disk, or choose another directory with --data DIR",
        ),
    };
    Failure::new(code, format!("cannot {doing} the data directory"))
        .why(error)
        .object(path.display())
        .next(next)
}

/// Makes the folders where they are missing.
///
/// # Errors
/// The directory holds something else, or cannot be written.
pub(crate) fn prepare(config: &Config) -> Result<DataDir, Failure> {
    let root = &config.node.data_dir;
    let bookie = root.join(&config.bookie.data_dir);
    let metadata = root.join(METADATA);
    std::fs::create_dir_all(root).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            foreign(root, "it is no directory")
        }
        _ => cannot("make", root, &error),
    })?;
    let names = names(root).map_err(|error| cannot("read", root, &error))?;
    let first = config.bookie.data_dir.components().next();
    let first = first
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .unwrap_or_default();
    let ours = |name: &String| name == METADATA || *name == first;
    let strange: Vec<&String> = names.iter().filter(|name| !ours(name)).collect();
    // A start that was cut short leaves one of the folders; then nothing else can be there either.
    let formatted = names.iter().filter(|name| ours(name)).count() == 2;
    if !formatted && !strange.is_empty() {
        let shown: Vec<&str> = strange
            .iter()
            .take(NAMES_MAX)
            .map(|name| name.as_str())
            .collect();
        let more = if strange.len() > NAMES_MAX {
            ", .."
        } else {
            ""
        };
        return Err(foreign(
            root,
            &format!("it holds {}{more}", shown.join(", ")),
        ));
    }
    let store = metadata.join(STORE);
    if bookie.join(IDENTITY).exists() && !store.exists() {
        // The store is made before the bookie is formatted, so this one was lost: a new one would know nothing of the records.
        return Err(Failure::new(
            Code::DataDirForeign,
            "the metadata of this data directory are missing",
        )
        .why("the bookie's disk is formatted, and the store that says what is on it is gone")
        .object(store.display())
        .next("bring the file back from where it was moved or saved to; a new server needs an empty directory"));
    }
    for folder in [&metadata, &bookie] {
        std::fs::create_dir_all(folder).map_err(|error| cannot("write to", folder, &error))?;
    }
    sync(root).map_err(|error| cannot("sync", root, &error))?;
    Ok(DataDir {
        metadata: store,
        bookie,
    })
}

fn foreign(root: &Path, why: &str) -> Failure {
    Failure::new(
        Code::DataDirForeign,
        "the data directory is not one of hulse",
    )
    .why(format!(
        "{why}, and neither `metadata` nor a bookie's folder as hulse makes them"
    ))
    .object(root.display())
    .next("choose an empty or new directory with --data DIR")
}

fn names(root: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !IGNORED.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Makes the new names durable.
fn sync(root: &Path) -> io::Result<()> {
    std::fs::File::open(root)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(root: &Path) -> Config {
        let mut config = Config::default();
        config.node.data_dir = root.to_owned();
        config
    }

    #[test]
    fn empty_or_missing_directory_is_made_ready_and_found_again() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["", "new/deeper"] {
            let root = directory.path().join(name);
            let first = prepare(&config(&root)).unwrap();
            assert!(first.bookie.is_dir() && first.metadata.parent().unwrap().is_dir());
            assert_eq!(prepare(&config(&root)).unwrap(), first);
        }
    }

    #[test]
    fn start_that_was_cut_short_is_taken_up() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(METADATA)).unwrap();
        prepare(&config(directory.path())).unwrap();
    }

    #[test]
    fn foreign_directory_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        for index in 0..7 {
            std::fs::write(directory.path().join(format!("photo-{index}")), "x").unwrap();
        }
        let failure = prepare(&config(directory.path())).unwrap_err();
        let told = failure.to_string();
        assert!(
            told.contains("HULSE-9104") && told.contains("photo-0"),
            "{told}"
        );
        assert!(
            told.contains("--data DIR") && told.contains(", .."),
            "{told}"
        );
        assert_eq!(failure.exit() as i32, 5);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 7);
    }

    #[test]
    fn file_in_place_of_the_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("file");
        std::fs::write(&root, "x").unwrap();
        let told = prepare(&config(&root)).unwrap_err().to_string();
        assert!(told.contains("no directory"), "{told}");
    }

    #[test]
    fn lost_metadata_are_refused_and_not_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let folders = prepare(&config(directory.path())).unwrap();
        std::fs::write(folders.bookie.join(IDENTITY), "x").unwrap();
        let told = prepare(&config(directory.path())).unwrap_err().to_string();
        assert!(
            told.contains("store.redb") && told.contains("missing"),
            "{told}"
        );
        std::fs::write(&folders.metadata, "x").unwrap();
        assert!(prepare(&config(directory.path())).is_ok());
    }
}
