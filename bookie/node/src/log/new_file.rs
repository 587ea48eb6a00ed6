//! Makes log files: under a temporary name, with a durable header, then under their own.
//!
//! What the last of a disk is for is decided here. A log file of the usual length leaves as much behind itself, so that compaction, which
//! needs room before it gives any, has some for whatever the largest live part of a file is (storage.md D4); a shorter one leaves
//! half of that, so that what passes a full disk cannot use it up either.

use std::sync::Arc;

use hulse_proto::time::TimestampMs;
use rand::RngCore;

use super::format::{BLOCK_BYTES, DiskIdentity, FileHeader, FileKind, file_name};
use super::recovery::Recovered;
use crate::config::SyncMode;
use crate::disk::{Disk, DiskError, DiskErrorKind, DiskFile};

/// On a full disk a start is content with a log file this small, bytes.
pub(super) const FILE_BYTES_MIN: u64 = 64 << 10;
const TMP_NAME: &str = "log.tmp";
/// Blocks that are kept for a start on a disk without any room (storage.md E5).
const RESERVE_NAME: &str = "start.reserve";
/// As many of them as this share of a log file has, and no more than so many bytes.
const RESERVE_SHARE: u64 = 64;
const RESERVE_BYTES_MAX: u64 = 1 << 20;
/// On a full disk the next file has the largest of these shares of the usual length. So what passes goes on.
const SHORTER_SHARES: [u64; 4] = [2, 4, 8, 16];

/// What the writer must know.
pub struct WriterSetup {
    /// Where.
    pub disk: Arc<dyn Disk>,
    /// Whose.
    pub identity: DiskIdentity,
    /// Preallocated length of a file.
    pub file_bytes: u64,
    /// Decides what a roll syncs.
    pub sync: SyncMode,
    /// Salts.
    pub rng: Box<dyn RngCore + Send>,
    /// For the headers only.
    pub created_at: TimestampMs,
}

/// A file that can be written.
pub(super) struct NewFile {
    pub header: FileHeader,
    pub file: Arc<dyn DiskFile>,
    /// Where the next group goes.
    pub at: u64,
    /// Where the last one must end.
    pub limit: u64,
}

impl NewFile {
    pub fn id(&self) -> u64 {
        self.header.file
    }
}

/// The first file of this boot, and whether it is smaller than it should be. A void one of the last boot is taken over, so that a
/// full disk does not keep the node from starting (E5); without one a smaller file will do. The void one must be the last of all
/// files, and keeps its number: were it gone under that number before the new one declares it void, and were there a compacted file
/// behind it, the next start would miss it.
pub(super) fn first_file(
    setup: &mut WriterSetup,
    recovered: &Recovered,
) -> Result<(NewFile, bool), DiskError> {
    let mut bytes = setup.file_bytes;
    // A void file may be all that says that one before it was taken away. So it is left alone until that is on record.
    let damaged = !recovered.damage.is_empty();
    if damaged && let Ok(file) = create(setup, recovered.next_file, bytes, None) {
        return Ok((file, false));
    }
    if let Some(void) = recovered.void.last()
        && *void + 1 == recovered.next_file
        && let name = file_name(*void)
        && setup.disk.open(&name)?.bytes()? == bytes
    {
        let file = match damaged {
            true => take_over(setup, *void, bytes)?,
            false => create(setup, *void, bytes, Some(&name))?,
        };
        return Ok((file, false));
    }
    loop {
        match create_leaving_room(setup, recovered.next_file, bytes) {
            Err(error) if error.kind == DiskErrorKind::Full && bytes > FILE_BYTES_MIN => {
                bytes = (bytes / 4).max(FILE_BYTES_MIN);
                tracing::warn!(
                    wanted = setup.file_bytes,
                    tried = bytes,
                    "a log file of bookie.log_file_size does not fit on the disk: no records are taken; make room, or set it lower"
                );
            }
            Err(error) if error.kind == DiskErrorKind::Full => {
                return Ok((reserved_file(setup, recovered, error)?, true));
            }
            Ok(file) => return Ok((file, bytes < setup.file_bytes)),
            Err(error) => return Err(error),
        }
    }
}

/// As [`create`], if that leaves compaction its room.
fn create_leaving_room(setup: &mut WriterSetup, id: u64, bytes: u64) -> Result<NewFile, DiskError> {
    leaves_room(setup.disk.as_ref(), bytes, setup.file_bytes)?;
    create(setup, id, bytes, None)
}

/// Refuses a log file of so many bytes, where `usual` is usual, that would take the room of compaction. The shortest leaves it nothing:
/// without the records of what died nothing is freed either. Space that is not known is enough.
///
/// # Errors
/// `Full`.
fn leaves_room(disk: &dyn Disk, bytes: u64, usual: u64) -> Result<(), DiskError> {
    let kept = if bytes < usual { usual / 2 } else { usual };
    let free = disk.space().map_or(u64::MAX, |space| space.free);
    if bytes <= FILE_BYTES_MIN || free >= bytes.saturating_add(kept) {
        return Ok(());
    }
    Err(DiskError {
        kind: DiskErrorKind::Full,
        operation: "preallocate",
        name: TMP_NAME.to_owned(),
        why: format!("{free} bytes are free, and {kept} of them are kept for compaction"),
    })
}

