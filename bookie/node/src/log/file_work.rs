//! Work on whole log files that need not hold up the log: making the next one, writing a footer, naming a compacted file.
//!
//! The writer begins a piece and ends it; in between it may be carried out on another thread ([`FileWork::run`]) while groups go on
//! into the current file. Each piece is several syncs, which would otherwise stand between one group and the next.
//!
//! # Invariants
//! 1. At most one piece is under way, so that numbers stay dense: the file of a number is durable in the directory before the next
//!    one is begun, and one that could not be made gives its number back.
//! 2. What failed is known to the writer only when the piece is ended; an error other than a full disk is final then (storage.md E1).

use std::sync::Arc;

use super::compacted::FinishedFile;
use super::files::SlotTable;
use super::footer_file::{write_pages, write_side, write_tail};
use super::format::footer::Footer;
use super::format::{FileHeader, FileKind, name_of};
use super::new_file::{FILE_BYTES_MIN, NewFile, keep_reserve, make_next, make_shorter};
use super::recovery::Unsealed;
use super::writer::is_full;
use crate::disk::{Disk, DiskError, DiskErrorKind, DiskFile};
use crate::identity::forget_kernel;

/// A piece of work, begun by the writer.
pub struct FileWork {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) piece: Piece,
}

pub(super) enum Piece {
    /// The next file in advance; `alone`: a shorter one is better than none.
    Spare { header: FileHeader, alone: bool },
    /// The footer of a full file.
    Footer(Box<Unsealed>),
    /// Number and name of a compacted file; the footer has the number.
    Name(FinishedFile),
}

/// A piece of work that was carried out, to be ended by the writer.
pub struct FileWorkDone(pub(super) Done);

pub(super) enum Done {
    Spare(Result<NewFile, DiskError>),
    Footer(Box<Unsealed>, Result<Sealed, DiskError>),
    /// The file, if it got its name.
    Name(Result<(Arc<dyn DiskFile>, Sealed), DiskError>),
}

/// What a file with a footer is.
pub(super) struct Sealed {
    pub footer: Footer,
    pub table: SlotTable,
    /// Length of the file.
    pub bytes: u64,
}

impl FileWork {
    /// True when this makes the next log file.
    pub fn is_spare(&self) -> bool {
        matches!(self.piece, Piece::Spare { .. })
    }

    /// Carries it out, on any thread.
    pub fn run(self) -> FileWorkDone {
        let disk = self.disk.as_ref();
        FileWorkDone(match self.piece {
            Piece::Spare { header, alone } => Done::Spare(spare(disk, header, alone)),
            Piece::Footer(unsealed) => {
                let sealed = write_footer(disk, &unsealed);
                Done::Footer(unsealed, sealed)
            }
            Piece::Name(finished) => Done::Name(name(disk, finished)),
        })
    }
}

fn spare(disk: &dyn Disk, header: FileHeader, alone: bool) -> Result<NewFile, DiskError> {
    let usual = header.file_bytes;
    let made = make_next(disk, header.clone());
    if let Err(error) = &made
        && error.kind != DiskErrorKind::Full
    {
        return made;
    }
    keep_reserve(disk, usual)?;
    match made {
        Err(_) if alone && usual > FILE_BYTES_MIN => make_shorter(disk, header),
        other => other,
    }
}

fn write_footer(disk: &dyn Disk, unsealed: &Unsealed) -> Result<Sealed, DiskError> {
    let (footer, slots) = unsealed.footer.finish(unsealed.header.clone());
    if unsealed.aside {
        let table = write_side(disk, &footer, &slots)?;
        let bytes = unsealed.file.bytes()?;
        return Ok(Sealed {
            footer,
            table,
            bytes,
        });
    }
    let table = write_pages(&unsealed.file, footer.end, footer.header.salt, &slots)?;
    let bytes = write_tail(&footer, &table)?;
    sync_file(disk, unsealed.file.as_ref())?;
    Ok(Sealed {
        footer,
        table,
        bytes,
    })
}

fn name(disk: &dyn Disk, finished: FinishedFile) -> Result<(Arc<dyn DiskFile>, Sealed), DiskError> {
    let FinishedFile {
        file,
        footer,
        slots: table,
    } = finished;
    let named = file
        .write_at(0, &footer.header.encode())
        .and_then(|()| write_tail(&footer, &table))
        .and_then(|bytes| sync_file(disk, file.as_ref()).map(|()| bytes));
    let named = named.and_then(|bytes| {
        let name = name_of(FileKind::Compacted, footer.header.file);
        disk.rename(FinishedFile::tmp_name(), &name)?;
        disk.sync_dir()?;
        Ok(bytes)
    });
    match named {
        Ok(bytes) => Ok((
            file,
            Sealed {
                footer,
                table,
                bytes,
            },
        )),
        Err(error) => {
            if is_full(&error) {
                disk.remove(FinishedFile::tmp_name())?;
            }
            Err(error)
        }
    }
}

/// A failed sync is never repeated, and what the kernel keeps is not believed at the next start (E1).
pub(super) fn sync_file(disk: &dyn Disk, file: &dyn DiskFile) -> Result<(), DiskError> {
    file.sync().inspect_err(|_| forget_kernel(disk))
}
