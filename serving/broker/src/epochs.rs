//! The leader epochs that look-ups tell, also of partitions that are not open.

use std::collections::BTreeMap;
use std::time::Duration;

use bookie_metadata::list_all;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, OwnerEpoch};
use hulse_proto::wire::metadata::Partition;
use prost::Message;

use crate::keys::topic_prefix;
use crate::owner::Standing;
use crate::owners::Place;
use crate::topics::read;
use crate::{Partitions, Topic};

/// Longest wait for what metadata say of holders; then the rule alone says who may own what.
const KNOWN_MAX: Duration = Duration::from_secs(1);

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
                Standing::Closed => OwnerEpoch(stored.saturating_add(1)),
            }
        });
        Ok(epochs.collect())
    }

    /// Who owns each partition of `topic`, by index, `None` for this broker, and the epoch under which it is served there or will be:
    /// as [`Partitions::leader_epochs`], never more than what clients will meet.
    ///
    /// # Errors
    /// As [`Partitions::leader_epochs`]; nothing is read where holders are known.
    pub async fn owners_of(
        &self,
        topic: &Topic,
    ) -> Result<Vec<(Option<NodeName>, OwnerEpoch)>, Fault> {
        let owners = &self.with.owners;
        if owners.alone() {
            let epochs = self.leader_epochs(topic).await?;
            return Ok(epochs.into_iter().map(|epoch| (None, epoch)).collect());
        }
        owners.known_within(KNOWN_MAX).await;
        let standings = self.standings(topic.partition_ids());
        let told = topic.partition_ids().zip(standings).map(|(id, standing)| {
            let found = owners.holder(id);
            let stored = found.as_ref().map_or(0, |found| found.epoch.0);
            match (owners.place_of(id, found.as_ref()), standing) {
                (Place::There { broker, holds, .. }, _) => {
                    let next = if holds {
                        stored
                    } else {
                        stored.saturating_add(1)
                    };
                    (Some(broker), OwnerEpoch(next))
                }
                (Place::Here, Standing::Won(epoch)) => (None, epoch),
                (Place::Here, Standing::Opening) => (None, OwnerEpoch(stored)),
                (Place::Here, Standing::Closed) => (None, OwnerEpoch(stored.saturating_add(1))),
            }
        });
        Ok(told.collect())
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bookie_metadata::testing::{Call, Fate};

    use crate::testing::MemoryBroker;

    /// The keys of epochs and of chains are slow: an opening is cut into steps of a second.
    fn slow(call: Call<'_>) -> Fate {
        let wins =
            |txn: &bookie_metadata::Txn| txn.ops.iter().any(|op| op.key().starts_with("part/"));
        match call {
            Call::Txn(txn) if wins(txn) => Fate::Slow(Duration::from_secs(1)),
            Call::List(prefix) if prefix.starts_with("chain/") => {
                Fate::Slow(Duration::from_secs(1))
            }
            _ => Fate::Pass,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn told_epoch_is_never_above_the_one_under_which_a_partition_is_being_opened() {
        let memory = MemoryBroker::default();
        for life in 1..=3 {
            let front = memory.front(|_| {});
            let topic = front.topics().resolve(&"t".parse().unwrap(), true).await;
            let topic = topic.unwrap();
            let partitions = front.partitions().clone();
            let told = async || partitions.leader_epochs(&topic).await.unwrap()[0].0;
            assert_eq!(told().await, life, "closed");
            memory.metadata.choose(slow);
            let id = topic.partition_ids().next().unwrap();
            let opening = tokio::spawn({
                let partitions = partitions.clone();
                async move { partitions.open(id).await }
            });
            // While the epoch is being won too low is right; then it is known.
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(told().await <= life, "being won");
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(!opening.is_finished());
            assert_eq!(told().await, life, "won");
            let open = opening.await.unwrap().unwrap();
            assert_eq!((told().await, open.leader_epoch().0), (life, life));
            memory.metadata.choose(|_| Fate::Pass);
            partitions.close_all().await;
        }
    }
}
