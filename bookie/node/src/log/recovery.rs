//! Reads the whole log at start and decides where it ends (storage.md 4.3).
//!
//! At the first hole, a later valid group that states a durable end beyond it proves damage: the hole is reported and passed over.
//! Without such proof the hole is a torn tail: the log ends there, and what lies behind it (in any later file too) is void,
//! because any subset of unsynced bytes may have survived. A file whose number is skipped and that no later file declares void
//! was taken away: damage, since each file is durable in the directory before the next one is made. Nothing is changed on the disk
//! here; the writer makes the decision durable in a new file before it removes anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::mutant::{Mutant, Mutation};

use super::format::{
    BLOCK_BYTES, DiskIdentity, FileHeader, FileHeaderError, GROUP_HEADER_BYTES, GroupHeader,
    LogPosition, file_name, file_number,
};
use super::record::{DamagedRange, Record, RecordError, Records};
use super::scan::{Evidence, FileScan};
use crate::disk::{Disk, DiskError, DiskFile};
use crate::index::Location;

/// Takes the records of the log, in log order.
pub trait Replay {
    /// One record and where it stands.
    fn apply(&mut self, record: &Record, location: Location);
}

/// Why the log cannot be opened or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file of another cell, incarnation or disk lies in the directory.
    #[error(
        "log file {name} belongs to another disk (cell {cell}); remove what does not belong here"
    )]
    Foreign {
        /// The file.
        name: String,
        /// Its cell.
        cell: hulse_proto::id::CellId,
    },
    /// A file of a newer version.
    #[error("log file {name}: {source}; start the version that wrote it")]
    Version {
        /// The file.
        name: String,
        /// What is newer.
        source: FileHeaderError,
    },
    /// A record of a newer version.
    #[error("log file {name} at {offset}: {source}; start the version that wrote it")]
    Record {
        /// The file.
        name: String,
        /// Of the group.
        offset: u64,
        /// What is newer.
        source: RecordError,
    },
    /// More files than numbers.
    #[error("log file numbers are used up at {0}")]
    Numbers(u64),
}

/// What the scan found and decided.
pub struct Recovered {
    /// Logical end of the log.
    pub end: LogPosition,
    /// Number of the next group.
    pub next_sequence: u64,
    /// Number of the next file.
    pub next_file: u64,
    /// Every damaged range, new and known.
    pub damage: Vec<DamagedRange>,
    /// Files of which nothing counts.
    pub void: Vec<u64>,
    /// The file that ended before its bytes did, and where.
    pub tail: Option<LogPosition>,
    /// Open files, by number.
    pub files: BTreeMap<u64, Arc<dyn DiskFile>>,
    /// Bytes read.
    pub scanned_bytes: u64,
    /// Groups accepted.
    pub groups: u64,
}

struct LogFile {
    file: Arc<dyn DiskFile>,
    header: Result<FileHeader, FileHeaderError>,
    bytes: u64,
}

impl LogFile {
    fn scan(&self, limit: u64) -> FileScan {
        let salt = self.header.map_or(0, |header| header.salt);
        FileScan::new(Arc::clone(&self.file), salt, limit.min(self.bytes))
    }
}

/// Scans the log of a disk.
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
    let files = open_files(disk, identity)?;
    let next_file = files.last_key_value().map_or(0, |(id, _)| id + 1);
    if next_file > u64::from(u32::MAX) {
        return Err(LogError::Numbers(next_file));
    }
    let seals = read_seals(&files)?;
    for (id, file) in &files {
        if !seals.contains_key(id) {
            // What is found here is served as durable, so it must be.
            file.file.settle()?;
        }
    }
    let mut pass = Pass {
        files: &files,
        seals: &seals,
        survived,
        mutation,
        replay,
        out: Recovered {
            end: LogPosition::default(),
            next_sequence: 0,
            next_file,
            damage: Vec::new(),
            void: Vec::new(),
            tail: None,
            files: BTreeMap::new(),
            scanned_bytes: 0,
            groups: 0,
        },
        resync: false,
    };
    pass.run()?;
    Ok(pass.out)
}

