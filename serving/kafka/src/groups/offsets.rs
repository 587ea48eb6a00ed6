//! OffsetCommit.

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::id::{Offset, PartitionId};
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestTopic;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};
use serving_groups::{Answer, Commit, NewOffset, Request as Ask};

use super::answers::{ask, name, of_error, of_result, optional, partition, unexpected};
use crate::error_code::{self, Code};
use crate::link::{Link, OPENING_MAX};
use crate::requests::Outcome;
use crate::wire::{Broken, Request};

/// First version whose clients speak of member epochs.
const EPOCHS_FROM: i16 = 9;

/// What was asked for, in order: its partition, or why there is none.
type Rows = Vec<Vec<(i32, Result<PartitionId, Code>)>>;

/// Commits offsets.
pub(crate) async fn commit(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: OffsetCommitRequest = request.decode()?;
    let (rows, offsets) = read(link, &request, &message.topics).await;
    let commit = Commit {
        group: name(&message.group_id.0),
        member: name(&message.member_id),
        instance: optional(message.group_instance_id.as_ref()),
        epoch: message.generation_id_or_member_epoch,
        member_epochs: request.version >= EPOCHS_FROM,
        held_only: false,
        offsets,
    };
    let (whole, results) = match ask(link, Ask::Commit(commit)).await {
        Ok(Answer::Committed(Ok(results))) => {
            let results = results.iter().map(|(id, result)| (*id, of_result(result)));
            (error_code::NONE, results.collect())
        }
        Ok(Answer::Committed(Err(error))) => (of_error(&error), BTreeMap::new()),
        Ok(other) => (unexpected(&other), BTreeMap::new()),
        Err(error_code::INCONSISTENT_GROUP_PROTOCOL) => (no_group(&request), BTreeMap::new()),
        Err(code) => (code, BTreeMap::new()),
    };
    let topics = message.topics.into_iter().zip(rows).map(|(topic, rows)| {
        let partitions = rows.into_iter().map(|(index, id)| {
            let code = match id {
                Ok(id) => results.get(&id).copied().unwrap_or(whole),
                Err(code) if whole == error_code::NONE => code,
                Err(_) => whole,
            };
            OffsetCommitResponsePartition::default()
                .with_partition_index(index)
                .with_error_code(code)
        });
        OffsetCommitResponseTopic::default()
            .with_name(topic.name)
            .with_partitions(partitions.collect())
    });
    let topics: Vec<_> = topics.collect();
    let rows = topics.iter().flat_map(|topic| &topic.partitions);
    let code = error_code::first_error(rows.map(|row| row.error_code));
    let response = OffsetCommitResponse::default().with_topics(topics);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

/// The name is a queue's, say, and no group's: what Kafka answers to a commit there (serving.md B2.8).
fn no_group(request: &Request) -> Code {
    match request.version >= EPOCHS_FROM {
        true => error_code::GROUP_ID_NOT_FOUND,
        // Clients of older versions know no such code here.
        false => error_code::ILLEGAL_GENERATION,
    }
}

async fn read(
    link: &Link,
    request: &Request,
    topics: &[OffsetCommitRequestTopic],
) -> (Rows, Vec<NewOffset>) {
    let until = request.began + OPENING_MAX;
    let mut rows = Vec::with_capacity(topics.len());
    let mut offsets = Vec::new();
    for topic in topics {
        let mut of_topic = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            let found = partition(link, &topic.name.0, wanted.partition_index, until).await;
            let offset = u64::try_from(wanted.committed_offset);
            let found = match (found, offset) {
                (Ok(id), Ok(offset)) => {
                    offsets.push(NewOffset {
                        partition: id,
                        offset: Offset(offset),
                        leader_epoch: wanted.committed_leader_epoch,
                        metadata: optional(wanted.committed_metadata.as_ref()),
                    });
                    Ok(id)
                }
                (Ok(_), Err(_)) => Err(error_code::OFFSET_OUT_OF_RANGE),
                (Err(code), _) => Err(code),
            };
            of_topic.push((wanted.partition_index, found));
        }
        rows.push(of_topic);
    }
    (rows, offsets)
}
