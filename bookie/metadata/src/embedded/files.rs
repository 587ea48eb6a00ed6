//! The files beside the redb file: the lock and the reserve; and the making of a new one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::OpenError;

/// Longest text believed of a lock file's holder.
const HOLDER_BYTES_MAX: u64 = 256;
/// How long an opener waits for a store of its own process to close.
const OWN_WAIT: Duration = Duration::from_millis(500);
/// Between two looks.
const OWN_PAUSE: Duration = Duration::from_millis(2);

/// `path` with more at its end.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Held as long as the store lives; the kernel lets go when the process ends, however it ends.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of `path` or tells who has it.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        let lock_path = beside(path, ".lock");
        let fault = |source| OpenError::io(&lock_path, "open the lock file", source);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(fault)?;
        match lock(&mut file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked {
                    path: path.to_owned(),
                    holder: holder(&mut file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(fault(source)),
        }
        // Words for a person only: a full disk must not keep the store from opening.
        if let Err(error) = sign(&mut file) {
            tracing::warn!(path = %lock_path.display(), %error, "lock file does not name its holder");
        }
        Ok(Self { _file: file })
    }
}

/// Takes the lock; waits a little if this very process holds it, since a dropped store closes in the background.
fn lock(file: &mut File) -> Result<(), TryLockError> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock)
                if began.elapsed() < OWN_WAIT && holder(file) == signature() => {}
            other => return other,
        }
        std::thread::sleep(OWN_PAUSE);
    }
}

fn signature() -> String {
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| {
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        })
        .unwrap_or_else(|| "unknown program".to_owned());
    format!("process {} ({program})", std::process::id())
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(signature().as_bytes())
}

fn holder(file: &mut File) -> String {
    let mut text = Vec::new();
    let read = file
        .seek(SeekFrom::Start(0))
        .and_then(|_| file.take(HOLDER_BYTES_MAX).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    if read.is_err() || text.is_empty() {
        return "a process that did not leave its name".to_owned();
    }
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Room that is given up when the disk is full, so that a repair can be written.
pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
    made: bool,
}

impl Reserve {
    /// Makes it if the disk has room; without room the store works all the same.
    pub(super) fn new(path: &Path, bytes: u64) -> Self {
        let mut reserve = Self {
            path: beside(path, ".reserve"),
            bytes,
            made: false,
        };
        reserve.make();
        reserve
    }

    /// Makes it anew; cheap when it is there.
    pub(super) fn make(&mut self) {
        if self.made || self.bytes == 0 {
            return;
        }
        match allocate(&self.path, self.bytes) {
            Ok(()) => self.made = true,
            Err(error) => {
                tracing::debug!(path = %self.path.display(), %error, "no room for the reserve file");
                self.give_up();
            }
        }
    }

    /// Frees its room.
    pub(super) fn give_up(&mut self) {
        self.made = false;
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.path.display(), %error, "reserve file cannot be removed");
            }
            _ => {}
        }
    }
}

fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
    Ok(())
}

/// Makes a new file with `format` and gives it its name only once it is whole.
pub(super) fn make_new(
    path: &Path,
    format: impl FnOnce(&Path) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let new = beside(path, ".new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(OpenError::io(
                &new,
                "remove what an earlier start left",
                error,
            ));
        }
        _ => {}
    }
    File::create_new(&new).map_err(|error| OpenError::io(&new, "create", error))?;
    format(&new)?;
    File::open(&new)
        .and_then(|file| file.sync_all())
        .map_err(|error| OpenError::io(&new, "sync", error))?;
    std::fs::rename(&new, path).map_err(|error| OpenError::io(path, "rename", error))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)
        .and_then(|file| file.sync_all())
        .map_err(|error| OpenError::io(directory, "sync the directory", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_given_up_frees_its_room_and_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.redb");
        let file = beside(&path, ".reserve");
        let mut reserve = Reserve::new(&path, 1 << 20);
        let found = std::fs::metadata(&file).unwrap();
        let blocks = std::os::unix::fs::MetadataExt::blocks(&found);
        assert!(blocks * 512 >= 1 << 20, "its room is real: {blocks} blocks");
        reserve.give_up();
        assert!(!file.exists());
        reserve.make();
        assert!(file.exists());
    }
}
