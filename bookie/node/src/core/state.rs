//! What the log says of all ledgers and files; built by replay, in any order of the records (storage.md B1).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use hulse_proto::id::{EntryId, FenceToken, LedgerId};

use crate::index::{FileSummary, IdRanges, Location, Provenance, Slot};
use crate::ledger::LedgerState;
use crate::log::recovery::RottenEntry;
use crate::log::{
    DAMAGED_RUN_MAX, DamagedRange, DamagedRun, FileKind, LimboKind, Record, SealedFile,
};

/// Runs of damaged entries that a snapshot tells the next start of. What is more is found anew, by whoever reads it or by scrub.
pub(super) const DAMAGED_RUNS_MAX: usize = 4_096;

/// The ledgers of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeState {
    /// By number.
    pub ledgers: BTreeMap<LedgerId, LedgerState>,
    /// The deleted ones among them.
    pub tombstones: BTreeSet<LedgerId>,
    /// Unknown ledgers below are dead unless metadata says otherwise (G4).
    pub dead_below: LedgerId,
    /// Damage that was answered with limbo already.
    pub known_damage: BTreeSet<DamagedRange>,
    /// Of that, what nobody lacks anything by any more.
    pub covered_damage: BTreeSet<DamagedRange>,
    /// Entries that were found damaged, in this boot or before, and the file in which; one that counts elsewhere by now was healed.
    pub found_damaged: BTreeMap<(LedgerId, EntryId), u32>,
    /// Files that are gone on purpose, or never counted.
    pub removed: IdRanges,
    /// Sealed files, by number.
    pub files: BTreeMap<u32, FileSummary>,
    /// Older files are not needed for anything but their entries: a durable snapshot stands at the head of this one.
    pub replay_from: u32,
    /// Log files before this one have a footer, or will never get one.
    pub sealed_below: u32,
}

impl NodeState {
    /// Takes one record and where it stands; in any order, any number of times.
    pub fn apply(&mut self, record: &Record, location: Location) {
        match *record {
            Record::Entry(found) => {
                let ledger = self.ledgers.entry(found.ledger).or_default();
                if found.normal {
                    ledger.confirmed_end = ledger.confirmed_end.max(found.confirmed_end);
                    ledger.contacted = true;
                }
                let digest = found.digest;
                ledger.store(found.entry, Slot { location, digest });
            }
            Record::Fence { ledger, token } => {
                let ledger = self.ledgers.entry(ledger).or_default();
                ledger.fence = ledger.fence.max(token);
            }
            Record::Limbo { ledger, kind, boot } => {
                self.ledgers
                    .entry(ledger)
                    .or_default()
                    .enter_limbo(kind, boot);
            }
            Record::LimboClear { ledger, boot } => {
                self.ledgers.entry(ledger).or_default().clear_limbo(boot);
            }
            Record::Tombstone { ledger } => self.bury(ledger),
            Record::DeadBelow { below } => self.dead_below = self.dead_below.max(below),
            Record::KnownDamage(range) => {
                self.known_damage.insert(range);
            }
            Record::SealMark { file, end: 0 } => self.removed.insert(file, file + 1),
            Record::FilesRemoved { first, end } => self.removed.insert(first, end),
            Record::Ledger(row) => {
                self.ledgers.entry(row.ledger).or_default().merge(&row);
                if row.deleted {
                    self.bury(row.ledger);
                }
            }
            Record::DamageCovered(range) => {
                self.covered_damage.insert(range);
            }
            Record::DamagedEntries(run) => {
                for entry in run.first.0..run.end.0 {
                    let at = (run.ledger, EntryId(entry));
                    let file = self.found_damaged.entry(at).or_default();
                    *file = run.file.max(*file);
                }
            }
            Record::SealMark { .. } | Record::SnapshotEnd { .. } => {}
        }
    }

