//! Appends groups to log files and syncs them. One owner, on one thread.
//!
//! # Invariants
//! 1. A file appears under its name only with a durable header (tmp, header, sync, rename, sync of the directory). It is given another
//!    one in place only where damage was found already (`take_over`).
//! 2. The next file is made in advance, so that a full disk shows itself before anything was accepted for it (storage.md E4).
//! 3. Any error here is final (E1): the caller never calls again.

use std::sync::Arc;

use hulse_proto::time::TimestampMs;
use rand::RngCore;

use super::files::FileTable;
use super::format::{BLOCK_BYTES, DiskIdentity, FileHeader, LogPosition, file_name};
use super::group::{GroupBuilder, GroupBytes, Placement};
use super::record::Record;
use super::recovery::{LogError, Recovered};
use crate::config::SyncMode;
use crate::core::Room;
use crate::disk::{Disk, DiskError, DiskErrorKind, DiskFile};
use crate::identity::forget_kernel;

/// On a full disk a start is content with a log file this small, bytes.
const FILE_BYTES_MIN: u64 = 64 << 10;
/// Limbo records of a start in one group: as many as fit the smallest log file behind its header and seal.
const RECORDS_PER_GROUP: usize = 1000;
const TMP_NAME: &str = "log.tmp";

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

struct OpenFile {
    id: u64,
    file: Arc<dyn DiskFile>,
    salt: u64,
    at: u64,
    limit: u64,
}

/// The writer.
pub struct LogWriter {
    setup: WriterSetup,
    files: FileTable,
    current: OpenFile,
    spare: Option<OpenFile>,
    full: bool,
    next_file: u64,
    next_sequence: u64,
    synced: LogPosition,
    /// Files with written bytes that no sync covers; more than one only when nothing is ever synced.
    dirty: Vec<Arc<dyn DiskFile>>,
}

impl LogWriter {
    /// Opens a new file behind a recovered log and makes the recovery's decisions durable in it, with `records`; only then removes
    /// what is void.
    ///
    /// # Errors
    /// [`LogError`]; the next start recovers again.
    pub fn start(
        mut setup: WriterSetup,
        recovered: &Recovered,
        records: &[Record],
    ) -> Result<Self, LogError> {
        let files = FileTable::default();
        for (id, file) in &recovered.files {
            files.insert(*id as u32, Arc::clone(file));
        }
        let (current, full) = first_file(&mut setup, recovered)?;
        files.insert(current.id as u32, Arc::clone(&current.file));
        let mut writer = Self {
            setup,
            files,
            next_file: current.id + 1,
            current,
            spare: None,
            full,
            next_sequence: recovered.next_sequence,
            synced: recovered.end,
            dirty: Vec::new(),
        };
        writer.seal(recovered, records)?;
        // The next file is made once there is work: a start should not wait for it.
        Ok(writer)
    }

    fn seal(&mut self, recovered: &Recovered, records: &[Record]) -> Result<(), LogError> {
        // The new file's groups state that everything before them is durable; without syncs it is made so now.
        for file in recovered.files.values() {
            self.sync_file(file.as_ref())?;
        }
        let mut first = GroupBuilder::new(Vec::new());
        let current = self.current.id;
        for file in recovered.void.iter().filter(|file| **file != current) {
            first.push(&Record::SealMark {
                file: *file,
                end: 0,
            });
        }
        if let Some(tail) = recovered.tail {
            first.push(&Record::SealMark {
                file: tail.file,
                end: tail.offset,
            });
        }
        self.write_here(first.finish())?;
        // Limbo of many ledgers may need several groups.
        for some in records.chunks(RECORDS_PER_GROUP) {
            let mut group = GroupBuilder::new(Vec::new());
            some.iter().for_each(|record| {
                group.push(record);
            });
            self.write(group.finish())?;
        }
        self.sync()?;
        if let Some(tail) = recovered.tail
            && let Some(file) = recovered.files.get(&tail.file)
            && file.bytes()? > tail.offset
        {
            file.truncate(tail.offset)?;
            file.sync()?;
        }
        for file in recovered.void.iter().filter(|file| **file != current) {
            self.setup.disk.remove(&file_name(*file))?;
        }
        Ok(self.setup.disk.sync_dir()?)
    }

    /// The open files, for readers.
    pub fn files(&self) -> FileTable {
        self.files.clone()
    }

