//! What reclaim asks of the core, and tells it (storage.md G1, G4, G7–G9, S4).
//!
//! # Invariants
//! 1. A file is put on record as removed only if no entry that can be asked for lies in it alone, and only then unlinked.
//! 2. Limbo ends for a closed ledger of which nothing is missing here, and never without a fence against its writer.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::bookie::Address;
use hulse_proto::id::{EntryId, FenceToken, LedgerId};
use hulse_proto::mutant::Mutant;

use super::groups::{STATE_RECORD_BYTES, Waiter};
use super::level::Level;
use super::node_core::{NodeCore, Purpose};
use super::state::NodeState;
use crate::index::{ColdRun, FileSummary, LedgerShare};
use crate::log::{DiskIdentity, LimboKind, Record};
use crate::reclaim::{FileFacts, Held, Settled, Stock, copy_bytes};

/// What is remembered of sealed files besides their summaries.
#[derive(Debug, Default)]
pub(super) struct Reclaiming {
    /// What files hold of ledgers that are not deleted; nothing when a compacted one holds it by now.
    live: BTreeMap<u32, Live>,
    /// Entries that an earlier boot found damaged, and nobody looked at since.
    pub(super) doubtful: BTreeSet<(LedgerId, EntryId)>,
    /// Of ledgers that went astray in this boot: the files in which that was counted.
    astray: BTreeMap<LedgerId, BTreeSet<u32>>,
}

/// What lives in a file.
#[derive(Debug, Default, Clone, Copy)]
struct Live {
    bytes: u64,
    entries: u64,
    ledgers: u64,
}

impl Live {
    fn add(&mut self, share: &LedgerShare) {
        self.bytes += u64::from(share.bytes);
        self.entries += u64::from(share.entries);
        self.ledgers += 1;
    }

    fn remove(&mut self, share: &LedgerShare) {
        self.bytes = self.bytes.saturating_sub(u64::from(share.bytes));
        self.entries = self.entries.saturating_sub(u64::from(share.entries));
        self.ledgers = self.ledgers.saturating_sub(1);
    }
}

impl Reclaiming {
    /// As a start finds it. A file whose entries all count elsewhere was compacted, and a crash kept its removal from the record (G9).
    pub fn of(state: &NodeState) -> Self {
        let lives = state.ledgers.values().filter(|ledger| !ledger.deleted);
        let count = lives.flat_map(|ledger| ledger.entries.cold());
        let count: BTreeSet<u32> = count.map(|run| run.file).collect();
        let mut all = Self {
            doubtful: state.found_damaged.keys().copied().collect(),
            ..Self::default()
        };
        for summary in state.files.values() {
            match count.contains(&summary.file) {
                true => all.sealed(summary, state),
                false => drop(all.live.insert(summary.file, Default::default())),
            }
        }
        all
    }

    /// Counts what is live in a file that was sealed.
    pub fn sealed(&mut self, summary: &FileSummary, state: &NodeState) {
        let mut live = Live::default();
        let shares = summary.shares.iter();
        shares
            .filter(|s| lives(state, s.ledger))
            .for_each(|share| live.add(&share));
        self.live.insert(summary.file, live);
    }

    /// A ledger was deleted: what files hold of it is dead.
    pub fn buried(&mut self, ledger: LedgerId, state: &NodeState) {
        self.leaves(ledger, state);
        self.astray.remove(&ledger);
    }

    /// A ledger goes astray: what files hold of it now is dead.
    pub fn leaves(&mut self, ledger: LedgerId, state: &NodeState) {
        let gone = self.astray.entry(ledger).or_default();
        for summary in state.files.values() {
            if let Some(share) = summary.shares.of(ledger)
                && gone.insert(summary.file)
            {
                let live = self.live.entry(summary.file).or_default();
                live.remove(&share);
            }
        }
    }

    fn forget(&mut self, file: u32) {
        self.live.remove(&file);
        self.astray.retain(|_, files| {
            files.remove(&file);
            !files.is_empty()
        });
    }
}

fn lives(state: &NodeState, ledger: LedgerId) -> bool {
    let found = state.ledgers.get(&ledger);
    found.is_some_and(|state| !state.deleted)
}

impl NodeCore {
    /// What there is to plan with.
    pub fn stock(&self) -> Stock {
        let held = self.files_with_damage();
        let files = self.state.files.values();
        let files = files.filter(|summary| self.state.removable(summary));
        let facts = files.map(|summary| {
            let live = self.live(summary);
            FileFacts {
                file: summary.file,
                bytes: summary.bytes,
                live: live.bytes,
                copy: copy_bytes(live.bytes, live.entries, live.ledgers),
                damaged: held.contains(&summary.file),
            }
        });
        let file_bytes = self.limits.levels.file_bytes;
        Stock {
            files: facts.collect(),
            room: self.space().map_or(u64::MAX, |space| space.free),
            file_bytes,
            pressed: self.level() >= Level::ReadOnly,
        }
    }

