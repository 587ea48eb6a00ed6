//! Deletes topics: mark, tell the owners, remove the data, take the topic from its subscriptions, free the name. Resumable at
//! each step (crash at any point and the next [`Topics::resume_deletions`] goes on).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bookie_metadata::{BoxFuture, ListRequest, Op, WatchEvent};
use futures::{FutureExt, StreamExt};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{PartitionId, TopicName};
use tokio_util::sync::CancellationToken;

use super::change::{Changed, Expected, read};
use super::registry::{Deletion, Topics, UnderWay, lock};
use super::topic::{PREFIX, Topic, TopicState, deleting, id_not_found};
use crate::storage_fault;
use crate::subscriptions::Subscriptions;

/// Unfinished deletions are looked for this often.
const RESUME_EVERY: Duration = Duration::from_secs(30);
/// A watch that ended is opened again after this.
const WATCH_AGAIN: Duration = Duration::from_secs(1);
/// Partitions of one topic whose data are removed at the same time.
const REMOVALS_AT_ONCE: usize = 16;

/// Who closes partitions and removes what they stored: [`crate::Partitions`], or a fake in tests.
pub trait PartitionRemover: Send + Sync + 'static {
    /// Stops serving the partition; everything that waits on it is answered with `why`.
    fn close(&self, partition: PartitionId, why: Fault) -> BoxFuture<'_, ()>;

    /// Removes ledgers, chains and keys of the partition. What is gone already is fine.
    fn remove(&self, partition: PartitionId) -> BoxFuture<'_, Result<(), Fault>>;

    /// Metadata have this of a topic now. Nothing is decided by it.
    fn changed(&self, topic: &Topic);
}

impl PartitionRemover for crate::Partitions {
    fn close(&self, partition: PartitionId, why: Fault) -> BoxFuture<'_, ()> {
        Box::pin(crate::Partitions::close(self, partition, why))
    }

    fn remove(&self, partition: PartitionId) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.delete_data(partition))
    }

    fn changed(&self, topic: &Topic) {
        self.topic_changed(topic);
    }
}

impl Topics {
    /// Deletes a topic and answers when its name is free. The work goes on when the caller goes away. Needs a tokio runtime.
    ///
    /// # Errors
    /// `TOPIC_NOT_FOUND`; `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`, or what kept data from being removed: call again, or
    /// leave it to the broker, which takes it up again by itself.
    pub async fn delete(
        &self,
        name: &TopicName,
        remover: Arc<dyn PartitionRemover>,
    ) -> Result<(), Fault> {
        let topic = self.get(name).await?;
        let topic = self.mark_deleting(topic).await?;
        match topic {
            Some(topic) => self.finish(topic, remover).await,
            // Somebody finished it between our two looks.
            None => Ok(()),
        }
    }

    /// As [`Topics::delete`], but answers after `patience` with the number of partitions whose data are not gone yet: the deletion then
    /// goes on by itself, and nothing can undo it. 0: the name is free.
    ///
    /// # Errors
    /// Those of [`Topics::delete`].
    pub async fn delete_within(
        &self,
        name: &TopicName,
        remover: Arc<dyn PartitionRemover>,
        patience: Duration,
    ) -> Result<u32, Fault> {
        let topic = self.get(name).await?;
        let Some(topic) = self.mark_deleting(topic).await? else {
            return Ok(0);
        };
        let id = topic.id;
        match tokio::time::timeout(patience, self.finish(topic, remover)).await {
            Ok(result) => result.map(|()| 0),
            Err(_) => Ok(self.partitions_left(id).unwrap_or(0)),
        }
    }

    /// Takes up every deletion that was begun and not finished.
    ///
    /// # Errors
    /// The first fault met; the others were tried.
    pub async fn resume_deletions(&self, remover: Arc<dyn PartitionRemover>) -> Result<(), Fault> {
        let mut first_fault = Ok(());
        let topics = self.read_all().await?;
        let begun = topics
            .into_iter()
            .filter(|topic| topic.state == TopicState::Deleting);
        for topic in begun {
            let name = topic.name.clone();
            tracing::info!(topic = %name, "taking up a deletion");
            if let Err(fault) = self.finish(topic, remover.clone()).await {
                tracing::warn!(topic = %name, %fault, "deletion is not finished, will be tried again");
                first_fault = first_fault.and(Err(fault));
            }
        }
        first_fault
    }

    /// Keeps the cache fresh and finishes deletions until `shutdown`. A failure is logged and tried again.
    pub async fn run(&self, remover: Arc<dyn PartitionRemover>, shutdown: CancellationToken) {
        let tend = async {
            tokio::join!(self.follow(&*remover), async {
                loop {
                    if let Err(fault) = self.resume_deletions(remover.clone()).await {
                        tracing::warn!(%fault, "unfinished deletions could not all be taken up");
                    }
                    tokio::time::sleep(RESUME_EVERY).await;
                }
            })
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            _ = tend => {}
        }
    }

    /// Feeds the cache from a watch. Only a hint, so a broken watch is simply opened again.
    async fn follow(&self, partitions: &dyn PartitionRemover) {
        loop {
            if let Err(fault) = self.follow_once(partitions).await {
                tracing::debug!(%fault, "watch of topics is down, will be opened again");
            }
            tokio::time::sleep(WATCH_AGAIN).await;
        }
    }

