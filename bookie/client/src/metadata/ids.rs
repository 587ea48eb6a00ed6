//! Numbers of ledgers: reserved in blocks under the key `id/ledger`, never given twice.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bookie_metadata::{MetadataError, MetadataStore, counter};
use hulse_proto::id::LedgerId;

const KEY: &str = "id/ledger";

/// The numbers this process holds. A block that is not used up is lost with the process: numbers are plenty.
pub(crate) struct LedgerIds {
    block: u64,
    reserved: Mutex<VecDeque<Range<u64>>>,
}

impl LedgerIds {
    pub(crate) fn new(block: u64) -> Self {
        Self {
            block: block.max(1),
            reserved: Mutex::new(VecDeque::new()),
        }
    }

    /// The next number; never 0, which stands for "no ledger" in logs. Cancel-safe: at worst a block is lost.
    ///
    /// Callers that find nothing reserve a block each; the surplus serves later ones.
    pub(crate) async fn next(&self, store: &dyn MetadataStore) -> Result<LedgerId, MetadataError> {
        loop {
            if let Some(id) = self.take() {
                return Ok(id);
            }
            let block = counter::reserve(store, KEY, self.block).await?;
            self.lock().push_back(block);
        }
    }

    fn take(&self) -> Option<LedgerId> {
        let mut reserved = self.lock();
        loop {
            match reserved.front_mut()?.next() {
                Some(0) => {}
                Some(id) => return Some(LedgerId(id)),
                None => drop(reserved.pop_front()),
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Range<u64>>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
