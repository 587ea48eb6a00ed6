//! What a start finds in the log, and the entry into finding it.

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::mutant::Mutation;

use super::error::LogError;
use super::open::{LogFile, open_files, read_seals};
use super::pass::Pass;
use super::rotten::RottenEntry;
use crate::disk::{Disk, DiskError, DiskFile};
use crate::index::Location;
use crate::log::files::{FileTable, SlotTable};
use crate::log::footer::Footer;
use crate::log::footer_builder::FooterBuilder;
use crate::log::footer_file::read_again;
use crate::log::format::{DiskIdentity, FileHeader, FileKind, LogPosition, side_number};
use crate::log::record::{DamagedRange, Record};

/// Takes what stands in files without a footer, in the order of their numbers.
pub trait Replay {
    /// A file begins.
    fn file(&mut self, kind: FileKind, file: u32);

    /// One record of it and where it stands.
    fn apply(&mut self, record: &Record, location: Location);
}

/// A file that has no footer yet.
pub struct Unsealed {
    /// Its header.
    pub header: FileHeader,
    /// Its bytes.
    pub file: Arc<dyn DiskFile>,
    /// What its footer will say.
    pub footer: FooterBuilder,
    /// The footer goes into a file of its own: something stands behind the body, e.g. a damaged footer.
    pub aside: bool,
}

/// A file with a footer, as a start finds it.
pub struct SealedOnDisk {
    /// What the footer says, but for the ledgers.
    pub footer: Footer,
    /// Its slots; the whole footer stands behind them.
    pub slots: SlotTable,
    /// Length of the file.
    pub bytes: u64,
    /// The file, for its head.
    pub file: Arc<dyn DiskFile>,
}

impl SealedOnDisk {
    /// The footer with its ledgers, read anew.
    ///
    /// # Errors
    /// Of the disk.
    pub fn whole_footer(&self) -> Result<Footer, DiskError> {
        read_again(self.footer.header.file, &self.slots)
    }
}

/// What the start found and decided.
pub struct Recovered {
    /// Logical end of the log.
    pub end: LogPosition,
    /// Number of the next group.
    pub next_sequence: u64,
    /// Number of the next file.
    pub next_file: u64,
    /// Every damaged range, new and known.
    pub damage: Vec<DamagedRange>,
    /// Entries of files without a footer of which the payload is wrong; each stands in the index all the same.
    pub rotten: Vec<RottenEntry>,
    /// Log files of which nothing counts.
    pub void: Vec<u64>,
    /// Names of other files that are to go: removed ones, and footers of what is gone.
    pub unwanted: Vec<String>,
    /// The log file that ended before its bytes did, and where.
    pub tail: Option<LogPosition>,
    /// Open files, but for void ones.
    pub files: FileTable,
    /// Files that need a footer, by number.
    pub unsealed: Vec<Unsealed>,
    /// Files with a footer, by number.
    pub sealed: Vec<SealedOnDisk>,
    /// Bytes of bodies that were read.
    pub scanned_bytes: u64,
    /// Groups accepted.
    pub groups: u64,
}

/// Reads the log of a disk: `replay` takes what lacks a footer; the footers are returned.
///
/// `survived`: the kernel that took the writes still runs, so nothing that was written can be torn out of the middle.
///
/// # Errors
/// [`LogError`]: the disk cannot be read, or holds what this build must not touch. Damage is no error.
pub fn recover(
    disk: &dyn Disk,
    identity: &DiskIdentity,
    survived: bool,
    mutation: Mutation,
    replay: &mut dyn Replay,
) -> Result<Recovered, LogError> {
    let mut files = open_files(disk, identity)?;
    let next_file = files.last_key_value().map_or(0, |(id, _)| id + 1);
    if next_file > u64::from(u32::MAX) {
        return Err(LogError::Numbers(next_file));
    }
    let seals = read_seals(&files)?;
    for (id, file) in &files {
        if !seals.contains_key(id) && file.footer.is_none() {
            // What is found here is served as durable, so it must be.
            file.file.settle()?;
        }
    }
    let pass = Pass::new(&files, &seals, (survived, mutation), replay);
    let mut out = pass.run(next_file)?;
    hand_over(&mut files, &mut out);
    for name in disk.list()? {
        let of = side_number(&name);
        if of.is_some_and(|file| out.files.get(file as u32).is_none()) {
            out.unwanted.push(name);
        }
    }
    Ok(out)
}

/// Opens for readers what counts.
fn hand_over(files: &mut BTreeMap<u64, LogFile>, out: &mut Recovered) {
    for (id, found) in std::mem::take(files) {
        if out.void.contains(&id) {
            continue;
        }
        let file = Arc::clone(&found.file);
        match found.footer {
            Some((footer, slots)) => {
                let table = slots.clone();
                out.files.insert_sealed(id as u32, Arc::clone(&file), table);
                let bytes = found.bytes;
                out.sealed.push(SealedOnDisk {
                    footer,
                    slots,
                    bytes,
                    file,
                });
            }
            None => out.files.insert(id as u32, file),
        }
    }
}
