//! What happens to a bookie's disk besides crashes: full, stalled, bits flipped, files lost, the whole disk an older copy of itself.
//!
//! Only what a later durable group proves to have been durable is flipped or taken away: damage in the very last group, before its
//! mark, is the window that the fault model leaves open (storage.md 4.3, and the fault model in bookie/README.md). So is a copy that
//! was taken since the last start: nothing tells it from the disk as it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bookie_node::disk::{Disk, DiskFile, MemoryDisk, Survival};
use bookie_node::log::format::{FileHeader, GroupHeader, file_number};
use bookie_node::log::{BLOCK_BYTES, LogPosition};
use rand::Rng;
use rand::seq::IndexedRandom;
use tokio::time::Instant;

use super::sim_bookie::{PowerLoss, SimBookie, State};
use crate::trace;

/// What became of a disk.
#[derive(Default)]
pub(super) struct Scars {
    /// Synced bytes were lost at least once: damage and limbo are to be expected.
    pub(super) any: bool,
    /// Its machine died while "stored" did not mean synced.
    pub(super) tail: bool,
    /// Something was lost that no start has seen yet.
    pub(super) fresh: bool,
    /// Starts that metadata know of.
    pub(super) starts: u64,
    /// One is under way, which metadata may know of already.
    pub(super) starting: bool,
    /// An older copy, and how many starts there had been.
    copy: Option<(MemoryDisk, u64)>,
}

/// Groups of a log that later durable ones prove, by file.
type Proved = BTreeMap<u64, Vec<(u64, GroupHeader)>>;

impl SimBookie {
    /// True when synced bytes of its disk were lost.
    pub fn is_scarred(&self) -> bool {
        self.state().scars.any
    }

    /// True when its machine died while "stored" did not mean synced.
    pub fn has_lost_tail(&self) -> bool {
        self.state().scars.tail
    }

    /// Its disk takes only `room` bytes more.
    pub fn fill_disk(&self, room: u64) {
        trace!(
            self.setup.trace,
            "{} has {room} bytes of disk left", self.name
        );
        self.disk.set_capacity(Some(self.disk.used() + room));
    }

    /// Its disk is as large as it likes.
    pub fn free_disk(&self) {
        self.disk.set_capacity(None);
    }

    /// Its disk does nothing for a while; then it goes on as if nothing had been.
    pub fn stall_disk(&self, time: Duration) {
        trace!(
            self.setup.trace,
            "{}: the disk stalls for {time:?}", self.name
        );
        self.state().stalled_until = Some(Instant::now() + time);
    }

    /// Flips one bit in what is known to be durable, or several, which tell less of what stood there: in the header of a file or a
    /// group, in a record, or in the last proved group. False when there is nothing yet.
    pub fn flip_bit(&self) -> bool {
        let proved = self.proved();
        let mut state = self.state();
        if state.starting.is_some() {
            // A start opens the log twice here, and once in reality.
            return false;
        }
        let Some((name, offset)) = choose(&proved, &mut state) else {
            return false;
        };
        let bit = state.rng.random_range(0..8);
        state.scars.any = true;
        state.scars.fresh = true;
        trace!(
            self.setup.trace,
            "{}: bit {bit} of byte {offset} in {name} flips", self.name
        );
        match offset % 2 {
            0 => self.disk.ruin(&name, offset),
            _ => self.disk.flip(&name, offset, bit),
        }
        true
    }

    /// Dies, and a log file is gone; not the newest one.
    pub fn lose_file(self: &Arc<Self>) -> bool {
        if self.state().scars.fresh {
            // What proves the one loss must not be the other.
            return false;
        }
        let mut files = self.log_files();
        files.pop();
        let Some(file) = files.choose(&mut self.state().rng).copied() else {
            return false;
        };
        self.crash_and(PowerLoss::Yes, |state| {
            let name = bookie_node::log::file_name(file);
            // The newest may be void at the next start; then this one would be the last, and its loss leaves no trace.
            let newest = self.log_files().last().is_some_and(|last| *last > file);
            if newest && self.disk.remove(&name).is_ok() {
                state.scars.any = true;
                state.scars.fresh = true;
                trace!(self.setup.trace, "{} loses {name}", self.name);
                // Gone for good.
                let _ = self.disk.sync_dir();
            }
        });
        true
    }