    /// Number of the file that is written.
    pub fn current_file(&self) -> u64 {
        self.current.id
    }

    /// How much can still be written. One block is held back for a mark.
    pub fn room(&self) -> Room {
        let block = BLOCK_BYTES as u64;
        let spare = self.spare.as_ref();
        Room {
            current: (self.current.limit - self.current.at).saturating_sub(block),
            spare: spare.map_or(0, |spare| {
                (spare.limit - spare.at).saturating_sub(2 * block)
            }),
            full: self.full && self.spare.is_none(),
        }
    }

    /// Writes a group; not durable before [`LogWriter::sync`]. Its place, and the buffer to be used again.
    ///
    /// # Errors
    /// [`LogError`], after which nothing may be written any more.
    pub fn write(&mut self, group: GroupBytes) -> Result<(LogPosition, Vec<u8>), LogError> {
        if self.current.at + group.bytes() as u64 > self.current.limit {
            self.roll()?;
        }
        self.write_here(group)
    }

    fn write_here(&mut self, mut group: GroupBytes) -> Result<(LogPosition, Vec<u8>), LogError> {
        let at = LogPosition {
            file: self.current.id,
            offset: self.current.at,
        };
        let bytes = group.place(&Placement {
            salt: self.current.salt,
            sequence: self.next_sequence,
            offset: at.offset,
            synced: self.synced,
        });
        if at.offset + bytes.len() as u64 > self.current.limit {
            return Err(LogError::Disk(DiskError {
                kind: DiskErrorKind::Full,
                operation: "append",
                name: file_name(at.file),
                why: format!("a group of {} bytes does not fit a log file", bytes.len()),
            }));
        }
        self.current.file.write_at(at.offset, bytes)?;
        self.current.at += bytes.len() as u64;
        self.next_sequence += 1;
        if !self
            .dirty
            .last()
            .is_some_and(|file| Arc::ptr_eq(file, &self.current.file))
        {
            self.dirty.push(Arc::clone(&self.current.file));
        }
        Ok((at, group.into_buffer()))
    }

    /// Writes an empty group, whose header proves that the one before it was durable (amendment to 4.3). Skipped at a file's end.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn mark(&mut self) -> Result<(), LogError> {
        if self.current.at + BLOCK_BYTES as u64 > self.current.limit {
            return Ok(());
        }
        let mark = GroupBuilder::new(Vec::with_capacity(BLOCK_BYTES)).finish();
        self.write_here(mark).map(drop)
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// As [`LogWriter::write`]; a failed sync is never repeated (E1).
    pub fn sync(&mut self) -> Result<(), LogError> {
        for file in &self.dirty {
            self.sync_file(file.as_ref())?;
        }
        self.dirty.clear();
        self.synced = LogPosition {
            file: self.current.id,
            offset: self.current.at,
        };
        Ok(())
    }

    fn sync_file(&self, file: &dyn DiskFile) -> Result<(), DiskError> {
        file.sync()
            .inspect_err(|_| forget_kernel(self.setup.disk.as_ref()))
    }

    /// True when written bytes wait for a sync.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Goes on in the next file, whose first group states where this one ended.
    fn roll(&mut self) -> Result<(), LogError> {
        if self.setup.sync != SyncMode::Off && self.is_dirty() {
            self.sync()?;
        }
        let next = match self.spare.take() {
            Some(spare) => spare,
            None => {
                let bytes = self.setup.file_bytes;
                create(&mut self.setup, self.next_file, bytes, None)?
            }
        };
        let seal = Record::SealMark {
            file: self.current.id,
            end: self.current.at,
        };
        self.next_file = next.id + 1;
        self.files.insert(next.id as u32, Arc::clone(&next.file));
        self.current = next;
        let mut first = GroupBuilder::new(Vec::with_capacity(BLOCK_BYTES));
        first.push(&seal);
        self.write_here(first.finish())?;
        Ok(())
    }

