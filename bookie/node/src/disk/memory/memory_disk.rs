//! The disk: names, files, and the faults a test can order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use rand::RngCore;

use super::super::{Disk, DiskError, DiskErrorKind, DiskFile, DiskLock, Space};
use super::content::{Content, Survival};
use super::faults::{Calls, Fault, Faults};
use super::memory_file::MemoryFile;
use super::names::{NameChange, survivors};

/// Space is given in such blocks.
const BLOCK_BYTES: u64 = 4096;

/// How many calls were made of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Writes.
    pub writes: u64,
    /// File syncs that succeeded.
    pub syncs: u64,
    /// Directory syncs.
    pub dir_syncs: u64,
    /// All calls that change something; what [`MemoryDisk::stop_after`] counts.
    pub changes: u64,
}

/// The disk. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(super) struct State {
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Changes of names since the last sync of the directory.
    renamed: Vec<NameChange>,
    pub(super) files: BTreeMap<u64, Content>,
    next_file: u64,
    /// Handles of an earlier life do nothing any more.
    pub(super) life: u64,
    locked: bool,
    pub(super) counts: DiskCounts,
    capacity: Option<u64>,
    pub(super) failing_syncs: u32,
    stop_after: Option<u64>,
    read_only: bool,
    pub(super) faults: Faults,
}

impl MemoryDisk {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no code panics while it holds the lock")
    }

    /// Cuts the power. Old handles fail from now on; the disk can be opened anew.
    pub fn crash(&self, mut survival: Survival<'_>) {
        let mut state = self.state();
        state.life += 1;
        state.locked = false;
        state.stop_after = None;
        state.failing_syncs = 0;
        state.faults = Faults::default();
        let left = match &mut survival {
            // The kernel knows the names; they are no more durable than before.
            Survival::Everything => None,
            Survival::Random(rng) => {
                let draw = rng.next_u32();
                Some(survivors(&state.durable_names, &state.renamed, draw))
            }
            _ => Some(state.durable_names.clone()),
        };
        if let Some(names) = left {
            state.renamed.clear();
            state.names = names.clone();
            state.durable_names = names;
        }
        let names: Vec<(String, u64)> = state
            .names
            .iter()
            .map(|(name, id)| (name.clone(), *id))
            .collect();
        for (name, id) in &names {
            if let Some(content) = state.files.get_mut(id) {
                content.crash(name, &mut survival);
            }
        }
        let durable = state.durable_names.values();
        let alive: Vec<u64> = durable
            .copied()
            .chain(names.into_iter().map(|(_, id)| id))
            .collect();
        state.files.retain(|id, _| alive.contains(id));
    }

    /// From the `changes`-th change on, counted from now, every call fails: the machine is dead. 0 kills the next one.
    pub fn stop_after(&self, changes: u64) {
        let mut state = self.state();
        state.stop_after = Some(state.counts.changes + changes);
    }

    /// True when [`MemoryDisk::stop_after`] has struck.
    pub fn stopped(&self) -> bool {
        let state = self.state();
        state
            .stop_after
            .is_some_and(|at| state.counts.changes >= at)
    }

    /// Lets the next `times` file syncs fail and, as Linux does, mark the pages clean: they look written and never will be.
    pub fn fail_syncs(&self, times: u32) {
        self.state().failing_syncs = times;
    }

    /// Orders a fault; the one before it is over.
    pub fn order(&self, fault: Option<Fault>) {
        self.state().faults.order(fault);
    }

    /// The disk is full from the allocation on that follows this many: what is used then is all there is.
    pub fn fill_after(&self, allocations: u64) {
        let mut state = self.state();
        state.faults.order(None);
        state.faults.fills_after = Some(allocations);
    }

    /// The first call that met an ordered fault, a full disk or a dead machine: operation and file.
    pub fn struck(&self) -> Option<(&'static str, String)> {
        self.state().faults.struck.clone()
    }

    /// Limits the bytes that files may take together.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Refuses every change.
    pub fn set_read_only(&self, read_only: bool) {
        self.state().read_only = read_only;
    }

    /// Flips one bit on the medium.
    pub fn flip(&self, name: &str, offset: u64, bit: u8) {
        self.edit(name, |content| {
            let end = offset as usize + 1;
            for bytes in [&mut content.bytes, &mut content.durable] {
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[offset as usize] ^= 1 << (bit % 8);
            }
        });
    }

    /// Changes several bits of a byte on the medium, so that no checksum tells which.
    pub fn ruin(&self, name: &str, offset: u64) {
        for bit in [0, 1, 4, 7] {
            self.flip(name, offset, bit);
        }
    }

    /// Writes foreign bytes on the medium.
    pub fn overwrite(&self, name: &str, offset: u64, with: &[u8]) {
        self.edit(name, |content| {
            let end = offset as usize + with.len();
            for bytes in [&mut content.bytes, &mut content.durable] {
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[offset as usize..end].copy_from_slice(with);
            }
            content.len = content.len.max(end as u64);
            content.durable_len = content.len;
        });
    }

    /// Cuts a file on the medium.
    pub fn cut(&self, name: &str, len: u64) {
        self.edit(name, |content| {
            content.bytes.truncate(len as usize);
            content.durable.truncate(len as usize);
            content.len = len;
            content.durable_len = len;
        });
    }

    /// A copy of the medium as it is, unsynced bytes included, with a life of its own.
    pub fn fork(&self) -> Self {
        let state = self.state();
        let files = state
            .files
            .iter()
            .map(|(id, content)| (*id, content.clone()));
        Self {
            state: Arc::new(Mutex::new(State {
                names: state.names.clone(),
                durable_names: state.durable_names.clone(),
                renamed: state.renamed.clone(),
                files: files.collect(),
                next_file: state.next_file,
                capacity: state.capacity,
                ..State::default()
            })),
        }
    }

    /// Puts the medium back to a copy of it. Old handles fail from now on.
    pub fn restore(&self, copy: &Self) {
        let copy = copy.fork();
        let copy = copy.state();
        let mut state = self.state();
        state.life += 1;
        state.locked = false;
        state.names = copy.names.clone();
        state.durable_names = copy.durable_names.clone();
        state.renamed = copy.renamed.clone();
        state.files = copy.files.clone();
        state.next_file = state.next_file.max(copy.next_file);
    }

    /// Bytes that the named files take together.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// What was called so far.
    pub fn counts(&self) -> DiskCounts {
        self.state().counts
    }

    /// The unsynced writes of a file: offset and length.
    pub fn unsynced(&self, name: &str) -> Vec<(u64, usize)> {
        let state = self.state();
        let content = state.names.get(name).and_then(|id| state.files.get(id));
        content.map_or_else(Vec::new, |content| {
            content
                .unsynced
                .iter()
                .map(|(at, bytes)| (*at, bytes.len()))
                .collect()
        })
    }

    fn edit(&self, name: &str, change: impl FnOnce(&mut Content)) {
        let mut state = self.state();
        let id = state.names.get(name).copied();
        if let Some(content) = id.and_then(|id| state.files.get_mut(&id)) {
            change(content);
        }
    }
}

