//! Walks all log files in their order: takes groups over, tells torn from damaged, and finds the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::mutant::{Mutant, Mutation};

use super::error::LogError;
use super::open::LogFile;
use super::recovered::{Recovered, Replay, Unsealed};
use super::rotten::{location_of, told_group};
use crate::index::IdRanges;
use crate::log::files::FileTable;
use crate::log::footer::Footer;
use crate::log::footer_builder::FooterBuilder;
use crate::log::format::{BLOCK_BYTES, GroupHeader, LogPosition, name_of};
use crate::log::record::{DamagedRange, Record, RecordError, Records};
use crate::log::scan::{Evidence, FileScan};

/// The walk.
pub(super) struct Pass<'a> {
    files: &'a BTreeMap<u64, LogFile>,
    seals: &'a BTreeMap<u64, u64>,
    survived: bool,
    mutation: Mutation,
    replay: &'a mut dyn Replay,
    /// Of the files that are scanned.
    footers: BTreeMap<u64, FooterBuilder>,
    /// Files that were removed on purpose, as far as the walk has come: a removal is durable on record before it is done.
    removed: IdRanges,
    out: Recovered,
    /// After damage the number of the next group is not known.
    resync: bool,
}

/// What a place without the next group turns out to be.
enum Hole {
    /// The log ends there.
    Torn,
    /// Damage, up to the group at this offset.
    Until(u64),
    /// None: the group told what it held. It ends at this offset.
    Told(u64),
    /// Damage, and no group of this file behind it.
    ToTheEnd,
}

/// How far the walk came.
#[derive(Default)]
struct Walked {
    /// Log files that count.
    kept: BTreeSet<u64>,
    /// Where each logically ends: what lies behind a lost file or a hole does not move the end of one before.
    ends: BTreeMap<u64, u64>,
    /// The log ends in the last of them.
    torn: bool,
}

impl<'a> Pass<'a> {
    pub fn new(
        files: &'a BTreeMap<u64, LogFile>,
        seals: &'a BTreeMap<u64, u64>,
        (survived, mutation): (bool, Mutation),
        replay: &'a mut dyn Replay,
    ) -> Self {
        Self {
            files,
            seals,
            survived,
            mutation,
            replay,
            footers: BTreeMap::new(),
            removed: IdRanges::default(),
            out: Recovered {
                end: LogPosition::default(),
                next_sequence: 0,
                next_file: 0,
                damage: Vec::new(),
                rotten: Vec::new(),
                void: Vec::new(),
                unwanted: Vec::new(),
                tail: None,
                files: FileTable::default(),
                unsealed: Vec::new(),
                sealed: Vec::new(),
                scanned_bytes: 0,
                groups: 0,
            },
            resync: false,
        }
    }

    /// Walks the files below `next_file`.
    pub fn run(mut self, next_file: u64) -> Result<Recovered, LogError> {
        self.out.next_file = next_file;
        let mut walked = Walked::default();
        for id in (0..next_file).filter(|id| self.seals.get(id) != Some(&0)) {
            match self.files.get(&id) {
                None => self.damaged_to_end(id, 0, 0),
                Some(found) if !found.is_log() => self.compacted(id, found)?,
                Some(found) => self.log_file(id, found, &mut walked)?,
            }
            if walked.torn {
                self.compacted_behind(*walked.kept.last().unwrap_or(&0))?;
                break;
            }
        }
        self.out.tail = self.tail(&walked);
        let logs = self.files.iter().filter(|(_, file)| file.is_log());
        let void = logs.map(|(id, _)| *id);
        self.out.void = void.filter(|id| !walked.kept.contains(id)).collect();
        self.leave_unsealed(&walked.ends)?;
        self.out.damage.sort();
        Ok(self.out)
    }

    /// Takes a log file over, as far as it goes.
    fn log_file(&mut self, id: u64, found: &LogFile, walked: &mut Walked) -> Result<(), LogError> {
        walked.kept.insert(id);
        if let Some((footer, _)) = &found.footer {
            self.sealed(id, found, footer);
            walked.ends.insert(id, footer.end);
            return Ok(());
        }
        let torn_at = self.file(id)?;
        let end = torn_at.or(self.seals.get(&id).copied());
        walked.ends.insert(id, end.unwrap_or(found.bytes));
        let Some(offset) = torn_at else {
            return Ok(());
        };
        walked.torn = true;
        if offset <= BLOCK_BYTES as u64 && !self.out.damage.iter().any(|r| r.file == id) {
            walked.kept.remove(&id);
        } else {
            self.out.end = LogPosition { file: id, offset };
        }
        Ok(())
    }

