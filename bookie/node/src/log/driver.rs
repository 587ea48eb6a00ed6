//! What becomes of a group at the disk, by sync mode, and when the interval mode syncs. Used by the log thread, by inline mode and by `step` alike.

use std::time::Duration;

use super::Record;
use super::format::LogPosition;
use super::recovery::LogError;
use super::writer::LogWriter;
use crate::config::SyncMode;
use crate::core::{Event, SealedGroup};
use crate::ledger::GroupNumber;

/// The writer, and what was written since it last told the core.
pub struct LogDriver {
    /// The log.
    pub writer: LogWriter,
    mode: SyncMode,
    placed: Vec<(GroupNumber, LogPosition)>,
    /// A group was synced and no mark followed it yet.
    unmarked: bool,
    /// When the interval mode synced last, by the caller's clock.
    last_sync: Duration,
}

impl LogDriver {
    /// Drives a writer.
    pub fn new(writer: LogWriter, mode: SyncMode) -> Self {
        Self {
            writer,
            mode,
            placed: Vec::new(),
            unmarked: false,
            last_sync: Duration::ZERO,
        }
    }

    /// Writes a group. The buffer is for the next one. `snapshot` is asked for all state if this group goes to a new file; it covers
    /// every group that was taken, this one included.
    ///
    /// # Errors
    /// Final ([`LogWriter::write`]).
    pub fn write(
        &mut self,
        group: SealedGroup,
        snapshot: impl FnOnce() -> Vec<Record>,
    ) -> Result<Vec<u8>, LogError> {
        if self.writer.rolls_for(group.bytes.bytes()) {
            self.writer.roll(&snapshot())?;
        }
        let (at, buffer) = self.writer.write(group.bytes)?;
        self.placed.push((group.number, at));
        Ok(buffer)
    }

    /// Syncs if the mode asks for it, and says what is stored now.
    ///
    /// # Errors
    /// Final ([`LogWriter::sync`]).
    pub fn store(&mut self) -> Result<Option<Event>, LogError> {
        if self.mode.always() {
            self.writer.sync()?;
        }
        self.unmarked = true;
        let placed = std::mem::take(&mut self.placed);
        let last = placed.last().map(|(group, _)| *group);
        Ok(last.map(|group| Event::GroupStored { group, placed }))
    }

    /// When the interval mode syncs next: so long from `now`, which runs from any fixed moment. `None`: nothing waits for it.
    pub fn sync_due_in(&self, now: Duration) -> Option<Duration> {
        match self.mode {
            SyncMode::Interval(every) if self.writer.is_dirty() => {
                Some(every.saturating_sub(now.saturating_sub(self.last_sync)))
            }
            _ => None,
        }
    }

    /// Syncs if that is due: what was stored longer ago than the interval is durable then (amendment to B5).
    ///
    /// # Errors
    /// Final ([`LogWriter::sync`]).
    pub fn sync_if_due(&mut self, now: Duration) -> Result<(), LogError> {
        if self.sync_due_in(now) == Some(Duration::ZERO) {
            self.writer.sync()?;
            self.last_sync = now;
        }
        Ok(())
    }

    /// True when an idle log should be marked.
    pub fn wants_mark(&self) -> bool {
        self.unmarked && self.mode.always()
    }

    /// Writes and syncs the mark (amendment to 4.3).
    ///
    /// # Errors
    /// Final.
    pub fn mark(&mut self) -> Result<(), LogError> {
        self.unmarked = false;
        self.writer.mark()?;
        self.writer.sync()
    }

    /// The last sync of a clean stop.
    ///
    /// # Errors
    /// Final.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.writer.sync()?;
        self.mark()
    }
}
