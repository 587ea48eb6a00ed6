//! What ends an offset: removal, deletion of its topic, and time (serving.md B2.10, B2.11).

use std::collections::BTreeSet;
use std::sync::Arc;

use hulse_proto::id::{PartitionId, TopicId};

use crate::answer::Answer;
use crate::coordinator::Coordinator;
use crate::embedded::{CONSUMER, Subscription};
use crate::error::GroupError;
use crate::request::{Now, RequestId};
use crate::state::Change;

/// Offsets that go in one delta.
const DELTA_OFFSETS_MAX: usize = 10_000;

type Results = Vec<(PartitionId, Result<(), GroupError>)>;

impl Coordinator {
    pub(crate) fn delete_offsets(
        &mut self,
        id: RequestId,
        group: &Arc<str>,
        partitions: Vec<PartitionId>,
    ) {
        let answer = self.try_delete_offsets(group, partitions);
        self.answer(group, id, Answer::OffsetsDeleted(answer));
    }

    fn try_delete_offsets(
        &mut self,
        group: &Arc<str>,
        partitions: Vec<PartitionId>,
    ) -> Result<Results, GroupError> {
        if self.state.group(group).is_none() {
            return Err(GroupError::GroupNotFound);
        }
        let subscribed = self.subscribed(group)?;
        let members = self
            .classic_live(group)
            .is_some_and(|live| !live.is_empty());
        let mut results = Vec::with_capacity(partitions.len());
        for partition in partitions {
            // One that is not in view may be read under a name that is not either.
            let unseen = members && self.topics.name(partition.topic).is_none();
            if unseen || subscribed.contains(&partition.topic) {
                results.push((partition, Err(GroupError::SubscribedToTopic)));
                continue;
            }
            self.apply(group, Change::OffsetGone { partition });
            results.push((partition, Ok(())));
        }
        Ok(results)
    }

    /// The topics that members of the group read (D2.13).
    fn subscribed(&self, group: &str) -> Result<BTreeSet<TopicId>, GroupError> {
        let Some(live) = self.classic_live(group) else {
            let consumer = self.consumer_group(group);
            let topics = consumer.into_iter().flat_map(|group| group.topics.keys());
            return Ok(topics.copied().collect());
        };
        if live.is_empty() {
            return Ok(BTreeSet::new());
        }
        // Members of another kind read topics that nobody knows.
        if &*live.protocol_type != CONSUMER {
            return Err(GroupError::NonEmptyGroup);
        }
        let mut topics = BTreeSet::new();
        for (_, member) in live.members() {
            let read = member.protocols.first();
            let read = read.and_then(|known| Subscription::decode(&known.metadata));
            let read = read.ok_or(GroupError::NonEmptyGroup)?;
            let ids = read.topics.iter().filter_map(|name| self.topics.get(name));
            topics.extend(ids.map(|topic| topic.id));
        }
        Ok(topics)
    }

    /// A topic that comes again under the same name begins without offsets.
    pub(crate) fn forget_topics(&mut self, topics: &BTreeSet<TopicId>) {
        let mut gone = Vec::new();
        for (name, group) in self.state.groups() {
            let offsets = group.offsets.keys();
            let offsets = offsets.filter(|partition| topics.contains(&partition.topic));
            gone.extend(offsets.map(|partition| (name.clone(), *partition)));
        }
        self.drop_offsets(gone);
    }

    /// Offsets of groups without members go when they are old; a group without anything goes too.
    pub(crate) fn expire_offsets(&mut self, now: Now) {
        let kept = i64::try_from(self.config.offsets_retention_ms).unwrap_or(i64::MAX);
        let mut gone = Vec::new();
        let mut groups = Vec::new();
        for (name, group) in self.state.groups() {
            let joining = self.classic_live(name).is_some_and(|live| !live.is_empty());
            if !group.is_empty() || joining {
                continue;
            }
            let old = |at: i64| now.wall_ms.saturating_sub(at.max(group.empty_since)) > kept;
            let offsets = group.offsets.iter();
            let expired: Vec<_> = offsets.filter(|(_, offset)| old(offset.at)).collect();
            let emptied = expired.len() == group.offsets.len() && old(i64::MIN);
            if emptied {
                groups.push(name.clone());
            }
            gone.extend(
                expired
                    .into_iter()
                    .map(|(partition, _)| (name.clone(), *partition)),
            );
        }
        self.drop_offsets(gone);
        for group in groups {
            self.live.remove(&group);
            self.apply(&group, Change::Gone);
        }
    }

    fn drop_offsets(&mut self, gone: Vec<(Arc<str>, PartitionId)>) {
        for chunk in gone.chunks(DELTA_OFFSETS_MAX) {
            for (group, partition) in chunk {
                let partition = *partition;
                self.apply(group, Change::OffsetGone { partition });
            }
            self.cut_delta();
        }
    }
}
