//! From what a start finds to the node's state: records of what lacks a footer, the newest snapshot, footers.
//!
//! # Invariants
//! 1. The newest complete snapshot names every ledger that older files know and that is not dead: what they hold of others belongs to
//!    ledgers whose tombstones were forgotten, and stays forgotten (storage.md G4).
//! 2. State records of files older than that snapshot are not needed; those of newer ones are all applied.
//! 3. Compacted files make no ledger known: whatever is live in one is known by the log.
//! 4. After new damage, or when the newest snapshot cannot be read, nothing is forgotten for not being named; but the writer of such a
//!    ledger has to be looked up in metadata again (B2), at this start and each later one. A removed file is no damage.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::id::LedgerId;

use super::state::NodeState;
use crate::index::{Location, Slot};
use crate::log::format::{name_of, side_name};
use crate::log::recovery::{LogError, Recovered, Replay, SealedOnDisk, read_head};
use crate::log::{FileKind, LedgerRow, Record, SealedFile};

/// Collects what the walk over the log finds.
#[derive(Default)]
pub struct Rebuild {
    state: NodeState,
    /// Where each ledger was met last.
    met: BTreeMap<LedgerId, Met>,
    /// Ledgers that a snapshot names, by the file that it stands in.
    rows: BTreeMap<u32, BTreeSet<LedgerId>>,
    kind: Option<FileKind>,
}

/// The newest log files that tell of a ledger.
#[derive(Default)]
struct Met {
    /// That has a record of it.
    record: Option<u32>,
    /// That says that its writer was let in, by an add of it or in a snapshot.
    contact: Option<u32>,
}

/// The snapshot that counts.
#[derive(Default)]
struct Base {
    file: u32,
    /// A newer one cannot be read.
    passed_over: bool,
    named: BTreeSet<LedgerId>,
}

impl Base {
    fn forgets(&self, ledger: LedgerId, last: Option<u32>) -> bool {
        !self.named.contains(&ledger) && last.is_none_or(|file| file < self.file)
    }
}

impl Replay for Rebuild {
    fn file(&mut self, kind: FileKind, _file: u32) {
        self.kind = Some(kind);
    }

    fn apply(&mut self, record: &Record, location: Location) {
        if self.kind == Some(FileKind::Compacted) {
            if let Record::Entry(found) = record {
                let digest = found.digest;
                let ledger = self.state.ledgers.entry(found.ledger).or_default();
                ledger.store(found.entry, Slot { location, digest });
            }
            return;
        }
        self.note(record, location.file);
        self.state.apply(record, location);
    }
}

fn raise(last: &mut Option<u32>, file: u32) {
    *last = (*last).max(Some(file));
}

impl Rebuild {
    fn note(&mut self, record: &Record, file: u32) {
        match *record {
            Record::Entry(entry) => {
                let met = self.met.entry(entry.ledger).or_default();
                raise(&mut met.record, file);
                if entry.normal {
                    raise(&mut met.contact, file);
                }
            }
            Record::Fence { ledger, .. }
            | Record::Limbo { ledger, .. }
            | Record::LimboClear { ledger, .. }
            | Record::Tombstone { ledger } => {
                raise(&mut self.met.entry(ledger).or_default().record, file);
            }
            Record::Ledger(LedgerRow {
                ledger, contacted, ..
            }) => {
                self.rows.entry(file).or_default().insert(ledger);
                if contacted {
                    raise(&mut self.met.entry(ledger).or_default().contact, file);
                }
            }
            _ => {}
        }
    }

    /// The state. Removed files and their damage are taken out of `recovered`.
    ///
    /// # Errors
    /// Of the disk.
    pub fn finish(mut self, recovered: &mut Recovered) -> Result<NodeState, LogError> {
        let base = self.base(recovered)?;
        self.state.replay_from = base.file;
        let sealed = std::mem::take(&mut recovered.sealed);
        self.kind = None;
        for found in sealed.iter().filter(|found| number(found) >= base.file) {
            for record in &found.footer.state {
                let location = Location {
                    file: number(found),
                    offset: 0,
                    bytes: 0,
                };
                self.apply(record, location);
            }
        }
        self.drop_removed(recovered);
        // Only now is it known what was known, and what is gone on purpose.
        let known = &self.state.known_damage;
        let new_damage = recovered.damage.iter().any(|range| !known.contains(range));
        let doubt = base.passed_over || new_damage;
        // A number is given once, also that of a file which was the last and is gone.
        let given = self.state.removed.end();
        recovered.next_file = recovered.next_file.max(given);
        for kind in [FileKind::Log, FileKind::Compacted] {
            for found in sealed.iter().filter(|f| f.footer.header.kind == kind) {
                match self.state.removed.contains(u64::from(number(found))) {
                    true => unlink(found, recovered),
                    false => self.take_sealed(found, &base, doubt)?,
                }
            }
        }
        self.forget(&base, doubt);
        Ok(self.state)
    }

