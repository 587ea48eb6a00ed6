//! The writer's other half: begins and ends the work on whole files (`file_work`): the next one, footers of full ones, names of
//! compacted ones.
//!
//! # Invariants
//! 1. A footer is begun when its file, and every one before it, is durable (storage.md 4.4).
//! 2. A full disk only delays a footer, which is a hint, and gives up a compacted file, whose sources are still there. Any other error
//!    is final (E1).

use std::sync::Arc;

use super::compacted::FinishedFile;
use super::file_work::{Done, FileWork, FileWorkDone, Piece, Sealed};
use super::new_file::header;
use super::recovery::LogError;
use super::sealed_file::SealedFile;
use super::writer::{LogWriter, is_full};
use crate::disk::DiskFile;

/// What ended.
#[derive(Debug, PartialEq, Eq)]
pub enum FileWorkEnd {
    /// [`LogWriter::room`] changed: the next file is there, or the disk is too full for it.
    Room,
    /// A file got its footer; `None`: the disk is too full for it, and it is tried again.
    Sealed(Option<Box<SealedFile>>),
    /// A compacted file got number and name; `None`: the disk is full, and the file is given up.
    Named(Option<Box<SealedFile>>),
}

impl LogWriter {
    fn work(&mut self, piece: Piece) -> FileWork {
        self.working = true;
        FileWork {
            disk: Arc::clone(&self.setup.disk),
            piece,
        }
    }

    /// True while a piece of work is begun and not ended.
    pub fn is_working(&self) -> bool {
        self.working
    }

    /// True when [`LogWriter::begin_spare`] has something to do.
    pub fn wants_spare(&self) -> bool {
        let usual = self.setup.file_bytes;
        self.spares.iter().all(|spare| spare.limit < usual)
    }

    /// Begins to make the next file in advance; `None` if there is one, or another piece is under way. While there is only a short
    /// one, one of the usual length behind it.
    ///
    /// # Errors
    /// Numbers are used up.
    pub fn begin_spare(&mut self) -> Result<Option<FileWork>, LogError> {
        if !self.wants_spare() || self.working {
            return Ok(None);
        }
        self.check_number()?;
        let (next, bytes) = (self.next_file, self.setup.file_bytes);
        let header = header(&mut self.setup, next, bytes);
        let alone = !self.has_spare();
        Ok(Some(self.work(Piece::Spare { header, alone })))
    }

    fn check_number(&self) -> Result<(), LogError> {
        match self.next_file > u64::from(u32::MAX) {
            true => Err(LogError::Numbers(self.next_file)),
            false => Ok(()),
        }
    }

    /// True when [`LogWriter::begin_seal`] has something to do; `again`: also if the disk was too full for it the last time.
    pub fn wants_seal(&self, again: bool) -> bool {
        let durable = !self.setup.sync.always() || !self.is_dirty();
        !self.unsealed.is_empty() && durable && (again || !self.footer_full)
    }

    /// Begins the footer of the oldest file that lacks one, when all before it and itself are durable. `None`: there is none, it must
    /// wait for a sync, or another piece is under way.
    ///
    /// # Errors
    /// Of the disk; final.
    pub fn begin_seal(&mut self) -> Result<Option<FileWork>, LogError> {
        if !self.wants_seal(true) || self.working {
            return Ok(None);
        }
        // In the relaxed modes this is what bounds the loss to the newest files.
        self.sync()?;
        let Some(unsealed) = self.unsealed.pop_front() else {
            return Ok(None);
        };
        self.sealing = Some(unsealed.header.file as u32);
        Ok(Some(self.work(Piece::Footer(Box::new(unsealed)))))
    }

    /// Begins to give a compacted file its number and name. No other piece may be under way.
    ///
    /// # Errors
    /// Numbers are used up.
    pub fn begin_name(&mut self, mut finished: FinishedFile) -> Result<FileWork, LogError> {
        debug_assert!(!self.working, "numbers are given one after the other");
        self.check_number()?;
        finished.footer.header.file = self.next_file;
        Ok(self.work(Piece::Name(finished)))
    }

    /// Ends a piece of work.
    ///
    /// # Errors
    /// Whatever the disk said, but for being full; final.
    pub fn end(&mut self, done: FileWorkDone) -> Result<FileWorkEnd, LogError> {
        self.working = false;
        match done.0 {
            Done::Spare(made) => {
                self.take_spare(made)?;
                Ok(FileWorkEnd::Room)
            }
            Done::Footer(unsealed, written) => {
                self.sealing = None;
                match written {
                    Ok(sealed) => {
                        self.footer_full = false;
                        let sealed = self.announce(unsealed.file, sealed);
                        Ok(FileWorkEnd::Sealed(Some(sealed)))
                    }
                    Err(error) if is_full(&error) => {
                        self.footer_full = true;
                        self.unsealed.push_front(*unsealed);
                        Ok(FileWorkEnd::Sealed(None))
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Done::Name(named) => match named {
                Ok((file, sealed)) => {
                    self.next_file += 1;
                    Ok(FileWorkEnd::Named(Some(self.announce(file, sealed))))
                }
                Err(error) if is_full(&error) => Ok(FileWorkEnd::Named(None)),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Tells readers and the core where the entries of a sealed file are.
    fn announce(&self, file: Arc<dyn DiskFile>, sealed: Sealed) -> Box<SealedFile> {
        let number = sealed.footer.header.file as u32;
        self.files.insert_sealed(number, file, sealed.table);
        Box::new(SealedFile {
            sealed_below: self.sealed_below(),
            replay_from: self.snapshot_file().filter(|_| !self.is_dirty()),
            ..SealedFile::of(&sealed.footer, sealed.bytes)
        })
    }

    /// Gives the oldest file that lacks one its footer, in one go. `None`: nothing was sealed.
    ///
    /// # Errors
    /// As [`LogWriter::end`].
    pub fn seal(&mut self) -> Result<Option<SealedFile>, LogError> {
        let Some(work) = self.begin_seal()? else {
            return Ok(None);
        };
        match self.end(work.run())? {
            FileWorkEnd::Sealed(sealed) => Ok(sealed.map(|sealed| *sealed)),
            other => unreachable!("a footer was begun: {other:?}"),
        }
    }

    /// Gives a compacted file its number and name, in one go; durable on return. `None` when the disk is full: the file is given up.
    ///
    /// # Errors
    /// As [`LogWriter::end`].
    pub fn adopt(&mut self, finished: FinishedFile) -> Result<Option<SealedFile>, LogError> {
        let work = self.begin_name(finished)?;
        match self.end(work.run())? {
            FileWorkEnd::Named(sealed) => Ok(sealed.map(|sealed| *sealed)),
            other => unreachable!("a name was begun: {other:?}"),
        }
    }

    /// Makes the next file in advance, in one go, if there is none. A full disk, or no file descriptor, is no error.
    ///
    /// # Errors
    /// As [`LogWriter::end`].
    pub fn make_spare(&mut self) -> Result<(), LogError> {
        if let Some(work) = self.begin_spare()? {
            self.end(work.run())?;
        }
        Ok(())
    }
}
