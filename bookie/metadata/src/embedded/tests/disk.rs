//! A disk in memory that crashes, loses and tears what is not synced, and fails like a real one.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use rand::Rng;
use rand::rngs::StdRng;
use redb::StorageBackend;

use crate::embedded::backend::Medium;

/// What happens at the chosen operation (writes, length changes and syncs are counted, from 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The machine stops: neither this operation nor a later one is answered.
    Crash,
    /// The operation fails once. A failed sync marks pages as clean that never reached the medium.
    ErrorOnce,
}

#[derive(Debug, Clone)]
enum Dirty {
    Write(u64, Vec<u8>),
    Length(u64),
}

#[derive(Debug, Default)]
struct State {
    /// On the medium.
    durable: Vec<u8>,
    /// What reads see.
    cached: Vec<u8>,
    dirty: Vec<Dirty>,
    operations: u64,
    trouble: Option<(u64, Trouble)>,
    crashed: bool,
    /// The file cannot grow beyond this.
    capacity: Option<usize>,
    /// What the failing operation was.
    struck: Option<&'static str>,
}

/// The disk. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk(Arc<Mutex<State>>);

fn write_at(image: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let start = usize::try_from(offset).unwrap();
    let end = start + data.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[start..end].copy_from_slice(data);
}

fn apply(image: &mut Vec<u8>, dirty: &Dirty) {
    match dirty {
        Dirty::Write(offset, data) => write_at(image, *offset, data),
        Dirty::Length(length) => image.resize(usize::try_from(*length).unwrap(), 0),
    }
}

impl Disk {
    /// One that holds these bytes, durably.
    pub(super) fn with(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State {
            durable: image.clone(),
            cached: image,
            ..State::default()
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Plans trouble at the operation `at` from now.
    pub(super) fn plan(&self, at: u64, trouble: Trouble) {
        let mut state = self.state();
        let at = state.operations + at;
        state.trouble = Some((at, trouble));
    }

    /// Leaves room for this many bytes more; `None`: without end.
    pub(super) fn set_room(&self, room: Option<usize>) {
        let mut state = self.state();
        state.capacity = room.map(|room| state.cached.len() + room);
    }

    /// Operations so far.
    pub(super) fn operations(&self) -> u64 {
        self.state().operations
    }

    /// The operation that trouble struck, if it did.
    pub(super) fn struck(&self) -> Option<&'static str> {
        self.state().struck
    }

    /// What was synced, and nothing else.
    pub(super) fn synced(&self) -> Vec<u8> {
        self.state().durable.clone()
    }

    /// What was synced and everything after it.
    pub(super) fn everything(&self) -> Vec<u8> {
        let state = self.state();
        let mut image = state.durable.clone();
        state
            .dirty
            .iter()
            .for_each(|dirty| apply(&mut image, dirty));
        image
    }

    /// What was synced and a random part of the rest: each write whole, torn or lost.
    pub(super) fn survivors(&self, rng: &mut StdRng) -> Vec<u8> {
        let state = self.state();
        let mut image = state.durable.clone();
        for dirty in &state.dirty {
            match (rng.random_range(0..3), dirty) {
                (0, _) => {}
                (1, Dirty::Write(offset, data)) if !data.is_empty() => {
                    let start = rng.random_range(0..data.len());
                    let end = rng.random_range(start..=data.len());
                    write_at(&mut image, *offset + start as u64, &data[start..end]);
                }
                _ => apply(&mut image, dirty),
            }
        }
        image
    }

    /// Counts an operation that makes the file at least `end` long; an error if trouble strikes.
    fn operate(state: &mut State, what: &'static str, end: u64) -> io::Result<()> {
        if state.crashed {
            return Err(io::Error::other("the machine is off"));
        }
        if state.capacity.is_some_and(|room| end > room as u64) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let now = state.operations;
        state.operations += 1;
        match state.trouble {
            Some((at, trouble)) if at == now => {
                state.trouble = None;
                state.struck = Some(what);
                state.crashed = trouble == Trouble::Crash;
                Err(io::Error::other("injected"))
            }
            _ => Ok(()),
        }
    }
}

impl Medium for Disk {
    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
        if self.state().crashed {
            return Err(io::Error::other("the machine is off"));
        }
        Ok(Box::new(self.clone()))
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().cached.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = state.cached.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        let result = Self::operate(&mut state, "set_len", len);
        if result.is_ok() {
            apply(&mut state.cached, &Dirty::Length(len));
        }
        if result.is_ok() || state.crashed {
            state.dirty.push(Dirty::Length(len));
        }
        result
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        let result = Self::operate(&mut state, "sync", 0);
        if result.is_ok() {
            let dirty = std::mem::take(&mut state.dirty);
            dirty.iter().for_each(|d| apply(&mut state.durable, d));
        } else if !state.crashed {
            // The pages count as clean now; only what is written again will be synced.
            state.dirty.clear();
        }
        result
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let end = offset + data.len() as u64;
        let result = Self::operate(&mut state, "write", end);
        // A failed write may have done its work all the same.
        let done = result.is_ok() || (state.struck.is_some() && state.operations.is_multiple_of(2));
        if done {
            write_at(&mut state.cached, offset, data);
        }
        // One that a crash cuts short may still be on the medium.
        if done || state.crashed {
            state.dirty.push(Dirty::Write(offset, data.to_vec()));
        }
        result
    }
}
