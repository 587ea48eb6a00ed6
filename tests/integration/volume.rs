//! A volume of a given size, mounted for one test where that is permitted.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::report::report;

/// How it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In memory: syncs cost nothing.
    Memory,
    /// An image of a file system: it allocates as disks do.
    Image,
}

/// Mounted until it is dropped.
pub(crate) struct Volume {
    folder: TempDir,
    bytes: u64,
}

impl Volume {
    /// `None`, and a word in the report, where mounting is not permitted.
    pub(crate) fn mount(kind: Kind, bytes: u64, what: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let volume = Self { folder, bytes };
        std::fs::create_dir(volume.mounted()).expect("a folder can be made in ours");
        match volume.make(kind) {
            Ok(()) => Some(volume),
            Err(why) => {
                report(&format!(
                    "NOT RUN: {what}: a volume of its own cannot be mounted here: {why}"
                ));
                None
            }
        }
    }

    fn make(&self, kind: Kind) -> Result<(), String> {
        let mounted = self.mounted();
        let size = self.bytes.to_string();
        match kind {
            Kind::Memory => {
                let options = format!("size={size}");
                told(
                    Command::new("mount")
                        .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
                        .arg(mounted),
                )
            }
            Kind::Image => {
                let image = self.folder.path().join("image");
                told(Command::new("truncate").args(["-s", &size]).arg(&image))?;
                told(
                    Command::new("mkfs.ext4")
                        .args(["-q", "-m", "0", "-O", "^has_journal"])
                        .arg(&image),
                )?;
                told(
                    Command::new("mount")
                        .args(["-o", "loop"])
                        .args([&image, &mounted]),
                )
            }
        }
    }

    fn mounted(&self) -> PathBuf {
        self.folder.path().join("volume")
    }

    /// A folder on it that is not there yet.
    pub(crate) fn data(&self) -> PathBuf {
        self.mounted().join("data")
    }

    /// Its size, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that anybody may still take.
    pub(crate) fn free(&self) -> u64 {
        let found = rustix::fs::statvfs(self.mounted()).expect("a mounted volume tells its space");
        found.f_bavail * found.f_frsize
    }

    /// A file of somebody else takes all that is free.
    pub(crate) fn fill(&self) -> Foreign {
        let path = self.mounted().join("foreign");
        let output = Command::new("dd")
            .args(["if=/dev/zero", "bs=64k", &format!("of={}", path.display())])
            .output()
            .expect("dd can be run");
        assert!(
            !output.status.success(),
            "the volume takes more than it has"
        );
        Foreign(path)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Lazily: a child of a test that panics may still be there.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.mounted())
            .output();
    }
}

/// Somebody else's file.
pub(crate) struct Foreign(PathBuf);

impl Foreign {
    /// Frees what it took.
    pub(crate) fn remove(self) {
        std::fs::remove_file(&self.0).expect("our own file can be removed");
    }
}

fn told(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(Output { status, .. }) if status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Bytes that the files of a folder take on the disk.
pub(crate) fn taken(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let items = std::fs::read_dir(folder).expect("the folder can be read");
    // A file may go while the folder is read.
    let found = items.filter_map(|item| item.ok()?.metadata().ok());
    found.map(|metadata| metadata.blocks() * 512).sum()
}