    fn live(&self, summary: &FileSummary) -> Live {
        let live = self.reclaiming.live.get(&summary.file);
        live.copied().unwrap_or_default()
    }

    /// Bytes of sealed files, and those of them that nobody can ask for any more.
    pub fn held_and_dead_bytes(&self) -> (u64, u64) {
        let files = self.state.files.values();
        files.fold((0, 0), |(held, dead), summary| {
            let gone = summary.bytes.saturating_sub(self.live(summary).bytes);
            (held + summary.bytes, dead + gone)
        })
    }

    /// Files that keep a damaged live entry, or damage that may hide one: they stay until the entry came anew, or its ledger is gone
    /// (G13).
    fn files_with_damage(&self) -> BTreeSet<u32> {
        let damaged = self.state.found_damaged.iter();
        let entries = damaged.filter(|((ledger, entry), _)| self.is_damaged(*ledger, *entry));
        let mut files: BTreeSet<u32> = entries.map(|(_, file)| *file).collect();
        let ranges = self.state.known_damage.iter();
        let ranges: Vec<u32> = ranges
            .filter_map(|range| u32::try_from(range.file).ok())
            .filter(|file| self.state.files.contains_key(file))
            .collect();
        let in_limbo = |state: &crate::ledger::LedgerState| {
            !state.deleted && state.limbo() == Some(LimboKind::Damage)
        };
        if !ranges.is_empty() && self.state.ledgers.values().any(in_limbo) {
            files.extend(ranges);
        }
        files
    }

    /// The entries that can be asked for and lie in one of these sealed files, by ledger and entry. Not those of which a copy in a file
    /// that is not sealed counts instead.
    pub fn live_runs(&self, files: &[u32]) -> Vec<(LedgerId, ColdRun)> {
        let summaries = files.iter().filter_map(|file| self.state.files.get(file));
        let ledgers: BTreeSet<LedgerId> = summaries
            .flat_map(|summary| summary.shares.iter().map(|share| share.ledger))
            .collect();
        let mut runs = Vec::new();
        for ledger in ledgers {
            let state = self.state.ledgers.get(&ledger).filter(|s| !s.deleted);
            let Some(entries) = state.map(|state| &state.entries) else {
                continue;
            };
            let from = runs.len();
            let inside = files.iter().flat_map(|file| entries.cold_in(*file));
            let count = inside.flat_map(|run| entries.without_hot(run));
            runs.extend(count.map(|run| (ledger, run)));
            runs[from..].sort_unstable_by_key(|(_, run)| run.first);
        }
        if self.mutation.is(Mutant::CompactionForgets) {
            runs.pop();
        }
        runs
    }

    /// The newest log file that entries of these sealed files come from.
    pub fn newest_log_file(&self, files: &[u32]) -> u32 {
        let summaries = files.iter().filter_map(|file| self.state.files.get(file));
        summaries.map(|summary| summary.newest).max().unwrap_or(0)
    }

    /// True for a ledger that is known here and not deleted.
    pub fn lives(&self, ledger: LedgerId) -> bool {
        lives(&self.state, ledger)
    }

    /// True for an entry whose damage is known.
    pub fn is_damaged(&self, ledger: LedgerId, entry: EntryId) -> bool {
        let state = self.state.ledgers.get(&ledger);
        state.is_some_and(|state| state.damaged.contains(&entry))
    }

    /// Numbers of the sealed files.
    pub fn sealed_files(&self) -> Vec<u32> {
        self.state.files.keys().copied().collect()
    }

    /// Those of these files that are not on record as removed.
    pub fn which_remain(&self, mut files: Vec<u32>) -> Vec<u32> {
        files.retain(|file| self.state.files.contains_key(file));
        files
    }

    /// A copy or write-back of this ledger was found here already.
    pub(super) fn note_copy(&mut self, ledger: LedgerId) {
        if let Some(state) = self.state.ledgers.get_mut(&ledger) {
            self.copies += 1;
            state.copied_at = self.copies;
        }
    }

    /// Lets go of what belongs to others by metadata's word (G6). Whoever got a copy since that word was asked for keeps all: an intent
    /// may name this member by now.
    pub(super) fn drop_strays(&mut self, ledgers: &[LedgerId], copies: u64) {
        let careless = self.mutation.is(Mutant::StrayDespiteCopy);
        for ledger in ledgers {
            let Some(state) = self.state.ledgers.get(ledger) else {
                continue;
            };
            let asked_since = careless || state.copied_at <= copies;
            if !state.deleted && state.pending.is_empty() && asked_since {
                self.reclaiming.leaves(*ledger, &self.state);
                if let Some(state) = self.state.ledgers.get_mut(ledger) {
                    state.stray();
                }
            }
        }
    }

