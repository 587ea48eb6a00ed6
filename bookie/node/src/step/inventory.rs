//! What the step-wise node says that it holds: inventories, and heads.

use hulse_proto::bookie::{
    Address, BookieError, EntryHead, Inventory, InventoryRequest, ReadRequest,
};

use super::node::StepNode;
use crate::core::Part;
use crate::server::{digest_of_run, heads, read_heads, slots_of};

impl StepNode {
    /// What is held (storage.md X8).
    ///
    /// # Errors
    /// When the request is for another node.
    pub fn inventory(&self, request: &InventoryRequest) -> Result<Inventory, BookieError> {
        let mut held = self.core.inventory(request)?;
        for found in held.ledgers.iter_mut().filter(|_| request.digests) {
            let to = Address {
                ledger: found.ledger,
                ..request.to
            };
            for run in &mut found.runs {
                let want = |first| {
                    self.core
                        .want(&slots_of(to, first, run.end), Part::Slot)
                        .ok()
                };
                run.digest = digest_of_run(&self.locator, run, want);
            }
        }
        Ok(held)
    }

    /// Heads up to the first that cannot be had, as `BookieCalls::read_heads`; without a report of what is damaged.
    ///
    /// # Errors
    /// As `BookieCalls::read`.
    pub fn read_heads(&self, request: &ReadRequest) -> Result<Vec<EntryHead>, BookieError> {
        let wanted = self.core.want(request, heads())?;
        Ok(read_heads(&self.locator, &wanted).0)
    }
}
