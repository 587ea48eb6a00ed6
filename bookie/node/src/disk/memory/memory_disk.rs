//! The disk: names, files, and the faults a test can order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use rand::RngCore;

use super::super::{Disk, DiskError, DiskErrorKind, DiskFile, DiskLock, Space};
use super::content::{Content, Survival, put};

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
struct State {
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    files: BTreeMap<u64, Content>,
    next_file: u64,
    /// Handles of an earlier life do nothing any more.
    life: u64,
    locked: bool,
    counts: DiskCounts,
    capacity: Option<u64>,
    failing_syncs: u32,
    stop_after: Option<u64>,
    read_only: bool,
}

impl MemoryDisk {
    fn state(&self) -> MutexGuard<'_, State> {
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
        let names_survive = match &mut survival {
            // The kernel knows the names; they are no more durable than before.
            Survival::Everything => None,
            Survival::Random(rng) => Some(rng.next_u32() & 1 == 0),
            _ => Some(false),
        };
        match names_survive {
            Some(true) => state.durable_names = state.names.clone(),
            Some(false) => state.names = state.durable_names.clone(),
            None => {}
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

fn error(kind: DiskErrorKind, operation: &'static str, name: &str) -> DiskError {
    DiskError {
        kind,
        operation,
        name: name.to_owned(),
        why: format!("memory disk says {kind:?}"),
    }
}

impl State {
    /// Counts a change, or refuses it.
    fn change(&mut self, operation: &'static str, name: &str) -> Result<(), DiskError> {
        if self.stop_after.is_some_and(|at| self.counts.changes >= at) {
            return Err(error(DiskErrorKind::Io, operation, name));
        }
        if self.read_only {
            return Err(error(DiskErrorKind::ReadOnly, operation, name));
        }
        self.counts.changes += 1;
        Ok(())
    }

    fn used(&self) -> u64 {
        let named = self.names.values().filter_map(|id| self.files.get(id));
        named.map(|content| content.len).sum()
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
        if state
            .capacity
            .is_some_and(|capacity| state.used() + bytes > capacity)
        {
            return Err(error(DiskErrorKind::Full, "create", name));
        }
        let id = state.next_file;
        state.next_file += 1;
        state.names.insert(name.to_owned(), id);
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
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        state.change("remove", name)?;
        state.names.remove(name);
        Ok(())
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        let mut state = self.state();
        state.change("sync directory", "")?;
        state.counts.dir_syncs += 1;
        state.durable_names = state.names.clone();
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

struct MemoryFile {
    disk: MemoryDisk,
    name: String,
    id: u64,
    life: u64,
}

impl MemoryFile {
    fn with<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut State, u64) -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        let mut state = self.disk.state();
        if state.life != self.life || !state.files.contains_key(&self.id) {
            return Err(error(DiskErrorKind::Io, operation, &self.name));
        }
        work(&mut state, self.id)
    }
}

fn content(state: &mut State, id: u64) -> &mut Content {
    state
        .files
        .get_mut(&id)
        .expect("the caller has checked that the file is there")
}

impl DiskFile for MemoryFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.with("write", |state, id| {
            state.change("write", &self.name)?;
            let grows = (offset + bytes.len() as u64).saturating_sub(content(state, id).len);
            if state
                .capacity
                .is_some_and(|capacity| grows > 0 && state.used() + grows > capacity)
            {
                return Err(error(DiskErrorKind::Full, "write", &self.name));
            }
            state.counts.writes += 1;
            let content = content(state, id);
            put(&mut content.bytes, offset, bytes);
            content.len = content.len.max(content.bytes.len() as u64);
            content.unsynced.push((offset, bytes.to_vec()));
            Ok(())
        })
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, DiskError> {
        self.with("read", |state, id| {
            let content = content(state, id);
            let end = (offset + len as u64).min(content.len);
            let mut out = vec![0; end.saturating_sub(offset) as usize];
            let from = (offset as usize).min(content.bytes.len());
            let there = &content.bytes[from..(end as usize).clamp(from, content.bytes.len())];
            out[..there.len()].copy_from_slice(there);
            Ok(out)
        })
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.with("sync", |state, id| {
            state.change("sync", &self.name)?;
            if state.failing_syncs > 0 {
                state.failing_syncs -= 1;
                content(state, id).unsynced.clear();
                return Err(error(DiskErrorKind::Io, "sync", &self.name));
            }
            state.counts.syncs += 1;
            let content = content(state, id);
            for (at, bytes) in std::mem::take(&mut content.unsynced) {
                put(&mut content.durable, at, &bytes);
            }
            content.durable.truncate(content.len as usize);
            content.durable_len = content.len;
            Ok(())
        })
    }

    fn settle(&self) -> Result<(), DiskError> {
        self.sync()?;
        self.with("drop caches", |state, id| {
            let content = content(state, id);
            content.bytes = content.durable.clone();
            Ok(())
        })
    }

    fn bytes(&self) -> Result<u64, DiskError> {
        self.with("stat", |state, id| Ok(content(state, id).len))
    }

    fn truncate(&self, bytes: u64) -> Result<(), DiskError> {
        self.with("truncate", |state, id| {
            state.change("truncate", &self.name)?;
            let content = content(state, id);
            content.len = bytes;
            content.bytes.truncate(bytes as usize);
            Ok(())
        })
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, DiskError> {
        self.with("seek", |state, id| {
            let content = content(state, id);
            Ok((offset < content.bytes.len() as u64).then_some(offset))
        })
    }
}
