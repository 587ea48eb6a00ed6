//! Keeps the view fresh: listings and watches of brokers, and, once there are several, of holders and pins.

use std::time::Duration;

use bookie_metadata::{ListRequest, MetadataError, PAGE_ROWS_MAX, Revision, Versioned};
use futures::StreamExt as _;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{OwnerEpoch, PartitionId};
use tokio::time::sleep;

use super::directory::{Owners, Stage};
use super::view::{BROKERS, Change, PARTS, PINS};
use crate::Partitions;

/// A watch that ended, or a store that did not answer, is asked again after this.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Owners {
    /// From now on other brokers count. Before anything is served; [`Owners::run`] does the rest.
    pub(crate) fn begin(&self) {
        self.0.stage.send_replace(Stage::Looking);
    }

    /// Follows metadata for ever, and closes what others took over.
    pub(crate) async fn run(&self, partitions: &Partitions) {
        let holders = async {
            let mut stage = self.0.stage.subscribe();
            // Its sender is ours, so this ends by the first other broker only.
            drop(stage.wait_for(|stage| *stage == Stage::Among).await);
            tokio::join!(
                self.follow(PINS, partitions),
                self.follow(PARTS, partitions)
            );
        };
        tokio::join!(
            self.follow(BROKERS, partitions),
            holders,
            partitions.with.lease.follow()
        );
    }

    async fn follow(&self, prefix: &str, partitions: &Partitions) {
        loop {
            if let Err(error) = self.follow_once(prefix, partitions).await {
                tracing::debug!(prefix, %error, "a watch of owners is down, will be opened again");
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// A listing, then the changes since, until the watch ends.
    async fn follow_once(
        &self,
        prefix: &str,
        partitions: &Partitions,
    ) -> Result<(), MetadataError> {
        let (rows, revision) = self.list(prefix).await?;
        let changes = self.view().list(prefix, &rows, revision);
        self.after(prefix, changes, partitions);
        if prefix == PARTS {
            // For those who wait until holders are known.
            self.0.stage.send_modify(|_| {});
        }
        let mut events = self.0.store.watch(prefix, revision);
        while let Some(event) = events.next().await {
            let change = self.view().apply(&event?);
            self.after(prefix, change, partitions);
        }
        Ok(())
    }

    async fn list(&self, prefix: &str) -> Result<(Vec<Versioned>, Revision), MetadataError> {
        let mut request = ListRequest {
            prefix: prefix.to_owned(),
            after: None,
            limit: PAGE_ROWS_MAX,
            at: None,
        };
        let mut rows = Vec::new();
        loop {
            let page = self.0.store.list(request.clone()).await?;
            request.after = page.items.last().map(|row| row.key.clone());
            request.at = Some(page.revision);
            rows.extend(page.items);
            if !page.more {
                return Ok((rows, page.revision));
            }
        }
    }

    fn after(
        &self,
        prefix: &str,
        changes: impl IntoIterator<Item = Change>,
        partitions: &Partitions,
    ) {
        if prefix == BROKERS {
            self.restage();
        }
        for change in changes {
            match change {
                Change::Won(partition, holder) => {
                    let why = self.taken_by(partition, &holder);
                    partitions.overtaken(partition, holder.epoch, why);
                }
                Change::Gone(partition) => {
                    let why = Fault::new(Reason::TopicDeleting, "the topic was deleted");
                    partitions.gone(partition, why);
                }
            }
        }
    }
}

impl Partitions {
    /// Somebody won this epoch of a partition. What is open here under an older one ends: it serves nobody for certain any more, and
    /// could show readers an old end for ever.
    fn overtaken(&self, partition: PartitionId, epoch: OwnerEpoch, why: Fault) {
        if self
            .opened(partition)
            .is_none_or(|open| open.leader_epoch() >= epoch)
        {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move { this.close_below(partition, epoch, why).await });
    }

    /// A partition was deleted, perhaps by another broker. One that was open here once, and went to another broker, is forgotten too.
    fn gone(&self, partition: PartitionId, why: Fault) {
        if !self.remembers(partition) {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            this.close(partition, why).await;
            this.forget(partition);
        });
    }
}

#[cfg(test)]
mod tests {
    use bookie_metadata::{MetadataStore as _, Op, Txn};
    use hulse_proto::id::TopicId;
    use uuid::Uuid;

    use super::*;
    use crate::keys::partition_key;
    use crate::testing::MemoryBroker;

    #[tokio::test]
    async fn nothing_is_kept_of_partitions_that_were_never_opened_nor_of_those_that_others_delete()
    {
        let memory = MemoryBroker::default();
        let front = memory.front(|_| {});
        memory.register("broker-1", 0, "one:7400", None).await;
        memory.register("broker-2", 1, "two:7400", None).await;
        MemoryBroker::follow(&front).await;
        let partitions = front.partitions().clone();
        let id = |index| PartitionId {
            topic: TopicId(Uuid::from_u128(7)),
            index,
        };
        let why = Fault::new(Reason::PartitionLoading, "a loss was accepted");
        partitions.close(id(0), why).await;
        assert!(!partitions.remembers(id(0)));
        let mut moved = 0;
        for index in 0..8 {
            moved += u32::from(partitions.open(id(index)).await.is_err());
            assert!(partitions.remembers(id(index)));
        }
        assert!((1..8).contains(&moved), "each broker has some: {moved}");
        // All have keys, as if the other broker had opened its own, and then all go.
        let put = |index| Op::put(partition_key(id(index)), "");
        let delete = |index| Op::Delete {
            key: partition_key(id(index)),
        };
        for ops in [(0..8).map(put).collect(), (0..8).map(delete).collect()] {
            let compares = Vec::new();
            memory.metadata.txn(Txn { compares, ops }).await.unwrap();
        }
        let kept = || (0..8).any(|index| partitions.remembers(id(index)));
        while kept() {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(partitions.open_count(), 0);
    }
}