    /// A listing, then the changes since a moment before it, until the watch ends.
    async fn follow_once(&self, partitions: &dyn PartitionRemover) -> Result<(), Fault> {
        let probe = ListRequest {
            prefix: PREFIX.to_owned(),
            after: None,
            limit: 1,
            at: None,
        };
        let before = read(self.0.store.list(probe)).await?.revision;
        let listed = self.read_all().await?;
        self.forget_unlisted(&listed, before);
        for topic in &listed {
            partitions.changed(topic);
        }
        let mut changes = self.0.store.watch(PREFIX, before);
        while let Some(event) = changes.next().await {
            self.apply(
                event.map_err(|error| storage_fault::metadata(&error))?,
                partitions,
            );
        }
        Ok(())
    }

    fn apply(&self, event: WatchEvent, partitions: &dyn PartitionRemover) {
        match event {
            WatchEvent::Put(stored) => match Topic::decode(&stored) {
                Ok(topic) => {
                    self.learn(&topic);
                    partitions.changed(&topic);
                }
                Err(fault) => tracing::warn!(%fault, "topic record is skipped"),
            },
            WatchEvent::Deleted { key, revision } => {
                if let Some(Ok(name)) = key.strip_prefix(PREFIX).map(str::parse) {
                    self.forget(&name, revision);
                }
            }
        }
    }

    /// Step 1. `None`: this topic is gone already.
    async fn mark_deleting(&self, mut topic: Topic) -> Result<Option<Topic>, Fault> {
        let key = Topic::key(&topic.name);
        loop {
            if topic.state == TopicState::Deleting {
                return Ok(Some(topic));
            }
            let mut marked = topic.clone();
            marked.state = TopicState::Deleting;
            let expected = Expected {
                key: &key,
                version: Some(topic.version),
            };
            match self
                .change(expected, Op::put(key.clone(), marked.encode()))
                .await?
            {
                Changed::Committed(revision) => {
                    marked.version = revision;
                    self.learn(&marked);
                    return Ok(Some(marked));
                }
                Changed::Differs { current: None, .. } => return Ok(None),
                Changed::Differs {
                    current: Some(current),
                    ..
                } => {
                    let current = Topic::decode(&current)?;
                    self.learn(&current);
                    if current.id != topic.id {
                        return Ok(None);
                    }
                    topic = current;
                }
            }
        }
    }

    /// Steps 2 to 4, once per topic at a time: whoever comes later shares the outcome.
    async fn finish(&self, topic: Topic, remover: Arc<dyn PartitionRemover>) -> Result<(), Fault> {
        let id = topic.id;
        let deletion: Deletion = {
            let mut deletions = lock(&self.0.deletions);
            match deletions.get(&id) {
                Some(running) => running.outcome.clone(),
                None => {
                    let topics = self.clone();
                    let left = Arc::new(AtomicU32::new(topic.partitions));
                    let counted = left.clone();
                    let work = async move {
                        let result = topics.remove(topic, remover, &counted).await;
                        lock(&topics.0.deletions).remove(&id);
                        result
                    };
                    let outcome: Deletion = work.boxed().shared();
                    let under_way = UnderWay {
                        outcome: outcome.clone(),
                        left,
                    };
                    deletions.insert(id, under_way);
                    // It goes on when nobody waits any more.
                    tokio::spawn(outcome.clone());
                    outcome
                }
            }
        };
        deletion.await
    }

    async fn remove(
        &self,
        topic: Topic,
        remover: Arc<dyn PartitionRemover>,
        left: &AtomicU32,
    ) -> Result<(), Fault> {
        let why = deleting(&topic.name);
        let closes = topic
            .partition_ids()
            .map(|partition| remover.close(partition, why.clone()));
        let mut closes = futures::stream::iter(closes).buffer_unordered(REMOVALS_AT_ONCE);
        while closes.next().await.is_some() {}
        drop(closes);
        let mut removals = futures::stream::iter(topic.partition_ids())
            .map(|partition| {
                let remover = remover.clone();
                async move {
                    let result = remover.remove(partition).await;
                    if result.is_ok() {
                        left.fetch_sub(1, Ordering::Relaxed);
                    }
                    result
                }
            })
            .buffer_unordered(REMOVALS_AT_ONCE);
        let mut first_fault = Ok(());
        while let Some(result) = removals.next().await {
            first_fault = first_fault.and(result);
        }
        first_fault?;
        // The cursors went with the data (subscriptions, invariant 2); once the name is free nobody would come here again.
        let subscriptions = Subscriptions::new(self.0.store.clone(), self.clone());
        subscriptions.forget_topic(&topic).await?;
        self.free_name(&topic).await?;
        self.forget_id(topic.id);
        // An opening that had looked before the mark may have got in after the first round (see `Front::open`).
        for partition in topic.partition_ids() {
            remover.close(partition, id_not_found(topic.id)).await;
        }
        Ok(())
    }

    /// The last step: once the key is gone, nothing of the topic is left.
    async fn free_name(&self, topic: &Topic) -> Result<(), Fault> {
        let key = Topic::key(&topic.name);
        let expected = Expected {
            key: &key,
            version: Some(topic.version),
        };
        match self
            .change(expected, Op::Delete { key: key.clone() })
            .await?
        {
            Changed::Committed(_) | Changed::Differs { current: None, .. } => Ok(()),
            Changed::Differs {
                current: Some(current),
                ..
            } => {
                let current = Topic::decode(&current)?;
                // Another identity under the name: ours is gone, which is what was wanted.
                if current.id != topic.id {
                    Ok(())
                } else {
                    Err(not_settled(&topic.name))
                }
            }
        }
    }
}

/// A key of a topic in DELETING is changed by nobody but its deletion.
fn not_settled(name: &TopicName) -> Fault {
    let words = format!("record of topic {name} changed while it was being deleted; try again");
    Fault::new(Reason::Internal, words)
}
