//! One compaction under way: what is live in some sealed files is copied into a new one, piece by piece (storage.md G8).
//!
//! The order that nothing depends on a crash: the copy is durable, then named (its header tells whom it replaces), then the index
//! takes it, then the removal of the sources is put on record, then they are unlinked (G9). Here is the first step of it only.
//!
//! # Invariants
//! 1. Each record is checked when it is read (G13). One that is damaged ends the compaction: its file has to stay, so there is nothing
//!    to win from copying the rest of it; the planner leaves that file out from then on.
//! 2. What is given up leaves nothing behind.

use std::collections::VecDeque;

use hulse_proto::id::{EntryId, LedgerId};

use crate::disk::DiskError;
use crate::index::{ColdRun, Locator, Part, ReadFault, Wanted};
use crate::log::BLOCK_BYTES;
use crate::log::compacted::{CompactedSetup, CompactedWriter, FinishedFile};
use crate::server::read_records;

/// A piece of work, bytes.
const PIECE_BYTES: u64 = 1 << 20;
/// What a compacted file takes besides the records: group headers and padding as a part of them, slots by entry, and at least so much.
const OVERHEAD_SHARE: u64 = 32;
const SLOT_BYTES: u64 = 17;
const OVERHEAD_MIN: u64 = 8 * BLOCK_BYTES as u64;

/// What is to be copied from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// The files, ascending.
    pub files: Vec<u32>,
    /// What is live in them, by ledger and entry.
    pub runs: Vec<(LedgerId, ColdRun)>,
    /// Bytes of it, about.
    pub bytes: u64,
    /// The newest log file that any of it comes from.
    pub newest: u32,
}

/// Why a piece was not copied. The compaction is to be given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyFault {
    /// The new file could not be written.
    Disk(DiskError),
    /// A live entry is damaged, or its file does not read.
    Entry {
        /// Its ledger.
        ledger: LedgerId,
        /// Its number.
        entry: EntryId,
        /// Its file.
        file: u32,
        /// What is wrong with it.
        fault: ReadFault,
    },
}

/// The compaction.
pub struct Compaction {
    files: Vec<u32>,
    runs: VecDeque<(LedgerId, ColdRun)>,
    writer: CompactedWriter,
}

impl Compaction {
    /// Makes the new file.
    ///
    /// # Errors
    /// Of the disk; `Full` leaves nothing behind.
    pub fn begin(sources: Sources, setup: CompactedSetup) -> Result<Self, DiskError> {
        let entries: u64 = sources
            .runs
            .iter()
            .map(|(_, run)| u64::from(run.entries))
            .sum();
        let bytes = sources.bytes + sources.bytes / OVERHEAD_SHARE + entries * SLOT_BYTES;
        let bytes = bytes + OVERHEAD_MIN;
        let replaces = sources.files.iter().map(|file| u64::from(*file)).collect();
        let writer = CompactedWriter::create(CompactedSetup {
            replaces,
            newest: u64::from(sources.newest),
            bytes,
            ..setup
        })?;
        Ok(Self {
            files: sources.files,
            runs: sources.runs.into(),
            writer,
        })
    }

    /// Copies the next piece: its bytes, or `None` when all is copied. `lives` tells ledgers that were deleted since.
    ///
    /// # Errors
    /// [`CopyFault`].
    pub fn step(
        &mut self,
        locator: &Locator,
        lives: impl Fn(LedgerId) -> bool,
    ) -> Result<Option<u64>, CopyFault> {
        let Some((ledger, run)) = self.runs.pop_front() else {
            return Ok(None);
        };
        if !lives(ledger) {
            return Ok(Some(0));
        }
        let first = EntryId(run.first);
        let wanted = Wanted {
            first,
            parts: vec![Part::Cold(run)],
            bytes: PIECE_BYTES,
            head_bytes: None,
        };
        let (records, fault) = read_records(locator, &wanted);
        let mut bytes = 0;
        for record in &records {
            bytes += record.len() as u64;
            self.writer.push(record).map_err(CopyFault::Disk)?;
        }
        if let Some((entry, fault)) = fault {
            return Err(CopyFault::Entry {
                ledger,
                entry,
                file: run.file,
                fault,
            });
        }
        let rest = behind(&run, records.len() as u32);
        if let Some(rest) = rest {
            self.runs.push_front((ledger, rest));
        }
        Ok(Some(bytes))
    }

    /// Makes the copy durable; with the files that it replaces.
    ///
    /// # Errors
    /// Of the disk, with the same files; nothing is left behind.
    pub fn finish(self) -> Result<(Vec<u32>, FinishedFile), (Vec<u32>, DiskError)> {
        match self.writer.finish() {
            Ok(finished) => Ok((self.files, finished)),
            Err(error) => Err((self.files, error)),
        }
    }

    /// Gives it up.
    pub fn discard(self) -> Vec<u32> {
        self.writer.discard();
        self.files
    }
}

/// What of a run comes behind its first `entries`.
pub fn behind(run: &ColdRun, entries: u32) -> Option<ColdRun> {
    (entries < run.entries).then(|| ColdRun {
        first: run.first + u64::from(entries),
        entries: run.entries - entries,
        slot: run.slot + entries,
        ..*run
    })
}
