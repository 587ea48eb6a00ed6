//! A disk that takes so many bytes a second: a control group of the kernel (blkio) that slows what its processes write.
//!
//! It slows the server's own writes and syncs and nothing else; where groups cannot be made, what needs one is not run.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const GROUPS: &str = "/sys/fs/cgroup/blkio";

/// The group; removed at the end, when its processes are gone.
pub(crate) struct SlowDisk(PathBuf);

impl SlowDisk {
    /// Of the disk that holds `folder`.
    ///
    /// # Errors
    /// No such groups here, or no right to make one.
    pub(crate) fn new(folder: &Path, bytes_per_second: u64) -> io::Result<Self> {
        let device = std::fs::metadata(folder)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let group = Path::new(GROUPS).join(format!("hulse-bench-{}", std::process::id()));
        std::fs::create_dir(&group)?;
        let disk = Self(group);
        std::fs::write(
            disk.0.join("blkio.throttle.write_bps_device"),
            format!("{major}:{minor} {bytes_per_second}"),
        )?;
        Ok(disk)
    }

    /// The file that a process writes its id into to join.
    pub(crate) fn processes(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // A group that still has processes stays; it slows nobody else.
        let _ = std::fs::remove_dir(&self.0);
    }
}
