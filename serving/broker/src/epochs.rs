//! The leader epochs that look-ups tell, also of partitions that are not open.

use std::collections::BTreeMap;

use bookie_metadata::list_all;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::OwnerEpoch;
use hulse_proto::wire::metadata::Partition;
use prost::Message;

use crate::keys::topic_prefix;
use crate::owner::Standing;
use crate::topics::read;
use crate::{Partitions, Topic};

impl Partitions {
    /// The epoch under which each partition of `topic` is served, by index: of an open one its own, of a closed one that of its next
    /// opening here. Clients take an epoch that goes down for an old word, so this never says more than what they will meet; one that
    /// is too low (of a partition that is just being opened) makes them look again.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `DATA_DAMAGED`; when every partition is open nothing is read.
    pub async fn leader_epochs(&self, topic: &Topic) -> Result<Vec<OwnerEpoch>, Fault> {
        let now: Option<Vec<OwnerEpoch>> = self
            .standings(topic.partition_ids())
            .into_iter()
            .map(|standing| match standing {
                Standing::Won(epoch) => Some(epoch),
                Standing::Opening | Standing::Closed => None,
            })
            .collect();
        if let Some(now) = now {
            return Ok(now);
        }
        let stored = self.stored_epochs(topic).await?;
        // Looked at after the reading: whoever won what was read has said so here before, and may not be counted twice.
        let standings = self.standings(topic.partition_ids());
        let epochs = standings.into_iter().enumerate().map(|(index, standing)| {
            let stored = stored.get(&index).copied().unwrap_or(0);
            match standing {
                Standing::Won(epoch) => epoch,
                Standing::Opening => OwnerEpoch(stored),
                Standing::Closed => OwnerEpoch(stored + 1),
            }
        });
        Ok(epochs.collect())
    }

    /// The last epoch that was won of each partition, by index; those that nobody opened are missing.
    async fn stored_epochs(&self, topic: &Topic) -> Result<BTreeMap<usize, u32>, Fault> {
        let prefix = topic_prefix(topic.id);
        let stored = read(list_all(&*self.with.metadata, &prefix)).await?;
        let mut last = BTreeMap::new();
        for item in stored {
            let record = Partition::decode(&item.value[..]).map_err(|error| {
                let words = format!("metadata key {} cannot be decoded: {error}", item.key);
                Fault::new(Reason::DataDamaged, words)
            })?;
            let index = item.key.strip_prefix(&prefix).map(str::parse::<usize>);
            if let Some(Ok(index)) = index {
                last.insert(index, record.owner_epoch);
            }
        }
        Ok(last)
    }
}
