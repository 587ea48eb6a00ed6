//! Opens the files of a log: headers, footers, and the ends that later files state.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::LogError;
use super::rotten::told_group;
use crate::disk::{Disk, DiskFile};
use crate::log::files::SlotTable;
use crate::log::footer::Footer;
use crate::log::footer_file::read_footer;
use crate::log::format::{
    BLOCK_BYTES, DiskIdentity, FileHeader, FileHeaderError, FileKind, kind_and_number,
};
use crate::log::record::{Record, Records};
use crate::log::scan::FileScan;

/// A file as it was found.
pub(super) struct LogFile {
    pub kind: FileKind,
    pub file: Arc<dyn DiskFile>,
    pub header: Result<FileHeader, FileHeaderError>,
    pub bytes: u64,
    /// Without its ledgers.
    pub footer: Option<(Footer, SlotTable)>,
}

impl LogFile {
    pub fn scan(&self, limit: u64) -> FileScan {
        let salt = self.header.as_ref().map_or(0, |header| header.salt);
        FileScan::new(Arc::clone(&self.file), salt, limit.min(self.bytes))
    }

    pub fn is_log(&self) -> bool {
        self.kind == FileKind::Log
    }
}

/// All files, by number.
pub(super) fn open_files(
    disk: &dyn Disk,
    identity: &DiskIdentity,
) -> Result<BTreeMap<u64, LogFile>, LogError> {
    let mut files = BTreeMap::new();
    for name in disk.list()? {
        let Some((kind, id)) = kind_and_number(&name) else {
            continue;
        };
        let file = disk.open(&name)?;
        let header = FileHeader::decode(&file.read_at(0, BLOCK_BYTES)?);
        match &header {
            Err(source @ (FileHeaderError::Version(_) | FileHeaderError::Features(_))) => {
                let source = *source;
                return Err(LogError::Version { name, source });
            }
            Ok(header) if header.identity != *identity => {
                return Err(LogError::Foreign {
                    name,
                    cell: header.identity.cell,
                });
            }
            _ => {}
        }
        let right = |header: &FileHeader| header.file == id && header.kind == kind;
        let header = match header {
            Ok(header) if right(&header) => Ok(header),
            _ => Err(FileHeaderError::Damaged),
        };
        let footer = read_footer(disk, id, &file).filter(|(footer, _)| match &header {
            Ok(header) => footer.header == *header,
            Err(_) => right(&footer.header) && footer.header.identity == *identity,
        });
        // Of all files together they would take much more than the index that is made of them, file by file.
        let footer = footer.map(|(footer, slots)| (footer.without_ledgers(), slots));
        let found = LogFile {
            kind,
            bytes: file.bytes()?,
            file,
            header,
            footer,
        };
        files.insert(id, found);
    }
    Ok(files)
}

/// Logical ends that later files state of log files without a footer; the newest statement counts, and void files state nothing.
pub(super) fn read_seals(files: &BTreeMap<u64, LogFile>) -> Result<BTreeMap<u64, u64>, LogError> {
    let mut seals = BTreeMap::new();
    let open = files.iter().find(|(_, file)| file.footer.is_none());
    let Some((&oldest_open, _)) = open else {
        return Ok(seals);
    };
    for (id, file) in files.range(oldest_open..).rev() {
        if seals.get(id) == Some(&0) || file.header.is_err() || !file.is_log() {
            continue;
        }
        let mut scan = file.scan(u64::MAX);
        let first = BLOCK_BYTES as u64;
        let area = match scan.group_at(first)? {
            Ok((_, area)) => area.to_vec(),
            Err(_) => match told_group(*id, &mut scan, first)? {
                Some(told) if told.rotten.is_empty() => told.body,
                _ => continue,
            },
        };
        for record in Records::new(&area).map_while(Result::ok) {
            if let Record::SealMark { file, end } = record.record
                && file < *id
            {
                seals.entry(file).or_insert(end);
            }
        }
    }
    Ok(seals)
}
