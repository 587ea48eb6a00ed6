//! The folder of the cache's disk: one for each version of what is in it, and only the newest stays.

use std::io;
use std::path::{Path, PathBuf};

/// Our format, and that of the library, whose files change between its versions (storage.md K5).
const VERSION: &str = "blocks-1-foyer-0.22.6";
const BEGIN: &str = "blocks-";

/// The folder of this version, made if need be; those of others are removed. What is not a cache's is left alone.
pub(super) fn prepare(directory: &Path) -> io::Result<PathBuf> {
    let folder = directory.join(VERSION);
    std::fs::create_dir_all(&folder)?;
    for found in std::fs::read_dir(directory)? {
        let found = found?;
        let name = found.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(BEGIN) && name != VERSION {
            std::fs::remove_dir_all(found.path())?;
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_of_another_version_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let old = directory.path().join("blocks-1-foyer-0.21.0");
        let foreign = directory.path().join("segments");
        for folder in [&old, &foreign] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("file"), b"bytes").unwrap();
        }
        let folder = prepare(directory.path()).unwrap();
        std::fs::write(folder.join("kept"), b"bytes").unwrap();
        assert_eq!(prepare(directory.path()).unwrap(), folder);
        assert!(folder.join("kept").exists() && foreign.join("file").exists());
        assert!(!old.exists());
    }
}
