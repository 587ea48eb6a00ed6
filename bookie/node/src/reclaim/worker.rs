//! Reclaim and scrub, one piece at a time: what is planned is begun, gone on with, and ended. Whoever calls gives the pace.
//!
//! The core decides and remembers; here is what only the one who works knows: what failed, what is half copied, whose turn it is.

use std::collections::VecDeque;
use std::time::Duration;

use hulse_proto::id::{EntryId, LedgerId};

use super::compaction::{Compaction, CopyFault, Sources, behind};
use super::plan::{Planner, Request};
use super::scrub::ScrubPlan;
use crate::core::{Event, NodeCore};
use crate::disk::{DiskError, DiskErrorKind};
use crate::index::{ColdRun, Locator, Part, ReadFault, Wanted};
use crate::log::compacted::{CompactedSetup, FinishedFile};
use crate::server::read_records;

/// A piece that scrub reads, bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// What the worker works on.
pub trait Ground {
    /// Looks at the core.
    fn look<T>(&self, look: impl FnOnce(&NodeCore) -> T) -> T;

    /// Feeds the core an event.
    fn feed(&mut self, event: Event);

    /// Finds and reads entries.
    fn locator(&self) -> Locator;

    /// For a new compacted file; what depends on its sources is filled in later.
    fn setup(&mut self) -> CompactedSetup;
}

/// What a step did.
pub enum Work {
    /// There is nothing to do now.
    Nothing,
    /// Something was begun, or a piece of so many bytes was read, and written if it is so.
    Did {
        /// Bytes read.
        read: u64,
        /// Bytes written.
        written: u64,
    },
    /// This file is to be given its number and name, and announced; then [`Worker::adopted`] is to be told.
    Adopt(Box<FinishedFile>),
}

/// The worker.
pub struct Worker {
    planner: Planner,
    scrub: ScrubPlan,
    compaction: Option<Compaction>,
    /// Files whose copy waits for its name.
    naming: Vec<u32>,
    checking: VecDeque<(LedgerId, ColdRun)>,
}

impl Worker {
    /// One that has nothing under way. Each sealed file is checked once in `scrub_interval`.
    pub fn new(scrub_interval: Duration) -> Self {
        Self {
            planner: Planner::default(),
            scrub: ScrubPlan::new(scrub_interval),
            compaction: None,
            naming: Vec::new(),
            checking: VecDeque::new(),
        }
    }

    /// True while a copy is under way.
    pub fn compacts(&self) -> bool {
        self.compaction.is_some()
    }

    /// The next piece, at `now` since the node's start.
    ///
    /// # Errors
    /// Of the disk, when it is not to be trusted any more (storage.md E1). A full one is no error.
    pub fn step(&mut self, ground: &mut impl Ground, now: Duration) -> Result<Work, DiskError> {
        if let Some(compaction) = self.compaction.take() {
            return self.copy(compaction, ground, now);
        }
        let stock = ground.look(NodeCore::stock);
        match self.planner.next(&stock, now) {
            Some(Request::Unlink(files)) => {
                ground.feed(Event::RemoveFiles(files.clone()));
                // Refused: the log has no room for it now, or one of them is needed.
                let left = ground.look(|core| core.which_remain(files));
                self.planner.failed(&Request::Unlink(left), now);
                Ok(DID)
            }
            Some(Request::Compact(mut files)) => {
                files.sort_unstable();
                let sources = stock.files.iter().filter(|file| files.contains(&file.file));
                let bytes = sources.map(|file| file.copy).sum();
                self.begin(files, bytes, ground, now)
            }
            None => Ok(self.check(ground, now)),
        }
    }

    fn begin(
        &mut self,
        files: Vec<u32>,
        bytes: u64,
        ground: &mut impl Ground,
        now: Duration,
    ) -> Result<Work, DiskError> {
        let runs = ground.look(|core| core.live_runs(&files));
        if runs.is_empty() {
            ground.feed(Event::FilesReplaced(files));
            return Ok(DID);
        }
        let setup = ground.setup();
        let sources = Sources {
            files: files.clone(),
            runs,
            bytes,
            newest: ground.look(|core| core.newest_log_file(&files)),
        };
        match Compaction::begin(sources, setup) {
            Ok(compaction) => {
                tracing::debug!(?files, bytes, "compaction begins");
                self.compaction = Some(compaction);
                Ok(DID)
            }
            Err(error) => self.give_up(files, &error, now),
        }
    }

    /// A full disk only delays it.
    fn give_up(
        &mut self,
        files: Vec<u32>,
        error: &DiskError,
        now: Duration,
    ) -> Result<Work, DiskError> {
        self.planner.failed(&Request::Compact(files), now);
        match error.kind {
            DiskErrorKind::Full | DiskErrorKind::NoFile => Ok(DID),
            _ => Err(error.clone()),
        }
    }

