//! Takes log files away that nothing lives in any more (storage.md G8, G9).

use std::sync::Arc;

use super::files::FileTable;
use super::format::{FileKind, name_of, side_name};
use crate::disk::{Disk, DiskError, DiskFile};

/// Removes files whose [`super::Record::FilesRemoved`] is durable; durable on return. Reads that hold one go on. What is returned has
/// no name any more: its space is given back when the last handle is dropped.
///
/// # Errors
/// Of the disk; final (E1). The next start removes what is left.
pub fn unlink(
    disk: &dyn Disk,
    open: &FileTable,
    files: &[(FileKind, u32)],
) -> Result<Vec<Arc<dyn DiskFile>>, DiskError> {
    let mut unlinked = Vec::with_capacity(files.len());
    for (kind, file) in files {
        let number = u64::from(*file);
        unlinked.extend(open.remove(*file));
        disk.remove(&name_of(*kind, number))?;
        disk.remove(&side_name(number))?;
        tracing::debug!(?kind, file, "log file removed");
    }
    if !files.is_empty() {
        disk.sync_dir()?;
    }
    Ok(unlinked)
}
