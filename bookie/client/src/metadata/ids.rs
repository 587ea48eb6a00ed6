//! Numbers of ledgers: reserved in blocks under the key `id/ledger`, never given twice.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bookie_metadata::{MetadataError, MetadataStore, counter};
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::LEDGER_IDS_KEY;

/// The numbers this process holds. A block that is not used up is lost with the process: numbers are plenty.
pub(crate) struct LedgerIds {
    block: u64,
    reserved: Mutex<VecDeque<Range<u64>>>,
    /// Held by the one who reserves. Many at once would only take the counter out of each other's hands, until some give up.
    turn: tokio::sync::Mutex<()>,
}

impl LedgerIds {
    pub(crate) fn new(block: u64) -> Self {
        Self {
            block: block.max(1),
            reserved: Mutex::new(VecDeque::new()),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// The next number; never 0, which stands for "no ledger" in logs. Cancel-safe: at worst a block is lost.
    ///
    /// Callers that find nothing wait for the one that reserves.
    pub(crate) async fn next(&self, store: &dyn MetadataStore) -> Result<LedgerId, MetadataError> {
        if let Some(id) = self.take() {
            return Ok(id);
        }
        let _turn = self.turn.lock().await;
        loop {
            if let Some(id) = self.take() {
                return Ok(id);
            }
            let block = counter::reserve(store, LEDGER_IDS_KEY, self.block).await?;
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

    use bookie_metadata::MemoryStore;
    use bookie_metadata::testing::FaultyStore;

    use super::*;

    #[tokio::test]
    async fn numbers_for_many_at_once_are_reserved_by_one_of_them() {
        let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        let ids = Arc::new(LedgerIds::new(16));
        store.silence();
        let tasks = (0..64).map(|_| {
            let (store, ids) = (store.clone(), ids.clone());
            tokio::spawn(async move { ids.next(&*store).await.unwrap() })
        });
        let tasks: Vec<_> = tasks.collect();
        tokio::task::yield_now().await;
        store.speak();
        let mut given = BTreeSet::new();
        for task in tasks {
            assert!(given.insert(task.await.unwrap()));
        }
        // 0 is not given, so 64 numbers take a fifth block.
        let after = counter::reserve(&*store, LEDGER_IDS_KEY, 1).await.unwrap();
        assert_eq!(after.start, 5 * 16);
    }
}
