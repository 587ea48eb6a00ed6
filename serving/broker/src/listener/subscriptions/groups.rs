//! Groups for people: what a STREAM subscription has committed, who its members are; moved while it has none, and deleted. Its offsets are
//! its coordinator's; another broker refuses with the way there.

use futures::{StreamExt, TryStreamExt};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, PartitionId, TopicName};
use hulse_proto::wire::v1;
use serving_groups::{
    Answer, Commit, CommittedOffset, Description, FetchOffsets, GroupError, NewOffset, Request,
};

use super::describing::{PARTITIONS_AT_ONCE, is_gone};
use super::moving::{Goal, Order};
use crate::Topic;
use crate::groups::group_of;
use crate::listener::front::Front;
use crate::listener::stream_groups::fault_of;
use crate::subscriptions::{StartPoint, SubscriptionName, not_called};

/// Epoch of who is no member.
const NO_MEMBER: i32 = -1;

/// A partition of a group.
struct Kept {
    topic: TopicName,
    partition: PartitionId,
    committed: CommittedOffset,
}

/// Where a partition begins and ends.
struct Ends {
    log_start: Offset,
    high_watermark: Offset,
}

impl Ends {
    /// Records from here on (serving.md, amendment "Holds": two reads, so it may be ahead of what was read first).
    fn behind(&self, base: Offset) -> u64 {
        let base = base.max(self.log_start);
        self.high_watermark.0.saturating_sub(base.0)
    }
}

impl Front {
    /// Its topics, and each partition of which it has an offset. A partition that does not answer has its fault instead.
    ///
    /// # Errors
    /// `SUBSCRIPTION_NOT_FOUND`: nothing is committed of the topic; `PARTITION_MOVED`: another broker coordinates it.
    pub(super) async fn describe_group(
        &self,
        name: &SubscriptionName,
        topic: Option<&Topic>,
        without_cursors: bool,
    ) -> Result<(Vec<String>, Vec<v1::CursorDescription>), Fault> {
        let kept = self.kept(name, topic).await?;
        if let (Some(_), []) = (topic, &kept[..]) {
            return Err(not_called(name));
        }
        let mut topics: Vec<String> = kept
            .iter()
            .map(|kept| kept.topic.as_str().to_owned())
            .collect();
        topics.dedup();
        if without_cursors {
            return Ok((topics, Vec::new()));
        }
        let group = group_of(name);
        let members = match self.ask_group(Request::Describe { group }).await? {
            Answer::Described(Ok(description)) => Some(description),
            _ => None,
        };
        let described = futures::stream::iter(kept).map(|kept| {
            let members = members.as_ref();
            async move {
                let ends = self.ends(kept.partition).await;
                described(&kept, ends, members)
            }
        });
        let cursors = described.buffered(PARTITIONS_AT_ONCE).collect().await;
        Ok((topics, cursors))
    }

    /// Deletes a group without members, or what it has committed of one topic that it does not read.
    ///
    /// # Errors
    /// `PRECONDITION_FAILED`: it has members; `PARTITION_MOVED`: another broker coordinates it.
    pub(super) async fn delete_group(
        &self,
        name: &SubscriptionName,
        topic: Option<&Topic>,
    ) -> Result<(), Fault> {
        let group = group_of(name);
        let Some(topic) = topic else {
            return match self.ask_group(Request::Delete { group }).await? {
                Answer::Deleted(Ok(())) => Ok(()),
                // Its name is left.
                Answer::Deleted(Err(GroupError::GroupNotFound)) => {
                    self.give_back(name).await;
                    Ok(())
                }
                Answer::Deleted(Err(error)) => Err(refused(name, &error)),
                _ => Err(other()),
            };
        };
        let partitions = topic.partition_ids().collect();
        let delete = Request::DeleteOffsets { group, partitions };
        match self.ask_group(delete).await? {
            Answer::OffsetsDeleted(Ok(results)) => {
                let first = results.into_iter().find_map(|(_, result)| result.err());
                first.map_or(Ok(()), |error| Err(refused(name, &error)))
            }
            Answer::OffsetsDeleted(Err(error)) => Err(refused(name, &error)),
            _ => Err(other()),
        }
    }

