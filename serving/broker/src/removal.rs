//! Removing the data of a deleted topic: ledgers first, then what links to them, then the partition's key (storage.md P6).
//!
//! # Invariants
//! 1. No ledger goes while an earlier owner's transaction may still link it, or another one: `end_guards` comes first (M6). The
//!    caller has marked the topic before (`topics`).
//! 2. Each step may be repeated, and begun by another broker.

use bookie_metadata::{ListRequest, Op, TXN_OPS_MAX, Txn, Versioned, list_all};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{LedgerId, PartitionId};
use hulse_proto::ledger::{LedgerKind, LedgerMetadata, LedgerState};

use crate::keys::{chain_prefix, partition_key, pin_key};
use crate::log::Chain;
use crate::owner::Partitions;
use crate::partition::{Claim, win_epoch};
use crate::storage_fault;

/// Keys that a sweep holds at a time.
const SWEEP_PAGE: usize = 1000;

/// The ledger of a key, if it is being deleted.
fn deleting(item: &Versioned) -> Option<LedgerId> {
    let metadata = LedgerMetadata::decode(&item.value).ok()?;
    let number = item.key.rsplit('/').next()?.parse().ok()?;
    (metadata.state == LedgerState::Deleting).then_some(LedgerId(number))
}

impl Partitions {
    /// Removes a partition's ledgers, chains and key. Idempotent; goes on where an earlier try stopped.
    ///
    /// # Errors
    /// A retryable fault; what was removed stays removed.
    pub async fn delete_data(&self, partition: PartitionId) -> Result<(), Fault> {
        let gone = Fault::new(Reason::TopicDeleting, "the topic is being deleted");
        self.close(partition, gone).await;
        let metadata = &*self.with.metadata;
        self.end_guards(partition).await?;
        let mut keys = Vec::new();
        for kind in [LedgerKind::Log, LedgerKind::State] {
            let chain = Chain::load(metadata, partition, kind)
                .await
                .map_err(|error| storage_fault::chain(&error))?;
            for link in chain.links() {
                self.delete_ledger(LedgerId(link.ledger)).await?;
            }
            let items = list_all(metadata, &chain_prefix(partition, kind)).await;
            let items = items.map_err(|error| storage_fault::metadata(&error))?;
            keys.extend(items.into_iter().map(|item| item.key));
        }
        // Last of all: it tells that there was a partition.
        keys.extend([pin_key(partition), partition_key(partition)]);
        for keys in keys.chunks(TXN_OPS_MAX) {
            self.delete_keys(keys).await?;
        }
        self.forget(partition);
        Ok(())
    }

    /// Moves the owner's key on, so that no transaction of an earlier owner can land any more: one that was sent and never
    /// answered finds its other keys absent again once they are deleted, and would bring a deleted ledger back.
    async fn end_guards(&self, partition: PartitionId) -> Result<(), Fault> {
        match win_epoch(&self.with, partition, Claim::Deletion).await {
            // It never had one, or another broker was faster: no transaction that compares it can land.
            Err(fault) if fault.reason == Reason::PartitionNotFound => Ok(()),
            won => won.map(drop),
        }
    }

    async fn delete_ledger(&self, ledger: LedgerId) -> Result<(), Fault> {
        let client = &self.with.client;
        let state = client
            .describe(ledger)
            .await
            .map_err(|error| storage_fault::metadata(&error))?;
        match state.map(|(metadata, _)| metadata.state) {
            None => return Ok(()),
            Some(LedgerState::Open | LedgerState::InRecovery) => {
                let recovered = client.recover(ledger, Txn::default()).await;
                if let Err(error) = recovered {
                    // Nobody will read it again, so a damaged one is sealed at what is found.
                    tracing::debug!(%ledger, %error, "ledger of a deleted topic is sealed with a loss");
                    let sealed = client.seal_with_loss(ledger, None).await;
                    sealed.map_err(|error| storage_fault::recover(ledger, &error))?;
                }
            }
            Some(LedgerState::Closed | LedgerState::Deleting) => {}
        }
        client
            .delete(ledger, Txn::default())
            .await
            .map_err(|error| storage_fault::delete(&error))
    }

    async fn delete_keys(&self, keys: &[String]) -> Result<(), Fault> {
        let ops = keys.iter().cloned().map(|key| Op::Delete { key });
        let txn = Txn {
            compares: vec![],
            ops: ops.collect(),
        };
        self.with
            .metadata
            .txn(txn)
            .await
            .map(|_| ())
            .map_err(|error| storage_fault::metadata(&error))
    }

    /// Finishes deletions and trims that were cut short between a ledger's mark and its end. Run after start, and now and then.
    ///
    /// # Errors
    /// The first fault; the others were tried, and what is left is for the next time.
    pub async fn sweep_deleting(&self) -> Result<usize, Fault> {
        let mut swept = 0;
        let mut first_fault = Ok(());
        let mut after = None;
        loop {
            let request = ListRequest {
                prefix: "ledger/".to_owned(),
                after,
                limit: SWEEP_PAGE,
                at: None,
            };
            let page = self.with.metadata.list(request).await;
            let page = page.map_err(|error| storage_fault::metadata(&error))?;
            for ledger in page.items.iter().filter_map(deleting) {
                match self.delete_ledger(ledger).await {
                    Ok(()) => swept += 1,
                    Err(fault) => first_fault = first_fault.and(Err(fault)),
                }
            }
            match page.items.last() {
                Some(last) if page.more => after = Some(last.key.clone()),
                _ => return first_fault.map(|()| swept),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bookie_metadata::MetadataStore as _;
    use bookie_metadata::testing::{Call, Fate};
    use hulse_proto::id::TopicId;
    use uuid::Uuid;

    use super::*;
    use crate::testing::MemoryBroker;

    const SLOW: std::time::Duration = std::time::Duration::from_secs(1);

    /// Case: two brokers delete a topic at the same time, and one is through while the other is about to end its guards.
    #[tokio::test(start_paused = true)]
    async fn deletion_that_another_broker_finished_leaves_no_key_of_the_partition_behind() {
        let memory = MemoryBroker::default();
        let (first, second) = (memory.leased(SLOW), memory.front(|_| {}));
        let slow = first.front(|_| {});
        let partition = PartitionId {
            topic: TopicId(Uuid::from_u128(7)),
            index: 0,
        };
        let open = second.partitions().open(partition).await.unwrap();
        assert_eq!(open.leader_epoch().0, 1);
        let key = partition_key(partition);
        let wins = key.clone();
        // It has read the key; what it writes comes when the other is done.
        first.metadata.choose(move |call| match call {
            Call::Get(key) if key == wins => Fate::Slow(SLOW),
            _ => Fate::Pass,
        });
        let deleting = tokio::spawn({
            let partitions = slow.partitions().clone();
            async move { partitions.end_guards(partition).await }
        });
        tokio::time::sleep(SLOW / 2).await;
        second.partitions().delete_data(partition).await.unwrap();
        assert_eq!(memory.metadata.get(&key).await.unwrap(), None);
        deleting.await.unwrap().unwrap();
        let left = memory.metadata.get(&key).await.unwrap();
        assert_eq!(left, None, "nobody would ever remove it");
    }
}
