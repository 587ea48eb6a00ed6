//! Opens a partition for a request that names it by identity.

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::PartitionId;

use super::front::{Front, shutting_down};
use crate::partition::Claim;
use crate::{PartitionHandle, Topic};

impl Front {
    /// The open partition. One that serves already needs no metadata, so it goes on while they are silent (ARCHITECTURE D6).
    ///
    /// # Errors
    /// `TOPIC_NOT_FOUND`, `TOPIC_DELETING`, `PARTITION_NOT_FOUND`, `SHUTTING_DOWN`, and those of
    /// [`crate::Partitions::open`].
    pub async fn open(&self, partition: PartitionId) -> Result<PartitionHandle, Fault> {
        if self.drain.is_cancelled() {
            return Err(shutting_down());
        }
        if let Some(open) = self.partitions.opened(partition) {
            return Ok(open);
        }
        self.arrivals.wait(partition).await;
        if let Some(open) = self.partitions.opened(partition) {
            return Ok(open);
        }
        // Known without a read, so that clients of an old owner cost metadata nothing.
        if let Some(moved) = self.partitions.with.owners.redirect(partition) {
            return Err(moved);
        }
        let topic = self.check_exists(partition).await?;
        self.partitions
            .open_of(&self.topics, &topic, partition, Claim::Owner)
            .await
    }

    /// As [`Front::open`], for one who only reads. Of a partition that does not open because it is damaged: what is certain all the
    /// same; [`PartitionHandle::beyond`] says why there is no more.
    ///
    /// # Errors
    /// As [`Front::open`].
    pub async fn open_to_read(&self, partition: PartitionId) -> Result<PartitionHandle, Fault> {
        let elsewhere = self.partitions.with.owners.redirect(partition);
        if !self.drain.is_cancelled()
            && elsewhere.is_none()
            && let Some(certain) = self.partitions.certain(partition, true)
        {
            return Ok(certain);
        }
        match self.open(partition).await {
            Err(fault) if fault.reason == Reason::DataDamaged => {
                self.partitions.certain(partition, false).ok_or(fault)
            }
            open => open,
        }
    }

    pub(super) async fn check_exists(&self, partition: PartitionId) -> Result<Topic, Fault> {
        let topic = self.topics.find(partition.topic).await?;
        if partition.index < topic.partitions {
            return Ok(topic);
        }
        let words = format!(
            "topic {} has {} partitions, there is no partition {}",
            topic.name, topic.partitions, partition.index
        );
        Err(Fault::new(Reason::PartitionNotFound, words).with("partitions", topic.partitions))
    }
}
