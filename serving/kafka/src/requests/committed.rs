//! OffsetFetch: what a group has committed, which is nothing: there are no groups yet. Clients that are assigned partitions without an
//! offset ask for it, some versions of librdkafka without being able to do without an answer; they then begin by their own policy.

use std::sync::Arc;

use hulse_proto::error::Fault;
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse};
use kafka_protocol::protocol::StrBytes;

use super::rows::Rows;
use super::stage::Outcome;
use super::topics::refused;
use crate::link::Link;
use crate::wire::{Broken, Request};

/// First version that asks for several groups.
const GROUPS_FROM: i16 = 8;
/// "No offset is committed."
const NOTHING: i64 = -1;
/// Epoch of what is not there.
const NO_EPOCH: i32 = -1;

/// Answers it.
pub(super) async fn fetch(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: OffsetFetchRequest = request.decode()?;
    let mut rows = Rows::new(link);
    if let Err(fault) = rows.add(asked(&message)).await {
        return Ok(refuse(link, &request, &message, &fault));
    }
    let response = match request.version < GROUPS_FROM {
        true => OffsetFetchResponse::default().with_topics(of_one(message)),
        false => OffsetFetchResponse::default().with_groups(of_several(message)),
    };
    Ok(Outcome::message(request.asked(), &response))
}

/// Partitions that are asked for.
fn asked(message: &OffsetFetchRequest) -> usize {
    let one = message.topics.iter().flatten();
    let one = one.map(|topic| topic.partition_indexes.len());
    let several = message
        .groups
        .iter()
        .filter_map(|group| group.topics.as_ref());
    let several = several.flatten().map(|topic| topic.partition_indexes.len());
    one.chain(several).sum()
}

/// Without topics all that were committed are asked for.
fn of_one(message: OffsetFetchRequest) -> Vec<OffsetFetchResponseTopic> {
    let topics = message.topics.into_iter().flatten();
    let told = topics.map(|topic| {
        let partitions = topic.partition_indexes.into_iter().map(|index| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(index)
                .with_committed_offset(NOTHING)
                .with_committed_leader_epoch(NO_EPOCH)
                .with_metadata(Some(StrBytes::default()))
        });
        OffsetFetchResponseTopic::default()
            .with_name(topic.name)
            .with_partitions(partitions.collect())
    });
    told.collect()
}

fn of_several(message: OffsetFetchRequest) -> Vec<OffsetFetchResponseGroup> {
    let groups = message.groups.into_iter().map(|group| {
        let topics = group.topics.into_iter().flatten().map(|topic| {
            let partitions = topic.partition_indexes.into_iter().map(|index| {
                OffsetFetchResponsePartitions::default()
                    .with_partition_index(index)
                    .with_committed_offset(NOTHING)
                    .with_committed_leader_epoch(NO_EPOCH)
                    .with_metadata(Some(StrBytes::default()))
            });
            OffsetFetchResponseTopics::default()
                .with_name(topic.name)
                .with_partitions(partitions.collect())
        });
        OffsetFetchResponseGroup::default()
            .with_group_id(group.group_id)
            .with_topics(topics.collect())
    });
    groups.collect()
}

fn refuse(link: &Link, request: &Request, message: &OffsetFetchRequest, fault: &Fault) -> Outcome {
    let (code, _) = refused(link, fault.clone());
    let groups = message.groups.iter().map(|group| {
        OffsetFetchResponseGroup::default()
            .with_group_id(group.group_id.clone())
            .with_error_code(code)
    });
    let response = match request.version < GROUPS_FROM {
        true => OffsetFetchResponse::default().with_error_code(code),
        false => OffsetFetchResponse::default().with_groups(groups.collect()),
    };
    Outcome::message(request.asked(), &response).with_code(code)
}
