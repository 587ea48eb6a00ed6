//! Numbers of ledgers: reserved in blocks under the key `id/ledger`, never given twice.

use std::ops::Range;

use bookie_metadata::{MetadataError, MetadataStore, counter};
use hulse_proto::id::LedgerId;
use tokio::sync::Mutex;

const KEY: &str = "id/ledger";

/// The numbers this process holds. A block that is not used up is lost with the process: numbers are plenty.
pub(crate) struct LedgerIds {
    block: u64,
    reserved: Mutex<Range<u64>>,
}

impl LedgerIds {
    pub(crate) fn new(block: u64) -> Self {
        Self {
            block: block.max(1),
            reserved: Mutex::new(0..0),
        }
    }

    /// The next number; never 0, which stands for "no ledger" in logs. Cancel-safe: at worst a block is lost.
    pub(crate) async fn next(&self, store: &dyn MetadataStore) -> Result<LedgerId, MetadataError> {
        let mut reserved = self.reserved.lock().await;
        loop {
            match reserved.next() {
                Some(0) => {}
                Some(id) => return Ok(LedgerId(id)),
                None => *reserved = counter::reserve(store, KEY, self.block).await?,
            }
        }
    }
}