    /// Finds the newest snapshot that can be read, and takes what it says.
    fn base(&mut self, recovered: &Recovered) -> Result<Base, LogError> {
        let scanned = recovered
            .unsealed
            .iter()
            .filter(|u| u.footer.has_snapshot());
        let mut heads: BTreeMap<u32, Option<&SealedOnDisk>> = scanned
            .map(|unsealed| (unsealed.header.file as u32, None))
            .collect();
        let sealed = recovered.sealed.iter();
        let sealed = sealed.filter(|found| found.footer.snapshot_end > 0);
        heads.extend(sealed.map(|found| (number(found), Some(found))));
        let mut base = Base::default();
        for (file, found) in heads.into_iter().rev() {
            if let Some(found) = found {
                let Some(records) = read_head(&found.file, &found.footer)? else {
                    base.passed_over = true;
                    continue;
                };
                let location = Location {
                    file,
                    offset: 0,
                    bytes: 0,
                };
                self.kind = None;
                records
                    .iter()
                    .for_each(|record| self.apply(record, location));
            }
            base.named = self.rows.remove(&file).unwrap_or_default();
            base.file = file;
            break;
        }
        Ok(base)
    }

    fn drop_removed(&self, recovered: &mut Recovered) {
        let removed = &self.state.removed;
        let damage = &mut recovered.damage;
        damage.retain(|range| !removed.contains(range.file));
    }

    /// Takes the entries of a sealed file.
    fn take_sealed(
        &mut self,
        found: &SealedOnDisk,
        base: &Base,
        doubt: bool,
    ) -> Result<(), LogError> {
        let footer = found.whole_footer()?;
        let file = number(found);
        let log = found.footer.header.kind == FileKind::Log;
        for ledger in &footer.ledgers {
            let known = self.state.ledgers.contains_key(&ledger.ledger);
            let named = base.named.contains(&ledger.ledger);
            let fresh = log && file >= base.file;
            if !(known || named || fresh || doubt) {
                continue;
            }
            let state = self.state.ledgers.entry(ledger.ledger).or_default();
            if !log {
                continue;
            }
            // Of ledgers in older files the snapshot says more, and the last word.
            if ledger.normal && (fresh || doubt) {
                state.confirmed_end = state.confirmed_end.max(ledger.confirmed_end);
            }
            let met = self.met.entry(ledger.ledger).or_default();
            raise(&mut met.record, file);
            if ledger.normal {
                raise(&mut met.contact, file);
            }
        }
        self.state.file_sealed(SealedFile::of(&footer, found.bytes));
        Ok(())
    }

    /// What is older than the snapshot lets no writer in that the snapshot does not.
    fn forget(&mut self, base: &Base, doubt: bool) {
        let Self { state, met, .. } = self;
        let mut dead = Vec::new();
        for (ledger, found) in &mut state.ledgers {
            let met = met.get(ledger);
            found.contacted = met.is_some_and(|met| met.contact >= Some(base.file));
            let last = met.and_then(|met| met.record);
            if !doubt && base.forgets(*ledger, last) {
                dead.push(*ledger);
            }
        }
        for ledger in dead {
            state.ledgers.remove(&ledger);
            state.tombstones.remove(&ledger);
        }
    }
}

fn number(found: &SealedOnDisk) -> u32 {
    found.footer.header.file as u32
}

/// A start died between the record of the removal and the removal.
fn unlink(found: &SealedOnDisk, recovered: &mut Recovered) {
    let header = &found.footer.header;
    recovered.unwanted.push(name_of(header.kind, header.file));
    recovered.unwanted.push(side_name(header.file));
    recovered.files.remove(header.file as u32);
}
