//! The leader epochs that look-ups tell, also of partitions that are not open.

use std::collections::BTreeMap;

use bookie_metadata::list_all;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::OwnerEpoch;
use hulse_proto::wire::metadata::Partition;
use prost::Message;

use crate::keys::topic_prefix;
use crate::topics::read;
use crate::{Partitions, Topic};

impl Partitions {
    /// The epoch under which each partition of `topic` is served, by index: of an open one its own, of a closed one that of its next
    /// opening here. Clients take an epoch that goes down for an old word, so this never says less than it said before.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `DATA_DAMAGED`; when every partition is open nothing is read.
    pub async fn leader_epochs(&self, topic: &Topic) -> Result<Vec<OwnerEpoch>, Fault> {
        let open: Vec<Option<OwnerEpoch>> = topic
            .partition_ids()
            .map(|id| self.opened(id).map(|open| open.leader_epoch()))
            .collect();
        if open.iter().all(Option::is_some) {
            return Ok(open.into_iter().flatten().collect());
        }
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
        let next = |index: usize| OwnerEpoch(last.get(&index).map_or(1, |epoch| epoch + 1));
        // One that opened between the two looks has the epoch that was read, or the next.
        Ok(open
            .into_iter()
            .enumerate()
            .map(|(index, open)| open.unwrap_or_else(|| next(index)))
            .collect())
    }
}