    /// The last file, if it ends before its bytes do and no later one that counts says so. A torn log is sealed anew even if a file that
    /// is void now had sealed it before.
    fn tail(&self, walked: &Walked) -> Option<LogPosition> {
        let file = *walked.kept.last()?;
        let open = self.files[&file].footer.is_none();
        let unsealed = walked.torn || !self.seals.contains_key(&file);
        (open && unsealed).then(|| LogPosition {
            file,
            offset: walked.ends[&file],
        })
    }

    /// Files that were scanned and count wait for a footer.
    fn leave_unsealed(&mut self, ends: &BTreeMap<u64, u64>) -> Result<(), LogError> {
        for (id, mut footer) in std::mem::take(&mut self.footers) {
            let found = &self.files[&id];
            let Ok(header) = &found.header else {
                continue;
            };
            if self.out.void.contains(&id) {
                continue;
            }
            if let Some(end) = ends.get(&id) {
                footer.end_at(*end);
            }
            // A tail is cut at its end before it gets its footer.
            let tail = self.out.tail.is_some_and(|tail| tail.file == id);
            let behind = found.file.next_data(footer.end())?;
            self.out.unsealed.push(Unsealed {
                header: header.clone(),
                file: Arc::clone(&found.file),
                footer,
                aside: behind.is_some() && !tail,
            });
        }
        Ok(())
    }

    /// A sealed file is not read; that it has a footer proves all before it.
    fn sealed(&mut self, id: u64, found: &LogFile, footer: &Footer) {
        if found.header.is_err() {
            self.out.damage.push(DamagedRange {
                file: id,
                first: 0,
                end: BLOCK_BYTES as u64,
            });
        }
        if !self.resync && footer.first_sequence > self.out.next_sequence {
            let hole = self.out.end;
            self.damaged(hole.file, hole.offset, u64::MAX);
        }
        for record in &footer.state {
            self.note_removal(record);
        }
        self.out.next_sequence = footer.next_sequence;
        self.out.end = LogPosition {
            file: id,
            offset: footer.end,
        };
        // How many groups a lost end of the file had nobody knows.
        self.resync = footer.damage.iter().any(|range| range.end == u64::MAX);
        self.out.damage.extend(&footer.damage);
    }

    /// Compacted files count wherever the log ends.
    fn compacted_behind(&mut self, last: u64) -> Result<(), LogError> {
        for (id, found) in self.files.range(last + 1..) {
            if !found.is_log() && !self.footers.contains_key(id) {
                self.compacted(*id, found)?;
            }
        }
        Ok(())
    }

