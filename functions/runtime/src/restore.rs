//! Rebuilds a task from what its predecessors committed: compute.md B5, steps 4 to 6, without the reading.
//!
//! # Invariants
//! 1. Only whole epochs count, in their order, without a gap.
//! 2. A snapshot is believed only if a committed pointer names it and it holds the pointer's checksum. If it does not, the older kept
//!    one is taken, whose deltas are still in the changelog.
//! 3. Offsets of the changelog and of the group agree, or nothing runs.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::codec::changelog::{ChangelogRecord, Delta, Meta, Pointer};
use crate::codec::snapshot::{RowCodecs, Snapshot};
use crate::failure::{OperatorError, TaskFailure};
use crate::id::{Fingerprint, InputPartition};
use crate::mutant::{Mutant, Mutation};
use crate::state::{State, StateDelta, within};

/// Snapshots that are kept: the newest, and one to fall back on.
pub(crate) const SNAPSHOTS_KEPT: usize = 2;

/// An epoch of the changelog.
#[derive(Debug)]
struct Epoch {
    meta: Meta,
    deltas: Vec<Delta>,
}

/// Folds a changelog.
#[derive(Debug)]
pub(crate) struct Restore {
    fingerprint: Fingerprint,
    bytes_max: usize,
    mutation: Mutation,
    /// Deltas of an epoch whose meta has not come.
    open: Vec<Delta>,
    open_pointer: Option<Pointer>,
    /// Epochs above the older kept snapshot, oldest first.
    epochs: VecDeque<Epoch>,
    bytes: usize,
    /// Newest last.
    pointers: VecDeque<Pointer>,
    last: Option<Meta>,
    /// Where the changelog begins.
    start: Option<u64>,
}

impl Restore {
    pub(crate) fn new(fingerprint: Fingerprint, bytes_max: usize, mutation: Mutation) -> Self {
        Self {
            fingerprint,
            bytes_max,
            mutation,
            open: Vec::new(),
            open_pointer: None,
            epochs: VecDeque::new(),
            bytes: 0,
            pointers: VecDeque::new(),
            last: None,
            start: None,
        }
    }

    /// Takes the next record of the changelog, as read with read_committed.
    pub(crate) fn take(&mut self, offset: u64, record: &Bytes) -> Result<(), TaskFailure> {
        self.start.get_or_insert(offset);
        let (decoded, stored) = ChangelogRecord::decode(record)?;
        if stored != self.fingerprint {
            return Err(TaskFailure::OtherFunction {
                stored,
                expected: self.fingerprint,
            });
        }
        self.bytes += record.len();
        within("restore_bytes_max", self.bytes, self.bytes_max).map_err(TaskFailure::Operator)?;
        match decoded {
            ChangelogRecord::Delta(delta) => {
                let chunk = self.open.len();
                let next = self.last.as_ref().map(|last| last.epoch + 1);
                if delta.chunk as usize != chunk || next.is_some_and(|next| delta.epoch != next) {
                    return Err(self.incomplete(format!(
                        "delta {} of epoch {} stands at offset {offset} behind {chunk} of its epoch",
                        delta.chunk, delta.epoch
                    )));
                }
                self.open.push(delta);
            }
            ChangelogRecord::Pointer(pointer) => self.open_pointer = Some(pointer),
            ChangelogRecord::Meta(meta) => self.close(meta, offset)?,
        }
        Ok(())
    }

    fn incomplete(&self, what: String) -> TaskFailure {
        TaskFailure::Incomplete { what }
    }

    fn close(&mut self, meta: Meta, offset: u64) -> Result<(), TaskFailure> {
        let deltas = std::mem::take(&mut self.open);
        let next = self.last.as_ref().map(|last| last.epoch + 1);
        let whole = deltas.len() == meta.deltas as usize
            && deltas.iter().all(|delta| delta.epoch == meta.epoch)
            && next.is_none_or(|next| meta.epoch == next);
        if !whole {
            return Err(self.incomplete(format!(
                "epoch {} at offset {offset} has {} of {} deltas and follows epoch {:?}",
                meta.epoch,
                deltas.len(),
                meta.deltas,
                self.last.as_ref().map(|last| last.epoch)
            )));
        }
        self.last = Some(meta.clone());
        self.epochs.push_back(Epoch { meta, deltas });
        if let Some(pointer) = self.open_pointer.take() {
            self.pointers.push_back(pointer);
            if self.pointers.len() > SNAPSHOTS_KEPT {
                self.pointers.pop_front();
            }
            self.forget_covered();
        }
        Ok(())
    }

