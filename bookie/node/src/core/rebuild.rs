//! From what a start finds to the node's state: records of what lacks a footer, the newest snapshot, footers.
//!
//! # Invariants
//! 1. The newest complete snapshot names every ledger that older files know and that is not dead: what they hold of others belongs to
//!    ledgers whose tombstones were forgotten, and stays forgotten (storage.md G4).
//! 2. State records of files older than that snapshot are not needed; those of newer ones are all applied.
//! 3. Compacted files make no ledger known: whatever is live in one is known by the log.
//! 4. After new damage, or when the newest snapshot cannot be read, nothing is forgotten for not being named; but the writer of such a
//!    ledger has to be looked up in metadata again.

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
    /// The newest log file that has a record of a ledger.
    touched: BTreeMap<LedgerId, u32>,
    /// Ledgers that a snapshot names, by the file that it stands in.
    rows: BTreeMap<u32, BTreeSet<LedgerId>>,
    kind: Option<FileKind>,
}

/// The snapshot that counts.
struct Base {
    file: u32,
    /// Ledgers that are not named are kept all the same.
    doubt: bool,
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
        let ledger = match *record {
            Record::Entry(entry) => Some(entry.ledger),
            Record::Fence { ledger, .. }
            | Record::Limbo { ledger, .. }
            | Record::LimboClear { ledger, .. }
            | Record::Tombstone { ledger } => Some(ledger),
            Record::Ledger(LedgerRow { ledger, .. }) => {
                self.rows.entry(location.file).or_default().insert(ledger);
                None
            }
            _ => None,
        };
        if let Some(ledger) = ledger {
            let last = self.touched.entry(ledger).or_default();
            *last = location.file.max(*last);
        }
        self.state.apply(record, location);
    }
}

impl Rebuild {
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
        // A number is given once, also that of a file which was the last and is gone.
        let given = self.state.removed.end();
        recovered.next_file = recovered.next_file.max(given);
        for kind in [FileKind::Log, FileKind::Compacted] {
            for found in sealed.iter().filter(|f| f.footer.header.kind == kind) {
                match self.state.removed.contains(u64::from(number(found))) {
                    true => unlink(found, recovered),
                    false => self.file(found, &base)?,
                }
            }
        }
        self.forget(&base);
        Ok(self.state)
    }

    /// Finds the newest snapshot that can be read, and takes what it says.
    fn base(&mut self, recovered: &Recovered) -> Result<Base, LogError> {
        let known = &self.state.known_damage;
        let mut doubt = recovered.damage.iter().any(|range| !known.contains(range));
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
        for (file, found) in heads.into_iter().rev() {
            if let Some(found) = found {
                let Some(records) = read_head(&found.file, &found.footer)? else {
                    doubt = true;
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
            let named = self.rows.remove(&file).unwrap_or_default();
            return Ok(Base { file, doubt, named });
        }
        Ok(Base {
            file: 0,
            doubt,
            named: BTreeSet::new(),
        })
    }

    fn drop_removed(&self, recovered: &mut Recovered) {
        let removed = &self.state.removed;
        let damage = &mut recovered.damage;
        damage.retain(|range| !removed.contains(range.file));
    }

    /// Takes the entries of a sealed file.
    fn file(&mut self, found: &SealedOnDisk, base: &Base) -> Result<(), LogError> {
        let footer = found.whole_footer()?;
        let file = number(found);
        let log = found.footer.header.kind == FileKind::Log;
        for ledger in &footer.ledgers {
            let known = self.state.ledgers.contains_key(&ledger.ledger);
            let named = base.named.contains(&ledger.ledger);
            let fresh = log && file >= base.file;
            if !(known || named || fresh || base.doubt) {
                continue;
            }
            let state = self.state.ledgers.entry(ledger.ledger).or_default();
            // Of ledgers in older files the snapshot says more, and the last word.
            if ledger.normal && (fresh || (log && base.doubt)) {
                state.contacted = true;
                state.confirmed_end = state.confirmed_end.max(ledger.confirmed_end);
            }
            if log {
                let last = self.touched.entry(ledger.ledger).or_default();
                *last = file.max(*last);
            }
        }
        self.state.file_sealed(SealedFile::of(&footer, found.bytes));
        Ok(())
    }

    fn forget(&mut self, base: &Base) {
        let touched = &self.touched;
        let unnamed = |ledger: &LedgerId| base.forgets(*ledger, touched.get(ledger).copied());
        if !base.doubt {
            let dead: Vec<LedgerId> = self.state.ledgers.keys().copied().filter(unnamed).collect();
            for ledger in dead {
                self.state.ledgers.remove(&ledger);
                self.state.tombstones.remove(&ledger);
            }
            return;
        }
        for (ledger, state) in &mut self.state.ledgers {
            if unnamed(ledger) {
                state.contacted = false;
            }
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
