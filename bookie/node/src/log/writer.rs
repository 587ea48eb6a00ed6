//! Appends groups to log files and syncs them. One owner, on one thread. Work on whole files is begun and ended by `sealer`.
//!
//! # Invariants
//! 1. A file appears under its name only with a durable header (tmp, header, sync, rename, sync of the directory). It is given another
//!    one in place only where damage was found already (`new_file`).
//! 2. The next file is made in advance, so that a full disk shows itself before anything was accepted for it (storage.md E4). On a
//!    full one it is short, and the one behind it of the usual length.
//! 3. Each file begins with the seal of the one before and, if it fits, a snapshot of all state that is no entry (G10).
//! 4. Any error here is final (E1): the caller never calls again.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Record;
use super::file_work::sync_file;
use super::files::FileTable;
use super::footer_builder::FooterBuilder;
use super::format::{BLOCK_BYTES, LogPosition, file_name};
use super::group::{GroupBuilder, GroupBytes, Placement};
use super::new_file::{NewFile, create, first_file, keep_reserve};
use super::recovery::{LogError, Recovered, Unsealed};
use crate::config::SyncMode;
use crate::core::Room;
use crate::disk::{DiskError, DiskErrorKind, DiskFile};

pub use super::new_file::WriterSetup;

/// Records of a start or a snapshot in one group: as many as fit the smallest log file behind its header and seal.
const RECORDS_PER_GROUP: usize = 400;
/// Room that is promised to adds leaves out this part of a file for a snapshot, or what the last one took and a little more.
const SNAPSHOT_SHARE: u64 = 8;
/// So many of these parts at most: the largest entry, or the queue, has to fit behind it.
const SNAPSHOT_SHARES_MAX: u64 = 3;

/// What stands at the head of the first file of a boot.
pub struct Head {
    /// What this start decided, and no earlier file says.
    pub decided: Vec<Record>,
    /// All state, these decisions included.
    pub snapshot: Vec<Record>,
}

/// The writer.
pub struct LogWriter {
    pub(super) setup: WriterSetup,
    pub(super) files: FileTable,
    current: NewFile,
    footer: FooterBuilder,
    /// Made in advance: at most a short one, and one of the usual length.
    pub(super) spares: VecDeque<NewFile>,
    /// Files that are full and lack a footer, oldest first.
    pub(super) unsealed: VecDeque<Unsealed>,
    /// Footers wait for room on the disk.
    pub(super) footer_full: bool,
    /// A footer of this file is being written.
    pub(super) sealing: Option<u32>,
    /// A piece of work on a file is under way; it may have the next number.
    pub(super) working: bool,
    /// The newest file with a complete snapshot at its head.
    snapshot_in: Option<u64>,
    /// What the last snapshot took, or would have, bytes.
    snapshot_bytes: u64,
    lacks_snapshot: bool,
    full: bool,
    pub(super) next_file: u64,
    next_sequence: u64,
    synced: LogPosition,
    /// Files with written bytes that no sync covers; more than one only when nothing is ever synced.
    dirty: Vec<Arc<dyn DiskFile>>,
}

impl LogWriter {
    /// Opens a new file behind a recovered log and makes the recovery's decisions durable in it; only then removes what is void or
    /// was to be removed.
    ///
    /// # Errors
    /// [`LogError`]; the next start recovers again.
    pub fn start(
        mut setup: WriterSetup,
        mut recovered: Recovered,
        head: &Head,
    ) -> Result<Self, LogError> {
        let (current, full) = first_file(&mut setup, &recovered)?;
        let files = recovered.files.clone();
        files.insert(current.id() as u32, Arc::clone(&current.file));
        let mut writer = Self {
            setup,
            files,
            next_file: recovered.next_file.max(current.id() + 1),
            current,
            footer: FooterBuilder::default(),
            spares: VecDeque::new(),
            unsealed: std::mem::take(&mut recovered.unsealed).into(),
            footer_full: false,
            sealing: None,
            working: false,
            snapshot_in: None,
            snapshot_bytes: 0,
            lacks_snapshot: false,
            full,
            next_sequence: recovered.next_sequence,
            synced: recovered.end,
            dirty: Vec::new(),
        };
        writer.seal_recovered(&recovered, head)?;
        // The next file, and footers, are made once there is work: a start should not wait for them.
        Ok(writer)
    }