    /// Drops epochs that every kept snapshot holds.
    fn forget_covered(&mut self) {
        let Some(oldest) = self
            .pointers
            .front()
            .filter(|_| self.pointers.len() == SNAPSHOTS_KEPT)
        else {
            return;
        };
        let covered = self
            .epochs
            .iter()
            .take_while(|epoch| epoch.meta.epoch <= oldest.epoch);
        let covered = covered.count();
        for epoch in self.epochs.drain(..covered) {
            let bytes: usize = epoch.deltas.iter().map(|delta| delta.rows.len()).sum();
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// The snapshot to load next, newest first; none: replay from the empty state.
    pub(crate) fn wanted(&self) -> Option<&Pointer> {
        self.pointers.back()
    }

    /// The wanted one is missing or damaged: falls back on the one before.
    pub(crate) fn reject_wanted(&mut self) {
        self.pointers.pop_back();
    }

    /// Snapshots that successors may still need, oldest first.
    pub(crate) fn kept(&self) -> Vec<Pointer> {
        self.pointers.iter().cloned().collect()
    }

    /// Bytes of changelog above the older kept snapshot.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Folds the deltas behind `snapshot`, or all of them, and checks the offsets of the group.
    pub(crate) fn finish(
        self,
        snapshot: Option<Snapshot>,
        codecs: &RowCodecs,
        start: &BTreeMap<InputPartition, u64>,
        group: &BTreeMap<InputPartition, u64>,
    ) -> Result<(State, Meta), TaskFailure> {
        if !self.open.is_empty() || self.open_pointer.is_some() {
            let open = self.open.len();
            return Err(self.incomplete(format!("{open} deltas at the end belong to no epoch")));
        }
        agree(self.last.as_ref(), group)?;
        let below = snapshot.as_ref().map_or(0, |snapshot| snapshot.epoch);
        let mut state = match snapshot {
            Some(snapshot) => snapshot.state,
            None => State::new(codecs.len()),
        };
        let tail = self.epochs.iter().filter(|epoch| epoch.meta.epoch > below);
        let mut next = below + 1;
        for epoch in tail {
            if epoch.meta.epoch != next {
                return Err(self.incomplete(format!("epoch {next} is not in the changelog")));
            }
            next += 1;
            if below > 0 && self.mutation.is(Mutant::TailLeftOut) {
                continue;
            }
            state.fold(rows_of(&epoch.deltas, codecs)?);
        }
        if self.last.as_ref().is_some_and(|last| last.epoch >= next) {
            return Err(self.incomplete(format!("epoch {next} is not in the changelog")));
        }
        let mut meta = self.last.unwrap_or_else(|| Meta::start(start.clone()));
        for (partition, first) in start {
            meta.offsets.entry(*partition).or_insert(*first);
            meta.watermarks.partitions.entry(*partition).or_default();
        }
        Ok((state, meta))
    }
}

/// Changelog and group must say the same of every partition that either knows (B5.6).
fn agree(last: Option<&Meta>, group: &BTreeMap<InputPartition, u64>) -> Result<(), TaskFailure> {
    let none = BTreeMap::new();
    let offsets = last.map_or(&none, |last| &last.offsets);
    for partition in offsets.keys().chain(group.keys()) {
        let (changelog, committed) = (offsets.get(partition), group.get(partition));
        if changelog != committed {
            return Err(TaskFailure::OffsetsDisagree {
                partition: *partition,
                changelog: changelog.copied(),
                group: committed.copied(),
            });
        }
    }
    Ok(())
}

fn rows_of(deltas: &[Delta], codecs: &RowCodecs) -> Result<StateDelta, TaskFailure> {
    let mut folded = StateDelta::default();
    folded.tables.resize_with(codecs.len(), Default::default);
    for delta in deltas {
        let number = usize::from(delta.table);
        let Some(codec) = codecs.get(number) else {
            let message = format!(
                "the changelog has table {number}, the function {}",
                codecs.len()
            );
            return Err(TaskFailure::Operator(OperatorError::Failed { message }));
        };
        folded.tables[number].extend(codec.decode(&delta.rows)?);
    }
    Ok(folded)
}
