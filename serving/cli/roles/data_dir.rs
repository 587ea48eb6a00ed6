//! The data directory: may it be used, and what is where in it.
//!
//! ```text
//! DIR/metadata/store.redb   embedded metadata, locked while we run
//! DIR/bookie/               the bookie's log and identity, locked while we run
//! DIR/bookie-1/ ..          in place of it where there are several bookies
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

/// Most bookies of one process; those of a directory are counted up to here.
pub(crate) const BOOKIES_MAX: u32 = 16;

/// The folders of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataDir {
    /// File of the embedded metadata.
    pub(crate) metadata: PathBuf,
    /// The bookies' directories, of the first one first.
    pub(crate) bookies: Vec<PathBuf>,
}

impl DataDir {
    /// The directory of the one bookie that a folded server has.
    pub(crate) fn bookie(&self) -> &Path {
        &self.bookies[0]
    }
}

/// Where bookie `number` (from 1) of so many keeps its log, below the data directory.
pub(crate) fn bookie_dir(config: &Config, number: u32, of: u32) -> PathBuf {
    let only = &config.bookie.data_dir;
    match of {
        1 => only.clone(),
        _ => PathBuf::from(format!("{}-{number}", only.display())),
    }
}

/// How many bookies the directory holds; `None`: none yet.
pub(crate) fn held(config: &Config) -> Option<u32> {
    let root = &config.node.data_dir;
    let holds = |number, of| {
        let bookie = root.join(bookie_dir(config, number, of));
        bookie.join(IDENTITY).exists()
    };
    let several = (1..=BOOKIES_MAX).rev().find(|number| holds(*number, 2));
    several.or_else(|| holds(1, 1).then_some(1))
}

/// How many bookies a server of this directory has: as many as were asked for, or as the directory holds, or one.
///
/// # Errors
/// The directory holds more, or one where several are asked for: the copies of what is stored are with those that it holds.
pub(crate) fn bookies(config: &Config, asked: Option<u32>) -> Result<u32, Failure> {
    match (held(config), asked) {
        (Some(held), Some(asked)) if asked < held || (held == 1 && asked > 1) => {
            let noun = match held {
                1 => "bookie",
                _ => "bookies",
            };
            Err(Failure::new(
                Code::CellDisagrees,
                format!("the data directory holds {held} {noun}, not {asked}"),
            )
            .why("how many copies of a record there are is decided when a directory is made, and what is stored is with the bookies it has")
            .object(config.node.data_dir.display())
            .next(format!(
                "leave --bookies out, which starts those {held}; or make another server with --data ANOTHER_DIR and bring topics over with: hulse topics copy"
            )))
        }
        (held, asked) => Ok(asked.or(held).unwrap_or(1)),
    }
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
pub(crate) fn prepare(config: &Config, bookies: u32) -> Result<DataDir, Failure> {
    let root = &config.node.data_dir;
    let folders = (1..=bookies).map(|number| root.join(bookie_dir(config, number, bookies)));
    let folders: Vec<PathBuf> = folders.collect();
    let metadata = root.join(METADATA);
    std::fs::create_dir_all(root).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            foreign(root, "it is no directory")
        }
        _ => cannot("make", root, &error),
    })?;
    let names = names(root).map_err(|error| cannot("read", root, &error))?;
    let first = |path: PathBuf| {
        let part = path.components().next()?;
        Some(part.as_os_str().to_string_lossy().into_owned())
    };
    let firsts = (1..=bookies).filter_map(|number| first(bookie_dir(config, number, bookies)));
    let firsts: Vec<String> = firsts.collect();
    let ours = |name: &String| name == METADATA || firsts.contains(name);
    let strange: Vec<&String> = names.iter().filter(|name| !ours(name)).collect();
    // A start that was cut short leaves some of the folders; then nothing else can be there either.
    let formatted =
        names.iter().any(|name| name == METADATA) && names.iter().any(|name| firsts.contains(name));
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
    if held(config).is_some() && !store.exists() {
        // The store is made before the bookie is formatted, so this one was lost: a new one would know nothing of the records.
        return Err(Failure::new(
            Code::DataDirForeign,
            "the metadata of this data directory are missing",
        )
        .why("the bookie's disk is formatted, and the store that says what is on it is gone")
        .object(store.display())
        .next("bring the file back from where it was moved or saved to; a new server needs an empty directory"));
    }
    for folder in folders.iter().chain([&metadata]) {
        std::fs::create_dir_all(folder).map_err(|error| cannot("write to", folder, &error))?;
    }
    sync(root).map_err(|error| cannot("sync", root, &error))?;
    Ok(DataDir {
        metadata: store,
        bookies: folders,
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
            let first = prepare(&config(&root), 1).unwrap();
            assert!(first.bookie().is_dir() && first.metadata.parent().unwrap().is_dir());
            assert_eq!(prepare(&config(&root), 1).unwrap(), first);
        }
    }

    #[test]
    fn start_that_was_cut_short_is_taken_up() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(METADATA)).unwrap();
        prepare(&config(directory.path()), 1).unwrap();
    }

    #[test]
    fn foreign_directory_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        for index in 0..7 {
            std::fs::write(directory.path().join(format!("photo-{index}")), "x").unwrap();
        }
        let failure = prepare(&config(directory.path()), 1).unwrap_err();
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
        let told = prepare(&config(&root), 1).unwrap_err().to_string();
        assert!(told.contains("no directory"), "{told}");
    }

    #[test]
    fn lost_metadata_are_refused_and_not_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let folders = prepare(&config(directory.path()), 1).unwrap();
        std::fs::write(folders.bookie().join(IDENTITY), "x").unwrap();
        let told = prepare(&config(directory.path()), 1)
            .unwrap_err()
            .to_string();
        assert!(
            told.contains("store.redb") && told.contains("missing"),
            "{told}"
        );
        std::fs::write(&folders.metadata, "x").unwrap();
        assert!(prepare(&config(directory.path()), 1).is_ok());
    }

    #[test]
    fn directory_keeps_the_number_of_its_bookies() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        assert_eq!(bookies(&config, None).unwrap(), 1);
        assert_eq!(bookies(&config, Some(3)).unwrap(), 3);
        let folders = prepare(&config, 3).unwrap();
        assert_eq!(folders.bookies.len(), 3);
        assert_eq!(prepare(&config, 3).unwrap(), folders);
        std::fs::write(&folders.metadata, "x").unwrap();
        for bookie in &folders.bookies {
            std::fs::write(bookie.join(IDENTITY), "x").unwrap();
        }
        assert_eq!(bookies(&config, None).unwrap(), 3);
        assert_eq!(bookies(&config, Some(4)).unwrap(), 4);
        for fewer in [1, 2] {
            let told = bookies(&config, Some(fewer)).unwrap_err().to_string();
            assert!(told.contains("holds 3 bookies"), "{told}");
        }
    }

    #[test]
    fn directory_of_one_bookie_does_not_become_one_of_several() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let folders = prepare(&config, 1).unwrap();
        std::fs::write(folders.bookie().join(IDENTITY), "x").unwrap();
        assert_eq!(bookies(&config, None).unwrap(), 1);
        let told = bookies(&config, Some(3)).unwrap_err().to_string();
        assert!(told.contains("holds 1 bookie, not 3"), "{told}");
        assert!(told.contains("topics copy"), "{told}");
    }
}