    fn seal_recovered(&mut self, recovered: &Recovered, head: &Head) -> Result<(), LogError> {
        // The new file's groups state that everything before them is durable; without syncs it is made so now.
        for unsealed in &self.unsealed {
            self.sync_file(unsealed.file.as_ref())?;
        }
        let mut first = GroupBuilder::new(Vec::new());
        let current = self.current.id();
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
        // Limbo of many ledgers may need several groups, and on a full disk more than one small file.
        for group in groups_of(&head.decided) {
            self.write(group)?;
        }
        // Nothing of this file is promised yet, but a short one is for what frees space.
        let shares = if self.full { 1 } else { SNAPSHOT_SHARES_MAX };
        let most = self.current.limit / SNAPSHOT_SHARE * shares;
        self.write_snapshot(&head.snapshot, most)?;
        self.sync()?;
        if let Some(tail) = recovered.tail
            && let Some(unsealed) = self.unsealed.iter().find(|u| u.header.file == tail.file)
            && unsealed.file.bytes()? > tail.offset
        {
            unsealed.file.truncate(tail.offset)?;
            unsealed.file.sync()?;
        }
        let disk = &self.setup.disk;
        for file in recovered.void.iter().filter(|file| **file != current) {
            disk.remove(&file_name(*file))?;
        }
        for name in &recovered.unwanted {
            disk.remove(name)?;
        }
        disk.sync_dir()?;
        if self.full {
            // It was used up, maybe, and what was cut is free.
            keep_reserve(self.setup.disk.as_ref(), self.setup.file_bytes)?;
        }
        Ok(())
    }

    /// The open files, for readers.
    pub fn files(&self) -> FileTable {
        self.files.clone()
    }

    /// Number of the file that is written.
    pub fn current_file(&self) -> u64 {
        self.current.id()
    }

    /// The newest file with a complete snapshot at its head. It is durable as soon as the file's first groups are.
    pub fn snapshot_file(&self) -> Option<u32> {
        self.snapshot_in.map(|file| file as u32)
    }

    /// Log files before this one have a footer, or will never get one.
    pub fn sealed_below(&self) -> u32 {
        let waiting = self.unsealed.front();
        let waiting = waiting.map_or(self.current.id(), |unsealed| unsealed.header.file);
        self.sealing.unwrap_or(waiting as u32)
    }

    /// How much can still be written. One block is held back for a mark.
    pub fn room(&self) -> Room {
        let block = BLOCK_BYTES as u64;
        let spares = self.spares.iter().map(|spare| {
            let head = 2 * block + self.snapshot_room(spare.limit);
            (spare.limit - spare.at).saturating_sub(head)
        });
        Room {
            current: (self.current.limit - self.current.at).saturating_sub(block),
            length: self.current.limit,
            spare: spares.max().unwrap_or(0),
            full: self.full,
        }
    }

    /// What of a file of this length is left to the snapshot at its head. The same from one roll to the next.
    fn snapshot_room(&self, limit: u64) -> u64 {
        let share = limit / SNAPSHOT_SHARE;
        let expected = self.snapshot_bytes + self.snapshot_bytes / 4;
        expected.clamp(share, share * SNAPSHOT_SHARES_MAX)
    }

    /// True when the state of all ledgers takes too much of a log file. Then it is in none, and no log file can be removed.
    pub fn lacks_snapshot(&self) -> bool {
        self.lacks_snapshot
    }

    /// True when a group of so many bytes goes to the next file, whose head takes a snapshot.
    pub fn rolls_for(&self, bytes: usize) -> bool {
        self.current.at + bytes as u64 > self.current.limit
    }

    /// Writes a group; not durable before [`LogWriter::sync`]. Its place, and the buffer to be used again.
    ///
    /// # Errors
    /// [`LogError`], after which nothing may be written any more.
    pub fn write(&mut self, group: GroupBytes) -> Result<(LogPosition, Vec<u8>), LogError> {
        if self.rolls_for(group.bytes()) {
            self.roll(&[])?;
        }
        self.write_here(group)
    }

    fn write_here(&mut self, mut group: GroupBytes) -> Result<(LogPosition, Vec<u8>), LogError> {
        let at = LogPosition {
            file: self.current.id(),
            offset: self.current.at,
        };
        let header = group.place(&Placement {
            salt: self.current.header.salt,
            sequence: self.next_sequence,
            offset: at.offset,
            synced: self.synced,
        });
        let bytes = group.placed();
        if self.rolls_for(bytes.len()) {
            return Err(LogError::Disk(DiskError {
                kind: DiskErrorKind::Full,
                operation: "append",
                name: file_name(at.file),
                why: format!("a group of {} bytes does not fit a log file", bytes.len()),
            }));
        }
        self.current.file.write_at(at.offset, bytes)?;
        self.footer.written(at.file, &header, bytes);
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
        if self.rolls_for(BLOCK_BYTES) {
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
            file: self.current.id(),
            offset: self.current.at,
        };
        Ok(())
    }

    fn sync_file(&self, file: &dyn DiskFile) -> Result<(), DiskError> {
        sync_file(self.setup.disk.as_ref(), file)
    }