    fn copy(
        &mut self,
        mut compaction: Compaction,
        ground: &mut impl Ground,
        now: Duration,
    ) -> Result<Work, DiskError> {
        let locator = ground.locator();
        let lives = |ledger| ground.look(|core| core.lives(ledger));
        match compaction.step(&locator, lives) {
            Ok(Some(bytes)) => {
                self.compaction = Some(compaction);
                Ok(Work::Did {
                    read: bytes,
                    written: bytes,
                })
            }
            Ok(None) => match compaction.finish() {
                Ok((files, finished)) => {
                    self.naming = files;
                    Ok(Work::Adopt(Box::new(finished)))
                }
                Err((files, error)) => self.give_up(files, &error, now),
            },
            Err(CopyFault::Disk(error)) => {
                let files = compaction.discard();
                self.give_up(files, &error, now)
            }
            Err(CopyFault::Entry {
                ledger,
                entry,
                file,
                fault,
            }) => {
                report(ground, (ledger, entry, file), &fault);
                let files = compaction.discard();
                // The file with the damage is left out from now on, and the others are planned anew at once.
                if !ground.look(|core| core.is_damaged(ledger, entry)) {
                    self.planner.failed(&Request::Compact(files), now);
                }
                Ok(DID)
            }
        }
    }

    /// What was to be named is announced to the core, or, without room for it, given up.
    pub fn adopted(&mut self, named: bool, ground: &mut impl Ground, now: Duration) {
        let files = std::mem::take(&mut self.naming);
        if named {
            ground.feed(Event::FilesReplaced(files));
        } else {
            self.planner.failed(&Request::Compact(files), now);
        }
    }

    /// Looks again at an entry that an earlier boot found damaged, if there is one left.
    fn look_again(ground: &mut impl Ground) -> Option<Work> {
        let (at, file, wanted) = ground.look(NodeCore::doubtful)?;
        let (records, fault) = read_records(&ground.locator(), &wanted);
        if let Some((_, fault)) = &fault {
            report(ground, (at.0, at.1, file), fault);
        }
        let whole = fault.is_none() && !records.is_empty();
        if whole {
            tracing::info!(ledger = %at.0, entry = %at.1, file, "a stored entry that was damaged is right again");
        }
        ground.feed(Event::DamageChecked { at, whole });
        Some(Work::Did {
            read: records.iter().map(|record| record.len() as u64).sum(),
            written: 0,
        })
    }

    /// Scrub: the next piece of the file whose turn it is.
    fn check(&mut self, ground: &mut impl Ground, now: Duration) -> Work {
        if let Some(work) = Self::look_again(ground) {
            return work;
        }
        if self.checking.is_empty() {
            let files = ground.look(NodeCore::sealed_files);
            let Some(file) = self.scrub.next(&files, now) else {
                return Work::Nothing;
            };
            self.checking = ground.look(|core| core.live_runs(&[file])).into();
        }
        let Some((ledger, run)) = self.checking.pop_front() else {
            return Work::Nothing;
        };
        let wanted = Wanted {
            first: EntryId(run.first),
            parts: vec![Part::Cold(run)],
            bytes: PIECE_BYTES,
            head_bytes: None,
        };
        let (records, fault) = read_records(&ground.locator(), &wanted);
        let mut done = records.len() as u32;
        if let Some((entry, fault)) = &fault {
            report(ground, (ledger, *entry, run.file), fault);
            done += 1;
        }
        if let Some(rest) = behind(&run, done)
            && fault.is_none_or(|(_, fault)| fault.is_damage())
        {
            self.checking.push_front((ledger, rest));
        }
        Work::Did {
            read: records.iter().map(|record| record.len() as u64).sum(),
            written: 0,
        }
    }

    /// Sealed files that scrub has not read to their end since the start.
    pub fn unchecked(&self, ground: &impl Ground) -> usize {
        let files = ground.look(NodeCore::sealed_files);
        self.scrub.unchecked(&files) + usize::from(!self.checking.is_empty())
    }

    /// Room appeared: what failed for want of it is worth a try.
    pub fn wake(&mut self) {
        self.planner.wake();
    }
}

const DID: Work = Work::Did {
    read: 0,
    written: 0,
};

/// Registers damage (storage.md E2). A file that is gone was removed since, and one whose slots wait for room is not known to lack any.
fn report(
    ground: &mut impl Ground,
    (ledger, entry, file): (LedgerId, EntryId, u32),
    fault: &ReadFault,
) {
    if !fault.is_damage() || ground.look(|core| core.is_damaged(ledger, entry)) {
        return;
    }
    tracing::warn!(%ledger, %entry, file, ?fault, "stored entry is damaged");
    ground.feed(Event::EntryDamaged {
        ledger,
        entry,
        file,
    });
}
