//! Writes a compacted file: entries that are live in other files, sorted by ledger and entry (storage.md G8).
//!
//! One owner, on any thread; nothing but [`super::writer::LogWriter::adopt`] happens on the log's. The file has no number, and a
//! temporary name, until its body is durable: numbers are dense, and one that no file has would be taken for damage.

use std::sync::Arc;

use hulse_proto::time::TimestampMs;

use super::Record;
use super::files::SlotTable;
use super::footer_builder::FooterBuilder;
use super::footer_file::write_pages;
use super::format::footer::Footer;
use super::format::{BLOCK_BYTES, DiskIdentity, FileHeader, FileKind, LogPosition};
use super::group::{GroupBuilder, Placement};
use crate::disk::{Disk, DiskError, DiskErrorKind, DiskFile};

/// A group of a compacted file is written at this size, bytes.
const GROUP_BYTES: usize = 1 << 20;
/// The body is made durable in steps of so many bytes: the log waits at the disk for as long as one of them takes.
const SYNC_BYTES: u64 = 1 << 20;
/// No compacted file is longer, bytes: offsets in a file are 32 bits.
pub const COMPACTED_BYTES_MAX: u64 = 2 << 30;
const TMP_NAME: &str = "compacted.tmp";

/// Whose file it is and what it replaces.
pub struct CompactedSetup {
    /// Where.
    pub disk: Arc<dyn Disk>,
    /// Whose.
    pub identity: DiskIdentity,
    /// Tells its groups from others.
    pub salt: u64,
    /// For the header only.
    pub created_at: TimestampMs,
    /// The files whose live entries it takes over, ascending.
    pub replaces: Vec<u64>,
    /// The newest log file of which it is to hold entries.
    pub newest: u64,
    /// Preallocated: what is to be copied, and a little more.
    pub bytes: u64,
}

/// A compacted file that is being filled. There is one at a time.
pub struct CompactedWriter {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    header: FileHeader,
    builder: FooterBuilder,
    group: GroupBuilder,
    sequence: u64,
    at: u64,
    /// Durable below.
    synced: u64,
}

/// A compacted file whose body and slots are durable; it lacks number and name.
pub struct FinishedFile {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) footer: Footer,
    pub(super) slots: SlotTable,
}

impl FinishedFile {
    /// Its temporary name.
    pub(super) fn tmp_name() -> &'static str {
        TMP_NAME
    }
}

impl CompactedWriter {
    /// Begins the file; what an earlier one left behind is removed.
    ///
    /// # Errors
    /// Of the disk; `Full` leaves nothing behind.
    pub fn create(setup: CompactedSetup) -> Result<Self, DiskError> {
        setup.disk.remove(TMP_NAME)?;
        let file = setup.disk.create(TMP_NAME, setup.bytes)?;
        Ok(Self {
            disk: setup.disk,
            file,
            header: FileHeader {
                kind: FileKind::Compacted,
                identity: setup.identity,
                file: 0,
                salt: setup.salt,
                created_at: setup.created_at,
                file_bytes: setup.bytes,
                counts_as: (setup.replaces.last() != Some(&setup.newest)).then_some(setup.newest),
                replaces: setup.replaces,
            },
            builder: FooterBuilder::default(),
            group: GroupBuilder::new(Vec::new()),
            sequence: 0,
            at: BLOCK_BYTES as u64,
            synced: 0,
        })
    }

    /// Appends an entry's record, frame and content as they stand in its file. The caller has checked them (G13), and keeps the
    /// order of ledgers and entries.
    ///
    /// # Errors
    /// Of the disk. The file is to be [`CompactedWriter::discard`]ed then.
    pub fn push(&mut self, record: &[u8]) -> Result<(), DiskError> {
        if !self.group.is_empty() && self.group.bytes() + record.len() > GROUP_BYTES {
            self.write_group()?;
        }
        self.group.push_bytes(record);
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), DiskError> {
        let next = GroupBuilder::new(Vec::with_capacity(GROUP_BYTES));
        let mut group = std::mem::replace(&mut self.group, next).finish();
        let header = group.place(&Placement {
            salt: self.header.salt,
            sequence: self.sequence,
            offset: self.at,
            synced: LogPosition::default(),
        });
        if self.at + header.padded_bytes() > COMPACTED_BYTES_MAX {
            return Err(DiskError {
                kind: DiskErrorKind::Full,
                operation: "append",
                name: TMP_NAME.to_owned(),
                why: "a compacted file is full".to_owned(),
            });
        }
        self.file.write_at(self.at, group.placed())?;
        self.builder.written(0, &header, group.placed());
        self.at += header.padded_bytes();
        self.sequence += 1;
        if self.at - self.synced >= SYNC_BYTES {
            self.file.sync()?;
            self.synced = self.at;
        }
        Ok(())
    }

    /// Makes the body and the slots durable.
    ///
    /// # Errors
    /// Of the disk; nothing is left behind. After a failed sync nothing is to be tried again (storage.md E1).
    pub fn finish(mut self) -> Result<FinishedFile, DiskError> {
        match self.finish_body() {
            Ok(finished) => Ok(finished),
            Err(error) => {
                self.discard();
                Err(error)
            }
        }
    }

    fn finish_body(&mut self) -> Result<FinishedFile, DiskError> {
        if !self.group.is_empty() {
            self.write_group()?;
        }
        // A start that finds the footer damaged must know that no group is missing.
        self.group.push(&Record::SealMark {
            file: 0,
            end: self.at,
        });
        self.write_group()?;
        let (footer, slots) = self.builder.finish(self.header.clone());
        let slots = write_pages(&self.file, self.at, self.header.salt, &slots)?;
        self.file.sync()?;
        Ok(FinishedFile {
            file: Arc::clone(&self.file),
            footer,
            slots,
        })
    }

    /// Gives the file up.
    pub fn discard(self) {
        let _ = self.disk.remove(TMP_NAME);
    }
}