    /// True when written bytes wait for a sync.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Goes on in the next file, whose first group states where this one ended, and whose next ones are the snapshot: what every
    /// record that was written says, and maybe more. Without a file made in advance one is made here; then no piece of work may be
    /// under way, which may have its number.
    ///
    /// # Errors
    /// As [`LogWriter::write`].
    pub fn roll(&mut self, snapshot: &[Record]) -> Result<(), LogError> {
        if self.setup.sync != SyncMode::Off && self.is_dirty() {
            self.sync()?;
        }
        let next = match self.spares.pop_front() {
            Some(spare) => spare,
            None => {
                debug_assert!(!self.working, "numbers are given one after the other");
                let bytes = self.setup.file_bytes;
                let next = create(&mut self.setup, self.next_file, bytes, None)?;
                self.next_file += 1;
                next
            }
        };
        self.files.insert(next.id() as u32, Arc::clone(&next.file));
        let full = std::mem::replace(&mut self.current, next);
        let seal = Record::SealMark {
            file: full.id(),
            end: full.at,
        };
        self.unsealed.push_back(Unsealed {
            header: full.header,
            file: full.file,
            footer: std::mem::take(&mut self.footer),
            aside: false,
        });
        let mut first = GroupBuilder::new(Vec::with_capacity(BLOCK_BYTES));
        first.push(&seal);
        self.write_here(first.finish())?;
        let most = self.snapshot_room(self.current.limit);
        self.write_snapshot(snapshot, most)
    }

    /// Writes the snapshot, if there is one and it takes no more than `most` bytes of the file. Otherwise the next file leaves more
    /// room for it.
    fn write_snapshot(&mut self, snapshot: &[Record], most: u64) -> Result<(), LogError> {
        if snapshot.is_empty() {
            return Ok(());
        }
        let groups: Vec<GroupBytes> = groups_of(snapshot).collect();
        let bytes: u64 = groups.iter().map(|group| group.bytes() as u64).sum();
        self.snapshot_bytes = bytes;
        self.tell_of_snapshot(bytes);
        if bytes > most || self.rolls_for(bytes as usize + BLOCK_BYTES) {
            tracing::debug!(bytes, most, "no state snapshot in this log file");
            return Ok(());
        }
        for group in groups {
            self.write_here(group)?;
        }
        if self.footer.has_snapshot() {
            self.snapshot_in = Some(self.current.id());
        }
        Ok(())
    }

    fn tell_of_snapshot(&mut self, bytes: u64) {
        let most = self.setup.file_bytes / SNAPSHOT_SHARE * SNAPSHOT_SHARES_MAX;
        let lacks = bytes > most;
        match (std::mem::replace(&mut self.lacks_snapshot, lacks), lacks) {
            (false, true) => tracing::warn!(
                bytes,
                most,
                "the state of all ledgers does not fit its part of a log file: no space is freed; delete topics, or set bookie.log_file_size higher"
            ),
            (true, false) => {
                tracing::info!(
                    bytes,
                    most,
                    "the state of all ledgers fits a log file again"
                );
            }
            _ => {}
        }
    }

    /// True when a next file is made already, be it a short one.
    pub fn has_spare(&self) -> bool {
        !self.spares.is_empty()
    }

    /// Takes the next file, made in advance. A full disk, or no file descriptor, is no error: nothing was accepted for that file.
    /// [`LogWriter::room`] says so, and the log.
    pub(super) fn take_spare(&mut self, made: Result<NewFile, DiskError>) -> Result<(), LogError> {
        match made {
            Ok(file) => {
                let (bytes, usual) = (file.limit, self.setup.file_bytes);
                self.spares.push_back(file);
                self.next_file += 1;
                let was = std::mem::replace(&mut self.full, bytes < usual);
                if self.full {
                    tracing::warn!(
                        bytes,
                        usual,
                        "the disk is too full for a log file of the usual length: no records are taken, and a shorter one takes what passes"
                    );
                } else if was {
                    tracing::info!("bookie's next log file is made; records are taken again");
                }
            }
            Err(error) if is_full(&error) => {
                if !std::mem::replace(&mut self.full, true) {
                    tracing::warn!(%error, "bookie's next log file cannot be made; no records are taken once this one is full");
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Nothing is wrong with the medium.
pub fn is_full(error: &DiskError) -> bool {
    matches!(error.kind, DiskErrorKind::Full | DiskErrorKind::NoFile)
}

/// Records in as few groups as fit the smallest log file.
fn groups_of(records: &[Record]) -> impl Iterator<Item = GroupBytes> + '_ {
    records.chunks(RECORDS_PER_GROUP).map(|some| {
        let mut group = GroupBuilder::new(Vec::new());
        some.iter().for_each(|record| {
            group.push(record);
        });
        group.finish()
    })
}
