//! Removing the data of a deleted topic: ledgers first, then what links to them, then the partition's key (storage.md P6). And openings
//! that a deletion may overtake.
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
use crate::partition::{Claim, PartitionHandle, win_epoch};
use crate::storage_fault;
use crate::topics::{Topic, Topics};

/// Keys that a sweep holds at a time.
const SWEEP_PAGE: usize = 1000;

/// The ledger of a key, if it is being deleted.
fn deleting(item: &Versioned) -> Option<LedgerId> {
    let metadata = LedgerMetadata::decode(&item.value).ok()?;
    let number = item.key.rsplit('/').next()?.parse().ok()?;
    (metadata.state == LedgerState::Deleting).then_some(LedgerId(number))
}

impl Partitions {
    /// Opens a partition of this topic, which was there a moment ago, and looks again: it may have been deleted, here or by another
    /// broker, between that look and the opening. Then the deletion's own round may have passed already, and this opening must leave
    /// nothing behind. A reading decides, not what was heard.
    ///
    /// # Errors
    /// Those of [`Partitions::open`], and of the look.
    pub(crate) async fn open_of(
        &self,
        topics: &Topics,
        topic: &Topic,
        partition: PartitionId,
        claim: Claim,
    ) -> Result<PartitionHandle, Fault> {
        let handle = self.open_claimed(partition, topic.policy(), claim).await?;
        if self.with.owners.alone() && topics.serves(partition.topic) {
            return Ok(handle);
        }
        let Err(fault) = topics.find(partition.topic).await else {
            return Ok(handle);
        };
        if matches!(fault.reason, Reason::TopicNotFound | Reason::TopicDeleting) {
            self.close(partition, fault.clone()).await;
            if let Err(left) = self.delete_data(partition).await {
                tracing::warn!(%partition, fault = %left, "data of a deleted topic are left");
            }
        }
        Err(fault)
    }

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
    use std::sync::Arc;

    use bookie_metadata::MetadataStore as _;
    use bookie_metadata::testing::{Call, Fate};
    use hulse_proto::id::{NodeName, OwnerEpoch, TopicId};
    use uuid::Uuid;

    use super::*;
    use crate::testing::MemoryBroker;
    use crate::topics::NewTopic;

    const SLOW: std::time::Duration = std::time::Duration::from_secs(1);

    /// Case: a broker opens a partition, or takes what is handed over to it, and saw the topic a moment before another one deleted it.
    #[tokio::test(start_paused = true)]
    async fn opening_that_a_deletion_has_overtaken_leaves_no_key_behind() {
        for claim in [Claim::Owner, Claim::HandedOver(OwnerEpoch(1))] {
            let memory = MemoryBroker::default();
            let named = |name: &str| {
                let name = NodeName::new(name).unwrap();
                memory.front(|config| config.name = name)
            };
            let (first, second) = (named("broker-1"), named("broker-2"));
            memory.register("broker-1", 0, "one:7400", None).await;
            memory.register("broker-2", 1, "two:7400", None).await;
            MemoryBroker::follow(&first).await;
            MemoryBroker::follow(&second).await;
            let new = NewTopic {
                partitions: 16,
                ..NewTopic::default()
            };
            let name = "t".parse().unwrap();
            let topic = first.topics().create_with(&name, new).await.unwrap();
            let ids = topic.partition_ids();
            let mut of_first = ids.filter(|id| !first.partitions().is_elsewhere(*id));
            let partition = of_first.next().expect("one of sixteen");
            let remover = Arc::new(second.partitions().clone());
            second.topics().delete(&name, remover).await.unwrap();
            let partitions = first.partitions();
            let opened = partitions.open_of(first.topics(), &topic, partition, claim);
            let reason = opened.await.map(drop).unwrap_err().reason;
            assert!(
                matches!(reason, Reason::TopicNotFound | Reason::PartitionNotFound),
                "{reason:?}"
            );
            assert!(partitions.opened(partition).is_none());
            let left = list_all(&*memory.metadata, "part/").await.unwrap();
            assert!(left.is_empty(), "{claim:?}: nobody would ever remove it");
        }
    }

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
