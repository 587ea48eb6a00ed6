//! What the step-wise node says that it holds.

use hulse_proto::bookie::{Address, BookieError, Inventory, InventoryRequest};

use super::node::StepNode;
use crate::server::{digest_of_run, slots_of};

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
                let want = |first| self.core.want(&slots_of(to, first, run.end), Some(0)).ok();
                run.digest = digest_of_run(&self.locator, run, want);
            }
        }
        Ok(held)
    }
}
