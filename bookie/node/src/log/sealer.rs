//! The writer's other half: gives full files their footers, compacted ones their names, and takes away what is dead.
//!
//! # Invariants
//! 1. A footer is written when its file, and every one before it, is durable (storage.md 4.4).
//! 2. A full disk only delays a footer, which is a hint, and gives up a compacted file, whose sources are still there. Any other error
//!    is final (E1).

use std::sync::Arc;

use super::compacted::FinishedFile;
use super::files::SlotTable;
use super::footer_file::{write_pages, write_side, write_tail};
use super::format::footer::{Footer, FooterSlot};
use super::format::{FileKind, name_of, side_name};
use super::recovery::{LogError, Unsealed};
use super::sealed_file::SealedFile;
use super::writer::{LogWriter, is_full};
use crate::disk::{DiskError, DiskFile};

impl LogWriter {
    /// True when [`LogWriter::seal`] has something to do; `again`: also if the disk was too full for it the last time.
    pub fn wants_seal(&self, again: bool) -> bool {
        let durable = !self.setup.sync.always() || !self.is_dirty();
        !self.unsealed.is_empty() && durable && (again || !self.footer_full)
    }

    /// Gives the oldest file that lacks one its footer, when all before it and itself are durable. `None`: there is none, it must wait
    /// for a sync, or the disk is full; then it is tried again.
    ///
    /// # Errors
    /// Any other failure of the disk; final.
    pub fn seal(&mut self) -> Result<Option<SealedFile>, LogError> {
        if !self.wants_seal(true) {
            return Ok(None);
        }
        // In the relaxed modes this is what bounds the loss to the newest files.
        self.sync()?;
        let Some(unsealed) = self.unsealed.pop_front() else {
            return Ok(None);
        };
        let (footer, slots) = unsealed.footer.finish(unsealed.header.clone());
        match self.write_footer(&unsealed, &footer, &slots) {
            Ok((table, bytes)) => {
                self.footer_full = false;
                let number = unsealed.header.file as u32;
                self.files.insert_sealed(number, unsealed.file, table);
                Ok(Some(self.announce(SealedFile::of(&footer, bytes))))
            }
            Err(error) if is_full(&error) => {
                self.footer_full = true;
                self.unsealed.push_front(unsealed);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn announce(&self, sealed: SealedFile) -> SealedFile {
        SealedFile {
            sealed_below: self.sealed_below(),
            replay_from: self.snapshot_file().filter(|_| !self.is_dirty()),
            ..sealed
        }
    }

    fn write_footer(
        &self,
        unsealed: &Unsealed,
        footer: &Footer,
        slots: &[FooterSlot],
    ) -> Result<(SlotTable, u64), DiskError> {
        if unsealed.aside {
            let table = write_side(self.setup.disk.as_ref(), footer, slots)?;
            return Ok((table, unsealed.file.bytes()?));
        }
        let table = write_pages(&unsealed.file, footer.end, footer.header.salt, slots)?;
        let bytes = write_tail(footer, &table)?;
        self.sync_file(unsealed.file.as_ref())?;
        Ok((table, bytes))
    }

    /// Gives a compacted file its number and name; durable on return. `None` when the disk is full: the file is given up.
    ///
    /// # Errors
    /// Any other failure of the disk; final.
    pub fn adopt(&mut self, finished: FinishedFile) -> Result<Option<SealedFile>, LogError> {
        if self.next_file > u64::from(u32::MAX) {
            return Err(LogError::Numbers(self.next_file));
        }
        let FinishedFile {
            file,
            mut footer,
            slots,
        } = finished;
        footer.header.file = self.next_file;
        match self.name_compacted(&file, &footer, &slots) {
            Ok(bytes) => {
                self.next_file += 1;
                let number = footer.header.file as u32;
                self.files.insert_sealed(number, file, slots);
                Ok(Some(self.announce(SealedFile::of(&footer, bytes))))
            }
            Err(error) if is_full(&error) => {
                self.setup.disk.remove(FinishedFile::tmp_name())?;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn name_compacted(
        &self,
        file: &Arc<dyn DiskFile>,
        footer: &Footer,
        slots: &SlotTable,
    ) -> Result<u64, DiskError> {
        file.write_at(0, &footer.header.encode())?;
        let bytes = write_tail(footer, slots)?;
        self.sync_file(file.as_ref())?;
        let disk = &self.setup.disk;
        let name = name_of(FileKind::Compacted, footer.header.file);
        disk.rename(FinishedFile::tmp_name(), &name)?;
        disk.sync_dir()?;
        Ok(bytes)
    }

    /// Takes a file away that nothing lives in any more; [`crate::log::Record::FilesRemoved`] is durable. Reads that hold it go on.
    ///
    /// # Errors
    /// Of the disk; final.
    pub fn remove(&mut self, kind: FileKind, file: u32) -> Result<(), LogError> {
        self.files.remove(file);
        let disk = &self.setup.disk;
        disk.remove(&name_of(kind, u64::from(file)))?;
        disk.remove(&side_name(u64::from(file)))?;
        Ok(disk.sync_dir()?)
    }
}
