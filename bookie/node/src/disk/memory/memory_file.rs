//! An open file of the memory disk. A handle of an earlier life does nothing any more.

use super::super::{DiskError, DiskFile};
use super::content::{Content, put};
use super::faults::Calls;
use super::memory_disk::{MemoryDisk, State, blocks, error};
use crate::disk::DiskErrorKind;

pub(super) struct MemoryFile {
    pub(super) disk: MemoryDisk,
    pub(super) name: String,
    pub(super) id: u64,
    pub(super) life: u64,
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
            let whole = state.change("write", &self.name);
            let bytes = match &whole {
                Err(_) if !state.faults.half_done() => return whole,
                Err(_) => &bytes[..bytes.len() / 2],
                Ok(()) => bytes,
            };
            let end = blocks(offset + bytes.len() as u64);
            let grows = end.saturating_sub(blocks(content(state, id).len));
            if grows > 0 {
                state.allocate(grows, "write", &self.name)?;
            }
            state.counts.writes += 1;
            let content = content(state, id);
            put(&mut content.bytes, offset, bytes);
            content.len = content.len.max(content.bytes.len() as u64);
            content.unsynced.push((offset, bytes.to_vec()));
            whole
        })
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, DiskError> {
        self.with("read", |state, id| {
            if let Some(kind) = state.faults.meets(Calls::Reads, "read", &self.name) {
                return Err(error(kind, "read", &self.name));
            }
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
            if let Err(error) = state.change("sync", &self.name) {
                if state.faults.half_done() {
                    content(state, id).unsynced.clear();
                }
                return Err(error);
            }
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
