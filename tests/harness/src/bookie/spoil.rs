//! What a directed test does to one bookie: spoils a copy, puts an older disk in its place, gives its name a new life.

use std::sync::Arc;

use bookie_metadata::{MetadataStore, Op, Txn};
use bookie_node::disk::{Disk, MemoryDisk};
use bookie_node::log::format::file_number;
use bookie_node::log::{BLOCK_BYTES, file_name};
use bookie_node::step::StepNode;
use hulse_proto::id::{EntryId, LedgerId};

use super::promises::Promises;
use super::sim_bookie::{PowerLoss, SimBookie};
use crate::trace;

impl SimBookie {
    /// Looks at the node that serves now; `None` while it is down.
    pub fn node<T>(&self, look: impl FnOnce(&StepNode) -> T) -> Option<T> {
        self.state().life.as_ref().map(|life| look(&life.node))
    }

    /// Ruins the frame of its copy of an entry, so that nothing tells any more what stood there; false when it has none. Let it rest
    /// before, so that a mark proves the entry's group.
    pub fn spoil_entry(&self, ledger: LedgerId, entry: EntryId) -> bool {
        self.spoil_in(ledger, entry, |_| 4)
    }

    /// As [`SimBookie::spoil_entry`], in the last byte: what stood there is known, and its payload is lost.
    pub fn rot_entry(&self, ledger: LedgerId, entry: EntryId) -> bool {
        self.spoil_in(ledger, entry, |bytes| bytes - 1)
    }

    fn spoil_in(&self, ledger: LedgerId, entry: EntryId, at: impl FnOnce(u64) -> u64) -> bool {
        let found = self.node(|node| node.slot(ledger, entry));
        let Some(location) = found.flatten().map(|slot| slot.location) else {
            return false;
        };
        let at = u64::from(location.offset) + at(u64::from(location.bytes));
        self.spoil_byte(u64::from(location.file), at);
        true
    }

    /// Changes several bits in a byte of its newest log files' content.
    pub fn spoil_byte(&self, file: u64, offset: u64) {
        trace!(
            self.setup.trace,
            "{}: byte {offset} of log file {file} is spoiled", self.name
        );
        self.state().scars.any = true;
        self.disk.ruin(&file_name(file), offset);
    }

    /// Dies; its disk becomes an older copy of itself. It stays down.
    pub fn put_back(self: &Arc<Self>, copy: &MemoryDisk) {
        self.hold_down(PowerLoss::No);
        self.disk.restore(copy);
        self.state().scars.any = true;
        trace!(self.setup.trace, "{} has an older disk", self.name);
    }

    /// Dies; a fresh disk takes its name, as after an operator's `replace` (storage.md C3). It stays down.
    ///
    /// # Panics
    /// When the store does not answer.
    pub async fn replace(self: &Arc<Self>, store: &dyn MetadataStore) {
        self.hold_down(PowerLoss::Yes);
        self.disk.restore(&MemoryDisk::default());
        let registration = Op::Delete {
            key: format!("bookie/{}", self.name),
        };
        let txn = Txn {
            compares: vec![],
            ops: vec![registration],
        };
        store.txn(txn).await.expect("the store answers a test");
        // The new life promised nothing, and holds nothing.
        let mut state = self.state();
        state.promises = Promises::default();
        state.member = None;
        trace!(self.setup.trace, "{} gets a fresh disk", self.name);
    }

    /// The number of the newest log file with anything in it.
    ///
    /// # Panics
    /// When there is none.
    pub fn newest_log(&self) -> u64 {
        let logs = self.logs();
        let written = logs.iter().rev().find(|name| !self.is_blank(name));
        let name = written.expect("a bookie that was started has a log");
        file_number(name).expect("a log's name is a number")
    }

    /// Blocks of that file which were written, its header included.
    pub fn newest_blocks(&self) -> u64 {
        let open = self.disk.open(&file_name(self.newest_log()));
        let bytes = open.and_then(|file| file.read_at(0, 1 << 20));
        let bytes = bytes.unwrap_or_default();
        let blocks = bytes.chunks(BLOCK_BYTES);
        let written = blocks.take_while(|block| block.iter().any(|byte| *byte != 0));
        written.count() as u64
    }

    /// How often it was started.
    pub fn starts(&self) -> u64 {
        self.state().scars.starts
    }

    /// True when nothing but its header was written to a log file.
    pub fn is_blank(&self, name: &str) -> bool {
        let first = self
            .disk
            .open(name)
            .and_then(|file| file.read_at(BLOCK_BYTES as u64, BLOCK_BYTES));
        first.map_or(true, |bytes| bytes.iter().all(|byte| *byte == 0))
    }

    /// A file of its disk is gone for good.
    pub fn lose(&self, name: &str) {
        self.state().scars.any = true;
        let gone = self.disk.remove(name).and_then(|()| self.disk.sync_dir());
        trace!(self.setup.trace, "{} loses {name}: {gone:?}", self.name);
    }

    /// Its log files, oldest first.
    pub fn logs(&self) -> Vec<String> {
        let names = self.disk.list().unwrap_or_default();
        let mut logs: Vec<String> = names
            .into_iter()
            .filter(|name| name.ends_with(".log"))
            .collect();
        logs.sort();
        logs
    }
}
