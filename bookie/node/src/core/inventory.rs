//! What is held, for an auditor that compares it with metadata (storage.md X8).

use std::ops::Range;

use hulse_proto::bookie::{
    BookieError, HeldLedger, HeldRun, INVENTORY_RUNS_MAX, Inventory, InventoryRequest,
};
use hulse_proto::id::EntryId;

use super::node_core::NodeCore;
use crate::ledger::LedgerState;

/// Ledgers that one inventory looks at, so that nobody waits long for the lock.
const LEDGERS_MAX: usize = 16 << 10;

impl NodeCore {
    /// The durable entries of the asked ledgers that are not known to be damaged; without digests.
    ///
    /// # Errors
    /// When the request is for another node.
    pub fn inventory(&self, request: &InventoryRequest) -> Result<Inventory, BookieError> {
        self.check(&request.to)?;
        let mut inventory = Inventory::default();
        if request.to.ledger >= request.ledgers_end {
            return Ok(inventory);
        }
        let asked = self
            .state
            .ledgers
            .range(request.to.ledger..request.ledgers_end);
        let mut room = INVENTORY_RUNS_MAX;
        for (looked, (ledger, state)) in asked.enumerate() {
            if looked >= LEDGERS_MAX || room == 0 {
                inventory.next = Some(*ledger);
                break;
            }
            if state.deleted {
                continue;
            }
            let mut runs = held(state, request.first.0..request.end.0);
            if runs.len() > room && !inventory.ledgers.is_empty() {
                inventory.next = Some(*ledger);
                break;
            }
            runs.truncate(room);
            room -= runs.len();
            if !runs.is_empty() {
                let ledger = *ledger;
                inventory.ledgers.push(HeldLedger { ledger, runs });
            }
        }
        Ok(inventory)
    }
}

/// The held entries inside `asked`, without the damaged ones.
fn held(state: &LedgerState, asked: Range<u64>) -> Vec<HeldRun> {
    let mut runs = Vec::new();
    for range in state.entries.ranges() {
        let (mut first, end) = (range.start.max(asked.start), range.end.min(asked.end));
        if first >= end {
            continue;
        }
        for damaged in state.damaged.range(EntryId(first)..EntryId(end)) {
            push(&mut runs, first..damaged.0);
            first = damaged.0 + 1;
        }
        push(&mut runs, first..end);
    }
    runs
}

fn push(runs: &mut Vec<HeldRun>, range: Range<u64>) {
    if !range.is_empty() {
        runs.push(HeldRun {
            first: EntryId(range.start),
            end: EntryId(range.end),
            digest: None,
        });
    }
}