    /// Each is whole: it got its name after its body and its footer were durable.
    fn compacted(&mut self, id: u64, found: &LogFile) -> Result<(), LogError> {
        if found.footer.is_some() {
            return Ok(());
        }
        let whole = |first| DamagedRange {
            file: id,
            first,
            end: u64::MAX,
        };
        if found.header.is_err() {
            self.out.damage.push(whole(0));
            return Ok(());
        }
        self.replay.file(found.kind, id as u32);
        self.footers.insert(id, FooterBuilder::default());
        let mut scan = found.scan(u64::MAX);
        let mut at = BLOCK_BYTES as u64;
        let mut sequence = 0;
        let mut complete = false;
        while let Some(next) = scan.next_group(at, sequence)? {
            if next.sequence > sequence {
                self.note_damage(DamagedRange {
                    end: next.offset,
                    ..whole(at)
                });
            }
            if let Ok((header, area)) = scan.group_at(next.offset)? {
                let mut records = Records::new(area).map_while(Result::ok);
                complete = records.any(|r| matches!(r.record, Record::SealMark { .. }));
                self.records(id, &header, area)?;
            }
            at = next.offset + next.padded_bytes();
            sequence = next.sequence + 1;
        }
        if !complete {
            self.note_damage(whole(at));
        }
        self.out.scanned_bytes += scan.read_bytes();
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
        self.replay.file(file.kind, id as u32);
        self.footers.insert(id, FooterBuilder::default());
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
            let later = match scan.group_at(at)? {
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
            match self.hole(id, scan, at, later)? {
                Hole::Torn => return Ok(Some(at)),
                Hole::Until(next) => at = next,
                Hole::Told(end) => {
                    at = end;
                    self.out.end = LogPosition {
                        file: id,
                        offset: end,
                    };
                }
                Hole::ToTheEnd => {
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

    /// What stands at `at` is not the next group: a torn tail, or damage. `later`: it is a valid group of a later number, so what is
    /// missing lies before it, in this file or the one before.
    fn hole(
        &mut self,
        id: u64,
        scan: &mut FileScan,
        at: u64,
        later: bool,
    ) -> Result<Hole, LogError> {
        let hole = match later {
            true => self.out.end,
            false => LogPosition {
                file: id,
                offset: at,
            },
        };
        let trusting = self.mutation.is(Mutant::TruncateAtFirstBadGroup);
        if trusting || !self.proof(hole, Some((&mut *scan, at, id)))? {
            return Ok(Hole::Torn);
        }
        if let Some(end) = self.told(id, scan, at)? {
            return Ok(Hole::Told(end));
        }
        let from = if later { at } else { at + BLOCK_BYTES as u64 };
        let Some(next) = scan.next_group(from, self.out.next_sequence)? else {
            return Ok(Hole::ToTheEnd);
        };
        let end = if later { u64::MAX } else { next.offset };
        self.damaged(hole.file, hole.offset, end);
        self.out.next_sequence = next.sequence;
        self.resync = false;
        Ok(Hole::Until(next.offset))
    }

    /// Takes over the group at `at`, which was durable, if it tells all the same what it held; its end.
    fn told(&mut self, id: u64, scan: &mut FileScan, at: u64) -> Result<Option<u64>, LogError> {
        let Some(told) = told_group(id, scan, at)? else {
            return Ok(None);
        };
        // Else it may be one of those that are missing before it. Behind files that were removed it is as good as any group.
        if !self.in_sequence(&told.header) {
            return Ok(None);
        }
        if told.rotten.is_empty() {
            tracing::warn!(
                file = id,
                at,
                "a bit of the log flipped; what it was is certain, and nothing is lost"
            );
        }
        self.out.rotten.extend(told.rotten);
        self.group(id, &told.header, &told.body)?;
        Ok(Some(at + told.header.padded_bytes()))
    }

    fn in_sequence(&mut self, header: &GroupHeader) -> bool {
        if self.resync && header.sequence >= self.out.next_sequence {
            self.resync = false;
            self.out.next_sequence = header.sequence;
        }
        header.sequence == self.out.next_sequence
    }

    fn group(&mut self, id: u64, header: &GroupHeader, area: &[u8]) -> Result<(), LogError> {
        self.records(id, header, area)?;
        self.out.next_sequence = header.sequence + 1;
        self.out.groups += 1;
        Ok(())
    }

    fn records(&mut self, id: u64, header: &GroupHeader, area: &[u8]) -> Result<(), LogError> {
        for record in Records::new(area) {
            let record = match record {
                Ok(record) => record,
                Err(source @ (RecordError::Unknown { .. } | RecordError::EntryVersion { .. })) => {
                    return Err(LogError::Record {
                        name: name_of(self.files[&id].kind, id),
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
            let location = location_of(id, header, &record);
            self.note_removal(&record.record);
            self.replay.apply(&record.record, location);
            if let Some(footer) = self.footers.get_mut(&id) {
                footer.record(&record.record, location);
            }
        }
        if let Some(footer) = self.footers.get_mut(&id) {
            footer.group(header);
        }
        Ok(())
    }

    fn note_removal(&mut self, record: &Record) {
        if let Record::FilesRemoved { first, end } = *record {
            self.removed.insert(first, end);
        }
    }

    fn damaged(&mut self, file: u64, first: u64, end: u64) {
        self.note_damage(DamagedRange { file, first, end });
        self.resync = end == u64::MAX;
    }

    fn note_damage(&mut self, range: DamagedRange) {
        self.out.damage.push(range);
        // The next start reads no more of this file than its footer.
        if let Some(footer) = self.footers.get_mut(&range.file) {
            footer.damaged(range);
        }
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
            if !file.is_log() || self.seals.get(id) == Some(&0) {
                continue;
            }
            if let Some((footer, _)) = &file.footer {
                let synced = LogPosition {
                    file: *id,
                    offset: footer.end,
                };
                evidence = evidence.and(Evidence { synced, any: true });
            } else if file.header.is_ok() {
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
            let found = self.files.get(&id);
            let lost = found.is_none_or(|file| file.is_log() && file.header.is_err());
            lost && self.seals.get(&id) != Some(&0) && !self.removed.contains(id)
        })
    }
}
