//! Numbers of ledgers: reserved in blocks under the key `id/ledger`, never given twice.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bookie_metadata::{MetadataError, MetadataStore, counter};
use hulse_proto::id::LedgerId;
use tokio::sync::Semaphore;

const KEY: &str = "id/ledger";

/// The numbers this process holds. A block that is not used up is lost with the process: numbers are plenty.
pub(crate) struct LedgerIds {
    block: u64,
    reserved: Mutex<VecDeque<Range<u64>>>,
    /// Held by the one who reserves: a hundred partitions that begin at once would only make each other lose the compare.
    turn: Semaphore,
}

impl LedgerIds {
    pub(crate) fn new(block: u64) -> Self {
        Self {
            block: block.max(1),
            reserved: Mutex::new(VecDeque::new()),
            turn: Semaphore::new(1),
        }
    }

    /// The next number; never 0, which stands for "no ledger" in logs. Cancel-safe: at worst a block is lost.
    ///
    /// Of callers that find nothing, one reserves a block; the others wait for it.
    pub(crate) async fn next(&self, store: &dyn MetadataStore) -> Result<LedgerId, MetadataError> {
        loop {
            if let Some(id) = self.take() {
                return Ok(id);
            }
            let _turn = self
                .turn
                .acquire()
                .await
                .expect("this semaphore is never closed");
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;

    use bookie_metadata::MemoryStore;
    use bookie_metadata::testing::{Fate, FaultyStore};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn next_by_a_thousand_at_once_reserves_the_blocks_they_need() {
        let store = FaultyStore::new(Arc::new(MemoryStore::new()));
        store.plan_txns([Fate::Slow(Duration::from_millis(5)); 1_000]);
        let ids = LedgerIds::new(100);
        let callers = (0..1_000).map(|_| ids.next(&store));
        let given = futures::future::join_all(callers).await;
        let given: BTreeSet<LedgerId> = given.into_iter().map(Result::unwrap).collect();
        assert_eq!(given.len(), 1_000);
        // 0 is left out, so that the thousandth is the first of the eleventh block.
        let after = counter::reserve(&store, KEY, 1).await.unwrap();
        assert_eq!(after.start, 1_100);
    }
}