fn open_files(
    disk: &dyn Disk,
    identity: &DiskIdentity,
) -> Result<BTreeMap<u64, LogFile>, LogError> {
    let mut files = BTreeMap::new();
    for name in disk.list()? {
        let Some(id) = file_number(&name) else {
            continue;
        };
        let file = disk.open(&name)?;
        let header = FileHeader::decode(&file.read_at(0, BLOCK_BYTES)?);
        match header {
            Err(source @ (FileHeaderError::Version(_) | FileHeaderError::Features(_))) => {
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
        let header = header.and_then(|header| match header.file == id {
            true => Ok(header),
            false => Err(FileHeaderError::Damaged),
        });
        let bytes = file.bytes()?;
        files.insert(
            id,
            LogFile {
                file,
                header,
                bytes,
            },
        );
    }
    Ok(files)
}

/// Logical ends that later files state; the newest statement counts, and void files state nothing.
fn read_seals(files: &BTreeMap<u64, LogFile>) -> Result<BTreeMap<u64, u64>, LogError> {
    let mut seals = BTreeMap::new();
    for (id, file) in files.iter().rev() {
        if seals.get(id) == Some(&0) || file.header.is_err() {
            continue;
        }
        let mut scan = file.scan(u64::MAX);
        let Ok((_, area)) = scan.group_at(BLOCK_BYTES as u64)? else {
            continue;
        };
        for record in Records::new(area).map_while(Result::ok) {
            if let Record::SealMark { file, end } = record.record
                && file < *id
            {
                seals.entry(file).or_insert(end);
            }
        }
    }
    Ok(seals)
}

struct Pass<'a> {
    files: &'a BTreeMap<u64, LogFile>,
    seals: &'a BTreeMap<u64, u64>,
    survived: bool,
    mutation: Mutation,
    replay: &'a mut dyn Replay,
    out: Recovered,
    /// After damage the number of the next group is not known.
    resync: bool,
}

impl Pass<'_> {
    fn run(&mut self) -> Result<(), LogError> {
        let files = self.files;
        let mut kept = BTreeSet::new();
        // Where each file logically ends: what lies behind a lost file or a hole does not move the end of one before.
        let mut ends = BTreeMap::new();
        let mut torn = false;
        let numbers = 0..self.out.next_file;
        for id in numbers.filter(|id| self.seals.get(id) != Some(&0)) {
            if !files.contains_key(&id) {
                self.damaged_to_end(id, 0, 0);
                continue;
            }
            kept.insert(id);
            let end = self.file(id)?;
            ends.insert(
                id,
                end.or(self.seals.get(&id).copied())
                    .unwrap_or(files[&id].bytes),
            );
            if let Some(end) = end {
                torn = true;
                if end <= BLOCK_BYTES as u64 && !self.out.damage.iter().any(|r| r.file == id) {
                    kept.remove(&id);
                } else {
                    self.out.end = LogPosition {
                        file: id,
                        offset: end,
                    };
                }
                break;
            }
        }
        // A torn log is sealed anew even if a file that is void now had sealed it before.
        if let Some(last) = kept.last()
            && (torn || !self.seals.contains_key(last))
        {
            let offset = ends[last];
            self.out.tail = Some(LogPosition {
                file: *last,
                offset,
            });
        }
        self.out.void = files
            .keys()
            .filter(|id| !kept.contains(id))
            .copied()
            .collect();
        let open = kept.iter().map(|id| (*id, Arc::clone(&files[id].file)));
        self.out.files = open.collect();
        self.out.damage.sort();
        Ok(())
    }

    /// Scans one file. `Some(end)`: the log ends here.
    fn file(&mut self, id: u64) -> Result<Option<u64>, LogError> {
        let file = &self.files[&id];
        let sealed = self.seals.get(&id).copied();
        if file.header.is_err() {
            // A file gets its name after its header is durable, so even one that is cut short before its end was whole once.
            self.damaged_to_end(id, 0, file.bytes);
            return Ok(None);
        }
        let mut scan = file.scan(sealed.unwrap_or(u64::MAX));
        let end = self.groups(id, &mut scan, sealed)?;
        self.out.scanned_bytes += scan.read_bytes();
        Ok(end)
    }

    fn groups(
        &mut self,
        id: u64,
        scan: &mut FileScan,
        sealed: Option<u64>,
    ) -> Result<Option<u64>, LogError> {
        let mut at = BLOCK_BYTES as u64;
        let limit = scan.limit();
        while at < limit {
            let valid = match scan.group_at(at)? {
                Ok((header, area)) if self.in_sequence(&header) => {
                    self.group(id, &header, area)?;
                    at += header.padded_bytes();
                    self.out.end = LogPosition {
                        file: id,
                        offset: at,
                    };
                    continue;
                }
                Ok((header, _)) => header.sequence > self.out.next_sequence,
                Err(_) => false,
            };
            // A valid group of a later number: what is missing lies before it, in this file or the one before.
            let hole = if valid {
                self.out.end
            } else {
                LogPosition {
                    file: id,
                    offset: at,
                }
            };
            let trusting = self.mutation.is(Mutant::TruncateAtFirstBadGroup);
            if trusting || !self.proof(hole, Some((&mut *scan, at, id)))? {
                return Ok(Some(at));
            }
            let from = if valid { at } else { at + BLOCK_BYTES as u64 };
            match scan.next_group(from, self.out.next_sequence)? {
                Some(next) => {
                    let end = if valid { u64::MAX } else { next.offset };
                    self.damaged(hole.file, hole.offset, end);
                    self.out.next_sequence = next.sequence;
                    at = next.offset;
                    self.resync = false;
                }
                None => {
                    self.damaged_to_end(id, at, limit);
                    return Ok(None);
                }
            }
        }
        // A sealed file that is shorter than its seal has lost its end.
        if let Some(sealed) = sealed
            && limit < sealed
        {
            self.damaged_to_end(id, limit, sealed);
        }
        Ok(None)
    }

    fn in_sequence(&mut self, header: &GroupHeader) -> bool {
        if self.resync && header.sequence >= self.out.next_sequence {
            self.resync = false;
            self.out.next_sequence = header.sequence;
        }
        header.sequence == self.out.next_sequence
    }

    fn group(&mut self, id: u64, header: &GroupHeader, area: &[u8]) -> Result<(), LogError> {
        for record in Records::new(area) {
            let record = match record {
                Ok(record) => record,
                Err(source @ RecordError::Unknown { .. }) => {
                    return Err(LogError::Record {
                        name: file_name(id),
                        offset: header.offset,
                        source,
                    });
                }
                Err(_) => {
                    // The group's checksum held, so a writer made this: the rest of the group cannot be believed.
                    self.damaged(id, header.offset, header.offset + header.padded_bytes());
                    break;
                }
            };
            let offset = header.offset + (GROUP_HEADER_BYTES + record.at) as u64;
            self.replay.apply(
                &record.record,
                Location {
                    file: id as u32,
                    offset: offset as u32,
                    bytes: record.bytes as u32,
                },
            );
        }
        self.out.next_sequence = header.sequence + 1;
        self.out.groups += 1;
        Ok(())
    }

    fn damaged(&mut self, file: u64, first: u64, end: u64) {
        self.out.damage.push(DamagedRange { file, first, end });
        self.resync = end == u64::MAX;
    }

    /// The rest of a file is lost. The log's end lies behind it, so that the next file's groups prove the hole for ever.
    fn damaged_to_end(&mut self, file: u64, first: u64, bytes: u64) {
        self.damaged(file, first, u64::MAX);
        let offset = bytes.max(first + 1);
        self.out.end = LogPosition { file, offset };
    }

    /// True when a later valid group proves that what stood at `hole` was durable.
    fn proof(
        &self,
        hole: LogPosition,
        here: Option<(&mut FileScan, u64, u64)>,
    ) -> Result<bool, LogError> {
        let mut evidence = Evidence::default();
        let mut after = hole.file;
        if let Some((scan, at, id)) = here {
            let torn = (hole.file == id && hole.offset == at).then_some(at);
            evidence = evidence.and(scan.evidence(at, torn)?);
            after = id;
        }
        for (id, file) in self.files.range(after + 1..) {
            if self.seals.get(id) != Some(&0) && file.header.is_ok() {
                let mut scan = file.scan(self.seals.get(id).copied().unwrap_or(u64::MAX));
                evidence = evidence.and(scan.evidence(BLOCK_BYTES as u64, None)?);
            }
        }
        let proved = evidence.synced > hole || (self.survived && evidence.any);
        Ok(proved || self.misses_file_after(hole.file))
    }

    /// True when a file behind this one was taken away, or lost its header: it was begun after this one was durable, and nothing that
    /// is torn has such a file behind it. (But for one that a start began behind a torn tail and did not live to seal; then limbo
    /// where none was needed is the smaller harm.)
    fn misses_file_after(&self, file: u64) -> bool {
        let mut behind = file + 1..self.out.next_file;
        behind.any(|id| {
            let lost = self.files.get(&id).is_none_or(|file| file.header.is_err());
            lost && self.seals.get(&id) != Some(&0)
        })
    }
}
