//! Where a member reads its partitions from (serving.md B2.12): what the group has committed; where it has nothing, what the start policy
//! says, resolved once for all partitions of the topic and durable before anybody hears of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, PartitionId, TopicId, TopicName};
use serving_groups::{Answer, Begin, FetchOffsets, Partitions, Request};

use super::words::fault_of;
use crate::listener::front::Front;
use crate::subscriptions::{StartPoint, SubscriptionName};
use crate::topics::Topic;

/// Partitions whose owners are asked at once.
const OWNERS_AT_ONCE: usize = 16;

/// A partition, and where reading it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) partition: PartitionId,
    pub(super) topic: TopicName,
    pub(super) begin: Offset,
}

/// For whom.
#[derive(Clone)]
pub(super) struct Placing {
    pub(super) front: Arc<Front>,
    pub(super) group: Arc<str>,
    pub(super) member: Arc<str>,
    pub(super) start: StartPoint,
    /// The group's record.
    pub(super) name: SubscriptionName,
}

type Offsets = BTreeMap<PartitionId, Offset>;

impl Placing {
    /// Places these partitions. Those of topics that are gone meanwhile are left out.
    ///
    /// # Errors
    /// `MEMBER_FENCED`; those of the coordinator and of the partitions' owners: ask again.
    pub(super) async fn place(&self, partitions: Partitions) -> Result<Vec<Placed>, Fault> {
        let mut topics: BTreeMap<TopicId, Vec<PartitionId>> = BTreeMap::new();
        for partition in partitions {
            topics.entry(partition.topic).or_default().push(partition);
        }
        let mut placed = Vec::new();
        for (id, wanted) in topics {
            let topic = match self.front.topics.hint_of(id) {
                Some(topic) => topic,
                None => match self.front.topics.find(id).await {
                    Err(fault) if is_gone(&fault) => continue,
                    found => found?,
                },
            };
            let offsets = match self.offsets(&topic, &wanted).await {
                Err(fault) if is_gone(&fault) => continue,
                offsets => offsets?,
            };
            placed.extend(wanted.into_iter().filter_map(|partition| {
                Some(Placed {
                    partition,
                    topic: topic.name.clone(),
                    begin: *offsets.get(&partition)?,
                })
            }));
        }
        Ok(placed)
    }

    async fn offsets(&self, topic: &Topic, wanted: &[PartitionId]) -> Result<Offsets, Fault> {
        // A look-up that is remembered may be of before the topic grew.
        let last = wanted.iter().map(|partition| partition.index).max();
        let count = topic.partitions.max(last.map_or(0, |last| last + 1));
        let all: Vec<PartitionId> = (0..count)
            .map(|index| PartitionId {
                topic: topic.id,
                index,
            })
            .collect();
        let fetch = FetchOffsets {
            group: self.group.clone(),
            member: None,
            partitions: Some(all.clone()),
        };
        let mut found = self.ask(Request::Fetch(fetch)).await?;
        if found.is_empty() {
            let first = self.first(topic).await?;
            let begun = self.begin(topic, &all, first, false).await?;
            found.extend(begun);
        }
        let missing: Vec<_> = wanted
            .iter()
            .filter(|partition| !found.contains_key(partition))
            .copied()
            .collect();
        if !missing.is_empty() {
            let begun = self.begin(topic, &missing, StartPoint::Earliest, true);
            found.extend(begun.await?);
        }
        Ok(found)
    }

    /// Where the group begins on a topic that it does not have.
    async fn first(&self, topic: &Topic) -> Result<StartPoint, Fault> {
        if self.start != StartPoint::Unsaid {
            return Ok(self.start);
        }
        let made_at = self.front.subscriptions.get(&self.name).await?.created_at;
        // All of a later topic came while there was somebody to consume it.
        Ok(match topic.created_at >= made_at {
            true => StartPoint::Earliest,
            false => StartPoint::Latest,
        })
    }

    async fn begin(
        &self,
        topic: &Topic,
        partitions: &[PartitionId],
        start: StartPoint,
        later: bool,
    ) -> Result<Offsets, Fault> {
        let resolved = futures::stream::iter(partitions.iter().copied())
            .map(|partition| async move {
                let offset = self.front.resolve_on(partition, start).await?;
                Ok::<_, Fault>((partition, offset))
            })
            .buffer_unordered(OWNERS_AT_ONCE);
        let begin = Begin {
            group: self.group.clone(),
            member: self.member.clone(),
            topic: topic.id,
            offsets: resolved.try_collect().await?,
            later,
        };
        self.ask(Request::Begin(begin)).await
    }

    async fn ask(&self, request: Request) -> Result<Offsets, Fault> {
        match self.front.ask_group(request).await? {
            Answer::Fetched(Ok(found)) => Ok(found
                .into_iter()
                .filter_map(|(partition, offset)| Some((partition, offset?.offset)))
                .collect()),
            Answer::Fetched(Err(error)) => Err(fault_of(&error)),
            _ => Err(Fault::new(
                Reason::Internal,
                "the coordinator answered something else",
            )),
        }
    }
}

fn is_gone(fault: &Fault) -> bool {
    matches!(
        fault.reason,
        Reason::TopicNotFound | Reason::TopicDeleting | Reason::PartitionNotFound
    )
}