/// Bytes of the blocks that a file of this length takes.
pub(super) fn blocks(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES)
}

pub(super) fn error(kind: DiskErrorKind, operation: &'static str, name: &str) -> DiskError {
    DiskError {
        kind,
        operation,
        name: name.to_owned(),
        why: format!("memory disk says {kind:?}"),
    }
}

impl State {
    /// Counts a change, or refuses it.
    pub(super) fn change(&mut self, operation: &'static str, name: &str) -> Result<(), DiskError> {
        if self.stop_after.is_some_and(|at| self.counts.changes >= at) {
            self.faults.strike(operation, name);
            return Err(error(DiskErrorKind::Io, operation, name));
        }
        if self.read_only {
            return Err(error(DiskErrorKind::ReadOnly, operation, name));
        }
        self.counts.changes += 1;
        match self.faults.meets(Calls::Changes, operation, name) {
            Some(kind) => Err(error(kind, operation, name)),
            None => Ok(()),
        }
    }

    /// Takes bytes, or refuses them.
    pub(super) fn allocate(
        &mut self,
        bytes: u64,
        operation: &'static str,
        name: &str,
    ) -> Result<(), DiskError> {
        if self.faults.fills(operation, name) {
            self.capacity = Some(self.used());
        }
        match self.capacity {
            Some(capacity) if self.used() + bytes > capacity => {
                Err(error(DiskErrorKind::Full, operation, name))
            }
            _ => Ok(()),
        }
    }

    fn used(&self) -> u64 {
        let named = self.names.values().filter_map(|id| self.files.get(id));
        named.map(|content| blocks(content.len)).sum()
    }
}

struct MemoryLock {
    disk: MemoryDisk,
    life: u64,
}

impl DiskLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.locked = false;
        }
    }
}

impl Disk for MemoryDisk {
    fn lock(&self) -> Result<Box<dyn DiskLock>, DiskError> {
        let mut state = self.state();
        if state.locked {
            return Err(error(DiskErrorKind::Locked, "lock", "lock"));
        }
        if state.read_only {
            return Err(error(DiskErrorKind::ReadOnly, "lock", "lock"));
        }
        state.locked = true;
        Ok(Box::new(MemoryLock {
            disk: self.clone(),
            life: state.life,
        }))
    }

    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn DiskFile>, DiskError> {
        let mut state = self.state();
        state.change("create", name)?;
        if state.names.contains_key(name) {
            return Err(error(DiskErrorKind::Exists, "create", name));
        }
        state.allocate(blocks(bytes), "create", name)?;
        let id = state.next_file;
        state.next_file += 1;
        state.names.insert(name.to_owned(), id);
        state.renamed.push(NameChange::Made {
            name: name.to_owned(),
            id,
        });
        let content = Content {
            len: bytes,
            durable_len: bytes,
            ..Content::default()
        };
        state.files.insert(id, content);
        let life = state.life;
        drop(state);
        Ok(Arc::new(MemoryFile {
            disk: self.clone(),
            name: name.to_owned(),
            id,
            life,
        }))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>, DiskError> {
        let state = self.state();
        let id = state.names.get(name).copied();
        let id = id.ok_or_else(|| error(DiskErrorKind::Missing, "open", name))?;
        let life = state.life;
        drop(state);
        Ok(Arc::new(MemoryFile {
            disk: self.clone(),
            name: name.to_owned(),
            id,
            life,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        state.change("rename", from)?;
        let id = state.names.remove(from);
        let id = id.ok_or_else(|| error(DiskErrorKind::Missing, "rename", from))?;
        state.names.insert(to.to_owned(), id);
        state.renamed.push(NameChange::Moved {
            from: from.to_owned(),
            to: to.to_owned(),
            id,
        });
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        state.change("remove", name)?;
        state.names.remove(name);
        state.renamed.push(NameChange::Removed {
            name: name.to_owned(),
        });
        Ok(())
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        let mut state = self.state();
        state.change("sync directory", "")?;
        state.counts.dir_syncs += 1;
        state.durable_names = state.names.clone();
        state.renamed.clear();
        Ok(())
    }

    fn space(&self) -> Result<Space, DiskError> {
        let state = self.state();
        let total = state.capacity.unwrap_or(u64::MAX);
        Ok(Space {
            free: total.saturating_sub(state.used()),
            total,
        })
    }
}
