//! OffsetFetch: what groups have committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::id::{PartitionId, TopicId};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use serving_groups::{Answer, CommittedOffset, FetchOffsets, Request as Ask};

use super::answers::{ask, name, of_error, partition, told, unexpected};
use crate::error_code::{self, Code};
use crate::link::{Link, OPENING_MAX};
use crate::names;
use crate::requests::{Outcome, Rows};
use crate::wire::{self, Broken, Request};

/// First version that asks for several groups.
const GROUPS_FROM: i16 = 8;
/// First version with an error of the whole.
const ERROR_FROM: i16 = 2;
/// "No offset is committed."
const NOTHING: i64 = -1;
/// Epoch of what is not there.
const NO_EPOCH: i32 = -1;

/// A partition's offset, if there is one.
type Row = (i32, Option<CommittedOffset>);
/// What was found of a group, by topic.
type Found = Vec<(TopicName, Vec<Row>)>;
/// What is asked for; `None`: all.
type Wanted = Option<Vec<(TopicName, Vec<i32>)>>;

/// Answers it.
pub(crate) async fn fetch(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: OffsetFetchRequest = request.decode()?;
    let mut rows = Rows::new(link);
    if request.version < GROUPS_FROM {
        let wanted = message.topics.map(|topics| {
            let topics = topics.into_iter();
            topics
                .map(|topic| (topic.name, topic.partition_indexes))
                .collect()
        });
        let group = message.group_id.0;
        let found = of_group(link, &request, (&group, None), wanted, &mut rows).await;
        return Ok(one(&request, found));
    }
    let mut groups = Vec::with_capacity(message.groups.len());
    for group in message.groups {
        let member = group.member_id.filter(|_| group.member_epoch >= 0);
        let member = member.map(|id| (name(&id), group.member_epoch));
        let wanted = group.topics.map(|topics| {
            let topics = topics.into_iter();
            topics
                .map(|topic| (topic.name, topic.partition_indexes))
                .collect()
        });
        let of = (&group.group_id.0, member);
        let found = of_group(link, &request, of, wanted, &mut rows).await;
        let row = OffsetFetchResponseGroup::default().with_group_id(group.group_id);
        groups.push(match found {
            Ok(found) => row.with_topics(found.into_iter().map(several).collect()),
            Err(code) => row.with_error_code(code),
        });
    }
    let code = error_code::first_error(groups.iter().map(|row| row.error_code));
    let response = OffsetFetchResponse::default().with_groups(groups);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

async fn of_group(
    link: &Link,
    request: &Request,
    (group, member): (&StrBytes, Option<(Arc<str>, i32)>),
    wanted: Wanted,
    rows: &mut Rows<'_>,
) -> Result<Found, Code> {
    let until = request.began + OPENING_MAX;
    let mut ids = BTreeMap::new();
    let partitions = match &wanted {
        None => None,
        Some(topics) => {
            let asked: usize = topics.iter().map(|(_, indexes)| indexes.len()).sum();
            let counted = rows.add(asked).await;
            counted.map_err(|fault| error_code::of_request(fault.reason))?;
            for (topic, indexes) in topics {
                for index in indexes {
                    // What there is not, or not any more, has no offset.
                    if let Ok(id) = partition(link, &topic.0, *index, until).await {
                        ids.insert((topic.clone(), *index), id);
                    }
                }
            }
            Some(ids.values().copied().collect())
        }
    };
    let fetch = FetchOffsets {
        group: name(group),
        member,
        partitions,
    };
    let found = match ask(link, Ask::Fetch(fetch)).await? {
        Answer::Fetched(Ok(found)) => found,
        Answer::Fetched(Err(error)) => return Err(of_error(&error)),
        other => return Err(unexpected(&other)),
    };
    let found: BTreeMap<PartitionId, Option<CommittedOffset>> = found.into_iter().collect();
    match wanted {
        None => everything(link, found, rows).await,
        Some(topics) => {
            let told = topics.into_iter().map(|(topic, indexes)| {
                let indexes = indexes.into_iter();
                let of = indexes.map(|index| {
                    let id = ids.get(&(topic.clone(), index));
                    (index, id.and_then(|id| found.get(id).cloned().flatten()))
                });
                let of = of.collect();
                (topic, of)
            });
            Ok(told.collect())
        }
    }
}

/// All that is committed, by the names of topics that there are.
async fn everything(
    link: &Link,
    found: BTreeMap<PartitionId, Option<CommittedOffset>>,
    rows: &mut Rows<'_>,
) -> Result<Found, Code> {
    let counted = rows.add(found.len()).await;
    counted.map_err(|fault| error_code::of_request(fault.reason))?;
    let mut topics: BTreeMap<TopicId, Vec<Row>> = BTreeMap::new();
    for (partition, offset) in found {
        let index = i32::try_from(partition.index).unwrap_or(i32::MAX);
        topics
            .entry(partition.topic)
            .or_default()
            .push((index, offset));
    }
    let mut told = Vec::with_capacity(topics.len());
    for (id, offsets) in topics {
        if let Ok(topic) = link.front().topics().find(id).await {
            told.push((names::tell(&topic.name), offsets));
        }
    }
    Ok(told)
}

fn numbers(offset: Option<CommittedOffset>) -> (i64, i32, Option<StrBytes>) {
    match offset {
        Some(offset) => {
            let metadata = offset.metadata.as_ref().map(told);
            (wire::offset(offset.offset), offset.leader_epoch, metadata)
        }
        None => (NOTHING, NO_EPOCH, Some(StrBytes::default())),
    }
}

fn several((topic, rows): (TopicName, Vec<Row>)) -> OffsetFetchResponseTopics {
    let partitions = rows.into_iter().map(|(index, offset)| {
        let (offset, epoch, metadata) = numbers(offset);
        OffsetFetchResponsePartitions::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_leader_epoch(epoch)
            .with_metadata(metadata)
    });
    OffsetFetchResponseTopics::default()
        .with_name(topic)
        .with_partitions(partitions.collect())
}

/// The answer about one group. Before there was an error of the whole each partition had it, but there are none to say it of here.
fn one(request: &Request, found: Result<Found, Code>) -> Outcome {
    let (code, found) = match found {
        Ok(found) => (error_code::NONE, found),
        Err(code) => (code, Vec::new()),
    };
    if code != error_code::NONE && request.version < ERROR_FROM {
        return Outcome::Close("a read of offsets failed, and the version has no error".to_owned());
    }
    let topics = found.into_iter().map(|(topic, rows)| {
        let partitions = rows.into_iter().map(|(index, offset)| {
            let (offset, epoch, metadata) = numbers(offset);
            OffsetFetchResponsePartition::default()
                .with_partition_index(index)
                .with_committed_offset(offset)
                .with_committed_leader_epoch(epoch)
                .with_metadata(metadata)
        });
        OffsetFetchResponseTopic::default()
            .with_name(topic)
            .with_partitions(partitions.collect())
    });
    let response = OffsetFetchResponse::default()
        .with_error_code(code)
        .with_topics(topics.collect());
    Outcome::message(request.asked(), &response).with_code(code)
}