/// A file of blocks that were kept for a disk without any room. Without them those of a void file, whose name is missed if the machine
/// dies just then: limbo where none was needed is a smaller harm than a bookie that does not start.
fn reserved_file(
    setup: &mut WriterSetup,
    recovered: &Recovered,
    full: DiskError,
) -> Result<NewFile, DiskError> {
    let kept = recovered.void.iter().map(|void| file_name(*void));
    for name in std::iter::once(RESERVE_NAME.to_owned()).chain(kept) {
        let bytes = setup.disk.open(&name).and_then(|file| file.bytes());
        if let Ok(bytes) = bytes
            && bytes >= FILE_BYTES_MIN
        {
            return create(setup, recovered.next_file, bytes, Some(&name));
        }
    }
    Err(full)
}

/// Keeps the blocks of a small file for the next start. A disk that is full already, or a crash in between, is no error: they are
/// kept some other time.
///
/// # Errors
/// Any other failure of the disk.
pub(super) fn keep_reserve(disk: &dyn Disk, file_bytes: u64) -> Result<(), DiskError> {
    match disk.open(RESERVE_NAME).and_then(|file| file.bytes()) {
        Ok(bytes) if bytes >= FILE_BYTES_MIN => return Ok(()),
        Ok(_) => disk.remove(RESERVE_NAME)?,
        Err(error) if error.kind == DiskErrorKind::Missing => {}
        Err(error) => return Err(error),
    }
    let most = (file_bytes / RESERVE_SHARE).clamp(FILE_BYTES_MIN, RESERVE_BYTES_MAX);
    for bytes in [most, FILE_BYTES_MIN] {
        match disk.create(RESERVE_NAME, bytes) {
            Ok(_) => return disk.sync_dir(),
            Err(error) if error.kind == DiskErrorKind::Full => {}
            Err(error) if error.kind == DiskErrorKind::NoFile => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes a file of this header, the next one of the usual length.
///
/// # Errors
/// Of the disk; `Full` leaves nothing behind but the room of compaction.
pub(super) fn make_next(disk: &dyn Disk, header: FileHeader) -> Result<NewFile, DiskError> {
    leaves_room(disk, header.file_bytes, header.file_bytes)?;
    make(disk, header, None)
}

/// Makes a shorter file than this header says, as long as the disk takes one, once there is a reserve.
///
/// # Errors
/// Of the disk; `Full` leaves nothing behind.
pub(super) fn make_shorter(disk: &dyn Disk, header: FileHeader) -> Result<NewFile, DiskError> {
    let usual = header.file_bytes;
    let lengths = SHORTER_SHARES.map(|share| usual / share);
    let fitting = lengths.into_iter().filter(|bytes| *bytes > FILE_BYTES_MIN);
    for file_bytes in fitting {
        let header = FileHeader {
            file_bytes,
            ..header.clone()
        };
        let made = leaves_room(disk, file_bytes, usual).and_then(|()| make(disk, header, None));
        match made {
            Err(error) if error.kind == DiskErrorKind::Full => {}
            other => return other,
        }
    }
    let file_bytes = FILE_BYTES_MIN;
    make(
        disk,
        FileHeader {
            file_bytes,
            ..header
        },
        None,
    )
}

/// Begins the last file anew without taking its name away for a moment: on a full disk that name is all that says that a file before
/// it was taken away. If the machine dies in the middle, its header is torn, which is more damage and no less.
fn take_over(setup: &mut WriterSetup, id: u64, bytes: u64) -> Result<NewFile, DiskError> {
    let file = setup.disk.open(&file_name(id))?;
    let header = header(setup, id, bytes);
    file.write_at(0, &header.encode())?;
    file.sync()?;
    setup.disk.sync_dir()?;
    Ok(begun(header, file, bytes))
}

fn begun(header: FileHeader, file: Arc<dyn DiskFile>, bytes: u64) -> NewFile {
    NewFile {
        header,
        file,
        at: BLOCK_BYTES as u64,
        limit: bytes,
    }
}

/// A header with a salt of its own.
pub(super) fn header(setup: &mut WriterSetup, id: u64, bytes: u64) -> FileHeader {
    FileHeader {
        kind: FileKind::Log,
        identity: setup.identity,
        file: id,
        salt: setup.rng.next_u64(),
        created_at: setup.created_at,
        file_bytes: bytes,
        replaces: Vec::new(),
        counts_as: None,
    }
}

/// Makes the file; `reuse` names one whose blocks it may have.
pub(super) fn create(
    setup: &mut WriterSetup,
    id: u64,
    bytes: u64,
    reuse: Option<&str>,
) -> Result<NewFile, DiskError> {
    let header = header(setup, id, bytes);
    make(setup.disk.as_ref(), header, reuse)
}

/// Makes the file of this header; on any thread.
pub(super) fn make(
    disk: &dyn Disk,
    header: FileHeader,
    reuse: Option<&str>,
) -> Result<NewFile, DiskError> {
    let bytes = header.file_bytes;
    disk.remove(TMP_NAME)?;
    let file = match reuse {
        Some(name) => {
            disk.rename(name, TMP_NAME)?;
            // A crash between a torn header and this rename would leave a named file without a header.
            disk.sync_dir()?;
            disk.open(TMP_NAME)?
        }
        None => disk.create(TMP_NAME, bytes)?,
    };
    let made = file
        .write_at(0, &header.encode())
        .and_then(|()| file.sync())
        .and_then(|()| disk.rename(TMP_NAME, &file_name(header.file)))
        .and_then(|()| disk.sync_dir());
    if let Err(error) = made {
        if error.kind == DiskErrorKind::Full {
            let _ = disk.remove(TMP_NAME);
        }
        return Err(error);
    }
    Ok(begun(header, file, bytes))
}