    /// Entries that were found damaged and count where that was, behind this one.
    pub fn damaged_after(
        &self,
        after: Option<(LedgerId, EntryId)>,
    ) -> impl Iterator<Item = ((LedgerId, EntryId), Option<u32>)> + '_ {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.found_damaged.range((from, Bound::Unbounded));
        found.map(|(at, file)| (*at, self.is_in(*at, *file).then_some(*file)))
    }

    /// True when this entry is read from this file.
    pub fn is_in(&self, (ledger, entry): (LedgerId, EntryId), file: u32) -> bool {
        let known = self.ledgers.get(&ledger).filter(|ledger| !ledger.deleted);
        known.is_some_and(|ledger| ledger.entries.file_of(entry) == Some(file))
    }

    /// Forgets what was found damaged and does not count where that was any more.
    pub(super) fn forget_healed(&mut self) {
        let found = std::mem::take(&mut self.found_damaged).into_iter();
        let found = found.filter(|(at, file)| self.is_in(*at, *file));
        self.found_damaged = found.collect();
    }

    /// What is damaged, in runs, as many as the next start is told of.
    fn damaged_runs(&self) -> Vec<DamagedRun> {
        let mut runs: Vec<DamagedRun> = Vec::new();
        let damaged = self.damaged_after(None);
        for ((ledger, first), file) in damaged.filter_map(|(at, file)| Some((at, file?))) {
            let end = first.next();
            let full = runs.len() == DAMAGED_RUNS_MAX;
            match runs.last_mut() {
                Some(run)
                    if (run.ledger, run.end, run.file) == (ledger, first, file)
                        && end.0 - run.first.0 <= DAMAGED_RUN_MAX =>
                {
                    run.end = end;
                }
                _ if full => break,
                _ => runs.push(DamagedRun {
                    ledger,
                    first,
                    end,
                    file,
                }),
            }
        }
        runs
    }

    /// True when what is read of this entry stands there, and not in another copy of it.
    pub fn is_at(&self, found: &RottenEntry) -> bool {
        let ledger = self.ledgers.get(&found.ledger);
        let slot = ledger.and_then(|ledger| ledger.entries.hot(found.entry));
        slot.is_some_and(|slot| slot.location == found.location)
    }

    /// All state that is no entry, for the head of a file (storage.md G10).
    pub fn snapshot(&self) -> Vec<Record> {
        let mut records = Vec::with_capacity(self.ledgers.len() + 8);
        records.push(Record::DeadBelow {
            below: self.dead_below,
        });
        let removed = self.removed.iter();
        records.extend(removed.map(|(first, end)| Record::FilesRemoved { first, end }));
        let damage = self.known_damage.iter();
        let damage = damage.filter(|range| !self.removed.contains(range.file));
        records.extend(damage.copied().map(Record::KnownDamage));
        let covered = self.covered_damage.iter();
        let covered = covered.filter(|range| !self.removed.contains(range.file));
        records.extend(covered.copied().map(Record::DamageCovered));
        records.extend(self.damaged_runs().into_iter().map(Record::DamagedEntries));
        let rows = self.ledgers.iter();
        records.extend(rows.map(|(ledger, state)| Record::Ledger(state.row(*ledger))));
        records.push(Record::SnapshotEnd {
            ledgers: self.ledgers.len() as u64,
        });
        records
    }

    /// A file got its footer, or was compacted from others: its runs take their place in the index.
    pub fn file_sealed(&mut self, sealed: SealedFile) {
        let file = sealed.summary.file;
        self.files.insert(file, sealed.summary);
        let files = &self.files;
        let provenance = |file| {
            let known = files.get(&file).map(FileSummary::provenance);
            known.unwrap_or(Provenance::of_log(file))
        };
        for (ledger, runs) in &sealed.runs {
            if let Some(state) = self.ledgers.get_mut(ledger).filter(|state| !state.deleted) {
                state.entries.seal(file, runs, provenance);
            }
        }
        self.sealed_below = self.sealed_below.max(sealed.sealed_below);
        self.replay_from = self.replay_from.max(sealed.replay_from.unwrap_or(0));
    }

    /// Memory that the index takes, bytes: places and runs of all ledgers, shares of all files, and what holds them.
    pub fn index_bytes(&self) -> usize {
        let ledgers = self.ledgers.values();
        let entries: usize = ledgers.map(|state| state.entries.memory_bytes()).sum();
        let files = self.files.values();
        let shares: usize = files.map(|file| file.shares.memory_bytes()).sum();
        let ledger = size_of::<LedgerId>() + size_of::<LedgerState>();
        entries + self.ledgers.len() * ledger + shares + self.files.len() * size_of::<FileSummary>()
    }

    /// True for a sealed file that may be removed once nothing lives in it: no state and no logical end of another file is lost with
    /// it. Of a compacted one entries are all there is.
    pub fn removable(&self, file: &FileSummary) -> bool {
        let needed = file.file >= self.replay_from.min(self.sealed_below);
        file.kind == FileKind::Compacted || !needed
    }

    /// A file is removed, durably on record: forgets it and whatever lay in it alone.
    pub fn file_removed(&mut self, file: u32) {
        self.removed.insert(u64::from(file), u64::from(file) + 1);
        self.found_damaged.retain(|_, in_file| *in_file != file);
        if let Some(summary) = self.files.remove(&file) {
            for share in summary.shares.iter() {
                if let Some(state) = self.ledgers.get_mut(&share.ledger) {
                    state.entries.drop_file(file);
                }
            }
        }
    }

    /// Deletes a ledger.
    pub fn bury(&mut self, ledger: LedgerId) {
        self.ledgers.entry(ledger).or_default().bury();
        self.tombstones.insert(ledger);
    }

    /// The watermark below which all tombstones but the `kept` highest lie; `None` when there are no more than that.
    pub fn watermark(&self, kept: usize) -> Option<LedgerId> {
        let more = self.tombstones.len().checked_sub(kept)?;
        let last = self.tombstones.iter().nth(more.checked_sub(1)?)?;
        Some(LedgerId(last.0 + 1))
    }

    /// Forgets the tombstones below the watermark which `ripe` lets go: for those, metadata are asked from now on.
    pub fn forget_dead(&mut self, ripe: impl Fn(LedgerId, &LedgerState) -> bool) {
        let Self {
            ledgers,
            tombstones,
            dead_below,
            ..
        } = self;
        tombstones.retain(|ledger| {
            let keep = *ledger >= *dead_below || !ripe(*ledger, &ledgers[ledger]);
            if !keep {
                ledgers.remove(ledger);
            }
            keep
        });
    }

    /// Ledgers that would take the writer's adds now without a look at metadata. If this disk may have lost a fence, it may have
    /// been theirs, whatever metadata say: a closed ledger was fenced once, and its old writer may still be there (S3).
    pub fn open_to_writers(&self) -> impl Iterator<Item = LedgerId> + '_ {
        let open =
            |state: &LedgerState| state.contacted && state.fence == FenceToken(0) && !state.deleted;
        let ledgers = self.ledgers.iter().filter(move |(_, state)| open(state));
        ledgers.map(|(ledger, _)| *ledger)
    }

    /// Puts ledgers into limbo at this boot; the records that make it durable.
    pub fn enter_limbo(&mut self, scope: &[LedgerId], kind: LimboKind, boot: u64) -> Vec<Record> {
        let mut records = Vec::new();
        for ledger in scope {
            let state = self.ledgers.entry(*ledger).or_default();
            if !state.deleted {
                state.enter_limbo(kind, boot);
                records.push(Record::Limbo {
                    ledger: *ledger,
                    kind,
                    boot,
                });
            }
        }
        records
    }
}
