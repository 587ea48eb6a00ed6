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
    /// The same with a journal: it is whole again after a failure of power.
    Journaled,
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
            Kind::Image | Kind::Journaled => {
                let image = self.folder.path().join("image");
                told(Command::new("truncate").args(["-s", &size]).arg(&image))?;
                let journal = match kind {
                    Kind::Journaled => "has_journal",
                    Kind::Image | Kind::Memory => "^has_journal",
                };
                told(
                    Command::new("mkfs.ext4")
                        .args(["-q", "-m", "0", "-O", journal])
                        .arg(&image),
                )?;
                self.mount_image()
            }
        }
    }

    fn mount_image(&self) -> Result<(), String> {
        let image = self.folder.path().join("image");
        told(
            Command::new("mount")
                .args(["-o", "loop"])
                .args([&image, &self.mounted()]),
        )
    }

    /// Whether [`Volume::power_fails`] can be done here: tried on it while it is empty.
    pub(crate) fn can_lose_power(&self) -> bool {
        let can = self.shut_down().is_ok();
        if can {
            self.power_returns();
        }
        can
    }

    /// The power of its disk fails: what the kernel has not written is gone, and nothing can be read or written any more.
    pub(crate) fn power_fails(&self) {
        self.shut_down().expect("it was tried before");
    }

    /// Mounts it as after a failure of power. Nobody may have a file of it open.
    pub(crate) fn power_returns(&self) {
        told(Command::new("umount").arg(self.mounted())).expect("nobody has a file of it open");
        self.mount_image().expect("it could be mounted before");
    }

    /// The file system's own order to stop at once, without its journal (FS_IOC_SHUTDOWN); Rust has no safe word for it.
    fn shut_down(&self) -> Result<(), String> {
        const SCRIPT: &str = "\
import fcntl, os, struct, sys
NO_LOG_FLUSH = 2
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', NO_LOG_FLUSH))";
        told(
            Command::new("python3")
                .args(["-c", SCRIPT])
                .arg(self.mounted()),
        )
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
