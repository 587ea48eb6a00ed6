//! The kept inputs: `tests/fuzz/corpus/<decoder>/*`.
//!
//! `seed-*` are valid values, `foreign-*` are valid values that another library made, `failed-*` once broke a decoder.

use std::fs;
use std::path::{Path, PathBuf};

use hulse_proto::entry::crc32c;

/// One kept input.
pub struct Kept {
    /// The file.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl Kept {
    /// True when a decoder must accept it.
    pub fn is_valid(&self) -> bool {
        !self.name.starts_with("failed-")
    }
}

/// The folder in the source tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus")
}

/// Every kept input of a decoder, by name, so that a run depends on nothing but the files.
pub fn load(root: &Path, decoder: &str) -> Vec<Kept> {
    let folder = root.join(decoder);
    let files =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut kept: Vec<Kept> = files
        .map(|file| {
            let path = file.expect("the corpus is readable").path();
            let name = path
                .file_name()
                .expect("a listed file has a name")
                .to_string_lossy()
                .into_owned();
            Kept {
                name,
                bytes: fs::read(path).expect("the corpus is readable"),
            }
        })
        .collect();
    kept.sort_by(|a, b| a.name.cmp(&b.name));
    kept
}

/// Keeps an input that broke a decoder and names its file.
pub fn keep_failed(root: &Path, decoder: &str, bytes: &[u8]) -> PathBuf {
    keep(
        root,
        decoder,
        &format!("failed-{:08x}", crc32c(bytes)),
        bytes,
    )
}

/// Writes one input.
pub fn keep(root: &Path, decoder: &str, name: &str, bytes: &[u8]) -> PathBuf {
    let folder = root.join(decoder);
    fs::create_dir_all(&folder).expect("the corpus can be added to");
    let path = folder.join(name);
    fs::write(&path, bytes).expect("the corpus can be added to");
    path
}