    /// Makes the next file in advance, if there is none. A full disk, or no file descriptor, is no error: nothing was accepted for
    /// that file. [`LogWriter::room`] says so, and the log.
    ///
    /// # Errors
    /// Any other failure of the disk.
    pub fn make_spare(&mut self) -> Result<(), LogError> {
        if self.spare.is_some() {
            return Ok(());
        }
        if self.next_file > u64::from(u32::MAX) {
            return Err(LogError::Numbers(self.next_file));
        }
        let bytes = self.setup.file_bytes;
        match create(&mut self.setup, self.next_file, bytes, None) {
            Ok(file) => {
                self.spare = Some(file);
                if std::mem::take(&mut self.full) {
                    tracing::info!("bookie's next log file is made; records are taken again");
                }
            }
            Err(error) if matches!(error.kind, DiskErrorKind::Full | DiskErrorKind::NoFile) => {
                if !std::mem::replace(&mut self.full, true) {
                    tracing::warn!(%error, "bookie's next log file cannot be made; no records are taken once this one is full");
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// True when [`LogWriter::make_spare`] has something to do.
    pub fn wants_spare(&self) -> bool {
        self.spare.is_none()
    }
}

/// The first file of this boot: a void one of the last boot is taken over, so that a full disk does not keep the node from
/// starting (E5); without one a smaller file will do. The last file keeps its number when it is taken over: were it gone under that
/// number before the new one declares it void, the next start would miss it.
fn first_file(
    setup: &mut WriterSetup,
    recovered: &Recovered,
) -> Result<(OpenFile, bool), DiskError> {
    let mut bytes = setup.file_bytes;
    // A void file may be all that says that one before it was taken away. So it is left alone until that is on record.
    let damaged = !recovered.damage.is_empty();
    if damaged && let Ok(file) = create(setup, recovered.next_file, bytes, None) {
        return Ok((file, false));
    }
    if let Some(void) = recovered.void.last()
        && let name = file_name(*void)
        && setup.disk.open(&name)?.bytes()? == bytes
    {
        let last = *void + 1 == recovered.next_file;
        let file = match last {
            true if damaged => take_over(setup, *void, bytes)?,
            true => create(setup, *void, bytes, Some(&name))?,
            false => create(setup, recovered.next_file, bytes, Some(&name))?,
        };
        return Ok((file, false));
    }
    loop {
        match create(setup, recovered.next_file, bytes, None) {
            Err(error) if error.kind == DiskErrorKind::Full && bytes > FILE_BYTES_MIN => {
                bytes = (bytes / 4).max(FILE_BYTES_MIN);
                tracing::warn!(
                    wanted = setup.file_bytes,
                    tried = bytes,
                    "a log file of bookie.log_file_size does not fit on the disk: no records are taken; make room, or set it lower"
                );
            }
            Ok(file) => return Ok((file, bytes < setup.file_bytes)),
            Err(error) => return Err(error),
        }
    }
}

/// Begins the last file anew without taking its name away for a moment: on a full disk that name is all that says that a file before
/// it was taken away. If the machine dies in the middle, its header is torn, which is more damage and no less.
fn take_over(setup: &mut WriterSetup, id: u64, bytes: u64) -> Result<OpenFile, DiskError> {
    let file = setup.disk.open(&file_name(id))?;
    let (header, salt) = header(setup, id, bytes);
    file.write_at(0, &header)?;
    file.sync()?;
    setup.disk.sync_dir()?;
    Ok(OpenFile {
        id,
        file,
        salt,
        at: BLOCK_BYTES as u64,
        limit: bytes,
    })
}

/// A header with a salt of its own.
fn header(setup: &mut WriterSetup, id: u64, bytes: u64) -> (Vec<u8>, u64) {
    let salt = setup.rng.next_u64();
    let header = FileHeader {
        identity: setup.identity,
        file: id,
        salt,
        created_at: setup.created_at,
        file_bytes: bytes,
    };
    (header.encode(), salt)
}

fn create(
    setup: &mut WriterSetup,
    id: u64,
    bytes: u64,
    reuse: Option<&str>,
) -> Result<OpenFile, DiskError> {
    let disk = &setup.disk;
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
    let (header, salt) = header(setup, id, bytes);
    let disk = &setup.disk;
    let made = file
        .write_at(0, &header)
        .and_then(|()| file.sync())
        .and_then(|()| disk.rename(TMP_NAME, &file_name(id)))
        .and_then(|()| disk.sync_dir());
    if let Err(error) = made {
        if error.kind == DiskErrorKind::Full {
            let _ = disk.remove(TMP_NAME);
        }
        return Err(error);
    }
    Ok(OpenFile {
        id,
        file,
        salt,
        at: BLOCK_BYTES as u64,
        limit: bytes,
    })
}