    /// Moves what it has committed, all at once.
    ///
    /// # Errors
    /// `PRECONDITION_FAILED`: it has members; `PARTITION_MOVED`; `INVALID_REQUEST`: a redrive; those of the goal.
    pub(super) async fn move_group(
        &self,
        name: &SubscriptionName,
        topic: Option<&Topic>,
        order: &Order<'_>,
    ) -> Result<Vec<v1::MovedCursor>, Fault> {
        let mut kept = self.kept(name, topic).await?;
        kept.retain(|kept| order.partition.is_none_or(|at| at == kept.partition.index));
        let moved = futures::stream::iter(kept).map(|kept| async move {
            let ends = self.ends(kept.partition).await?;
            let base = kept.committed.offset;
            let to = match order.goal {
                Goal::Seek(point) => self.resolve_on(kept.partition, point).await?,
                Goal::Skip(records) => {
                    let from = base.max(ends.log_start).0;
                    let to = Offset(from.saturating_add(records));
                    to.min(ends.high_watermark).max(base)
                }
                Goal::Clear => ends.high_watermark,
                Goal::Redrive => return Err(nothing_parked(name)),
            };
            Ok::<_, Fault>((kept, ends, to))
        });
        let moved = moved.buffered(PARTITIONS_AT_ONCE);
        let moved: Vec<_> = moved.try_collect().await?;
        if !order.dry_run {
            let offsets = moved.iter().map(|(kept, _, to)| NewOffset {
                partition: kept.partition,
                offset: *to,
                leader_epoch: NO_MEMBER,
                metadata: None,
            });
            self.commit_outside(name, offsets.collect()).await?;
        }
        let moved = moved.into_iter().map(|(kept, ends, to)| v1::MovedCursor {
            topic: kept.topic.as_str().to_owned(),
            partition: kept.partition.index,
            old_base: kept.committed.offset.0,
            new_base: to.0,
            old_backlog_records: ends.behind(kept.committed.offset),
            new_backlog_records: ends.behind(to),
            ..Default::default()
        });
        Ok(moved.collect())
    }

    async fn commit_outside(
        &self,
        name: &SubscriptionName,
        offsets: Vec<NewOffset>,
    ) -> Result<(), Fault> {
        let commit = Commit {
            group: group_of(name),
            member: "".into(),
            instance: None,
            epoch: NO_MEMBER,
            member_epochs: true,
            held_only: false,
            offsets,
        };
        match self.ask_group(Request::Commit(commit)).await? {
            Answer::Committed(Ok(results)) => {
                let first = results.into_iter().find_map(|(_, result)| result.err());
                first.map_or(Ok(()), |error| Err(refused(name, &error)))
            }
            Answer::Committed(Err(error)) => Err(refused(name, &error)),
            _ => Err(other()),
        }
    }

    /// What it has committed, of topics that there are, in order.
    async fn kept(
        &self,
        name: &SubscriptionName,
        topic: Option<&Topic>,
    ) -> Result<Vec<Kept>, Fault> {
        let fetch = FetchOffsets {
            group: group_of(name),
            member: None,
            partitions: None,
        };
        let found = match self.ask_group(Request::Fetch(fetch)).await? {
            Answer::Fetched(Ok(found)) => found,
            Answer::Fetched(Err(error)) => return Err(fault_of(&error)),
            _ => return Err(other()),
        };
        let mut kept = Vec::new();
        for (partition, committed) in found {
            if topic.is_some_and(|topic| topic.id != partition.topic) {
                continue;
            }
            let known = match self.topics.hint_of(partition.topic) {
                Some(known) => known,
                None => match self.topics.find(partition.topic).await {
                    Err(fault) if is_gone(&fault) => continue,
                    found => found?,
                },
            };
            kept.extend(committed.map(|committed| Kept {
                topic: known.name,
                partition,
                committed,
            }));
        }
        kept.sort_by_key(|kept| (kept.topic.clone(), kept.partition.index));
        Ok(kept)
    }

    async fn ends(&self, partition: PartitionId) -> Result<Ends, Fault> {
        Ok(Ends {
            log_start: self.resolve_on(partition, StartPoint::Earliest).await?,
            high_watermark: self.resolve_on(partition, StartPoint::Latest).await?,
        })
    }
}

fn described(
    kept: &Kept,
    ends: Result<Ends, Fault>,
    members: Option<&Description>,
) -> v1::CursorDescription {
    let told = v1::CursorDescription {
        topic: kept.topic.as_str().to_owned(),
        partition: kept.partition.index,
        ..Default::default()
    };
    let ends = match ends {
        Ok(ends) => ends,
        Err(fault) => {
            return v1::CursorDescription {
                fault: Some(fault.to_wire()),
                ..told
            };
        }
    };
    let members = members.into_iter().flat_map(|group| &group.members);
    let has = members.filter(|member| member.assigned.contains(&kept.partition));
    let consumers = has.map(|member| v1::ConsumerDescription {
        consumer_name: member.member.to_string(),
        client_id: member.client.id.to_string(),
        active: true,
        ..Default::default()
    });
    v1::CursorDescription {
        base: kept.committed.offset.0,
        log_start: ends.log_start.0,
        high_watermark: ends.high_watermark.0,
        backlog_records: ends.behind(kept.committed.offset),
        acked_at_ms: kept.committed.at,
        consumers: consumers.collect(),
        ..told
    }
}

/// What needs a group without members.
fn refused(name: &SubscriptionName, error: &GroupError) -> Fault {
    match error {
        GroupError::NonEmptyGroup | GroupError::SubscribedToTopic | GroupError::UnknownMember => {
            let words = format!("group {name} has members; stop them first");
            Fault::new(Reason::PreconditionFailed, words)
        }
        error => fault_of(error),
    }
}

fn other() -> Fault {
    Fault::new(Reason::Internal, "the coordinator answered something else")
}

fn nothing_parked(name: &SubscriptionName) -> Fault {
    let words = format!(
        "subscription {name} is a group, which parks no record: only queue and keyed subscriptions are redriven"
    );
    Fault::new(Reason::InvalidRequest, words)
}