    /// What the pass over metadata is about; bytes are added by [`NodeCore::add_bytes`], file by file, so that nobody waits long.
    pub fn held(&self) -> Held {
        let mut held = Held {
            mutation: self.mutation,
            copies: self.copies,
            ranges: self.damaged_ranges(),
            ..Held::default()
        };
        for (ledger, state) in self.state.ledgers.iter().filter(|(_, s)| !s.deleted) {
            held.ledgers.insert(*ledger, 0);
            if state.entries.is_empty() {
                held.empty.insert(*ledger);
            }
            if state.limbo().is_some() {
                held.limbo.insert(*ledger);
            }
            if !held.ranges.is_empty() {
                held.runs.insert(*ledger, state.entries.ranges());
            }
        }
        held
    }

    /// How many ledgers are in limbo.
    pub fn limbo_ledgers(&self) -> usize {
        let ledgers = self.state.ledgers.values();
        let limbo = ledgers.filter(|state| !state.deleted && state.limbo().is_some());
        limbo.count()
    }

    /// Adds what this file holds of each ledger.
    pub fn add_bytes(&self, file: u32, held: &mut Held) {
        let summary = self.state.files.get(&file);
        let shares = summary
            .into_iter()
            .flat_map(|summary| summary.shares.iter());
        for share in shares {
            if let Some(bytes) = held.ledgers.get_mut(&share.ledger) {
                *bytes += u64::from(share.bytes);
            }
        }
    }

    /// Whose disk this is.
    pub fn identity(&self) -> DiskIdentity {
        self.identity
    }

    /// A compacted file took over what lived in these.
    pub(super) fn files_replaced(&mut self, files: &[u32]) {
        let left = self.live_runs(files);
        if let Some((ledger, run)) = left.first() {
            // Not a word of it is believed: the sources stay, and are planned anew.
            tracing::error!(%ledger, ?run, "compaction left an entry behind; its sources are kept");
            return;
        }
        let dead = files.iter().map(|file| (*file, Live::default()));
        self.reclaiming.live.extend(dead);
    }

    /// Puts files on record as removed; they are unlinked when the record is durable.
    pub(super) fn remove_files(&mut self, files: &[u32]) {
        let room = self.admit_bytes(STATE_RECORD_BYTES * files.len(), Purpose::Removal);
        if self.check_log().is_err() || room.is_err() {
            return;
        }
        let needed = self.live_runs(files).into_iter();
        let needed: BTreeSet<u32> = needed.map(|(_, run)| run.file).collect();
        let mut unlink = Vec::new();
        let mut last = None;
        for file in files {
            let Some(summary) = self.state.files.get(file) else {
                continue;
            };
            if !self.state.removable(summary) || needed.contains(file) {
                tracing::error!(
                    file,
                    "a log file that is needed was to be removed; it is kept"
                );
                continue;
            }
            unlink.push((summary.kind, *file));
            let first = u64::from(*file);
            let record = Record::FilesRemoved {
                first,
                end: first + 1,
            };
            last = Some(self.groups.append(&record));
            self.state.file_removed(*file);
            self.reclaiming.forget(*file);
        }
        if let Some(group) = last {
            self.groups.wait(group, Waiter::Unlink { files: unlink });
        }
    }

    /// Buries what metadata proved gone; as many as there is room for.
    pub(super) fn collect(&mut self, dead: &[LedgerId]) {
        for ledger in dead {
            let held = self.state.ledgers.get(ledger).is_some_and(|s| !s.deleted);
            let to = Address {
                cell: self.identity.cell,
                incarnation: self.identity.incarnation,
                ledger: *ledger,
            };
            if held && self.bury(&to).is_err() {
                return;
            }
        }
    }

    /// Ends the limbo of a closed ledger of which nothing is missing here (S4). Its fence may be what was lost, so there is one first.
    pub(super) fn settle(&mut self, settled: &Settled) {
        let ledger = settled.ledger;
        let room = self.admit_bytes(2 * STATE_RECORD_BYTES, Purpose::State);
        if self.check_log().is_err() || room.is_err() {
            return;
        }
        let Some(state) = self.state.ledgers.get_mut(&ledger) else {
            return;
        };
        let whole = settled.ours.iter().all(|(first, end)| {
            let damaged = state.damaged.range(first..end).next().is_some();
            let ranges = state.entries.ranges();
            let held = ranges.iter().any(|r| r.start <= first.0 && end.0 <= r.end);
            held && !damaged
        });
        let Some(boot) = state.limbo_since().filter(|_| whole && !state.deleted) else {
            return;
        };
        if state.fence == FenceToken(0) {
            let token = settled.token;
            state.fence = token;
            state.fence_group = self.groups.append(&Record::Fence { ledger, token });
        }
        self.groups.append(&Record::LimboClear { ledger, boot });
        state.clear_limbo(boot);
    }
}