    /// Dies and comes back with the disk as it was before its last start. False: only a copy for later was made.
    pub fn go_back(self: &Arc<Self>) -> bool {
        let mut state = self.state();
        let starts = state.scars.starts;
        let old = match &state.scars.copy {
            Some((copy, taken)) if *taken < starts => copy.clone(),
            Some(_) => return false,
            None => {
                // A copy that is taken in a start may have its boot's number, and nobody could tell it from the disk.
                if starts > 0 && !state.scars.starting {
                    state.scars.copy = Some((self.disk.fork(), starts));
                }
                return false;
            }
        };
        drop(state);
        self.crash_and(PowerLoss::Yes, |state| {
            trace!(
                self.setup.trace,
                "{} has an older copy of its disk", self.name
            );
            old.crash(Survival::Random(&mut state.rng));
            self.disk.restore(&old);
            state.scars.any = true;
            state.scars.copy = None;
        });
        true
    }

    fn log_files(&self) -> Vec<u64> {
        let names = self.disk.list().unwrap_or_default();
        let mut files: Vec<u64> = names.iter().filter_map(|name| file_number(name)).collect();
        files.sort_unstable();
        files
    }

    /// Every group that a later durable group proves. Looks at the medium: what the page cache still shows after a failed sync is
    /// on no disk, and proves nothing.
    fn proved(&self) -> Proved {
        let mut groups = Proved::new();
        let mut synced = LogPosition::default();
        let medium = self.disk.fork();
        medium.crash(Survival::Nothing);
        for file in self.log_files() {
            let Ok(open) = medium.open(&bookie_node::log::file_name(file)) else {
                continue;
            };
            let found = groups_of(open.as_ref());
            let newest = found.iter().map(|(_, header)| header.synced).max();
            synced = synced.max(newest.unwrap_or_default());
            groups.insert(file, found);
        }
        for (file, found) in &mut groups {
            found.retain(|(at, header)| {
                let end = at + header.padded_bytes();
                synced
                    >= LogPosition {
                        file: *file,
                        offset: end,
                    }
            });
        }
        groups.retain(|_, found| !found.is_empty());
        groups
    }
}

/// The groups of a file, as far as they can be read.
fn groups_of(file: &dyn DiskFile) -> Vec<(u64, GroupHeader)> {
    let mut groups = Vec::new();
    let Ok(header) = file
        .read_at(0, BLOCK_BYTES)
        .map(|block| FileHeader::decode(&block))
    else {
        return groups;
    };
    let Ok(header) = header else {
        return groups;
    };
    let mut at = BLOCK_BYTES as u64;
    while let Ok(bytes) = file.read_at(at, BLOCK_BYTES) {
        let Ok(group) = GroupHeader::decode(&bytes, header.salt, at) else {
            break;
        };
        groups.push((at, group));
        at += group.padded_bytes();
    }
    groups
}

/// A byte to be flipped.
fn choose(proved: &Proved, state: &mut State) -> Option<(String, u64)> {
    let rng = &mut state.rng;
    let files: Vec<u64> = proved.keys().copied().collect();
    let file = *files.choose(rng)?;
    let groups = &proved[&file];
    let (at, group) = match rng.random_range(0..3) {
        0 => *groups.last()?,
        _ => *groups.choose(rng)?,
    };
    let body = u64::from(group.body_bytes);
    let offset = match rng.random_range(0..8) {
        0 => rng.random_range(0..BLOCK_BYTES as u64),
        1 => at + rng.random_range(0..64),
        // The header of the first record.
        2 => at + 64 + rng.random_range(0..32.min(body.max(1))),
        _ => at + rng.random_range(0..64 + body.max(1)),
    };
    Some((bookie_node::log::file_name(file), offset))
}
