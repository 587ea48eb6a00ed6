//! DeleteRecords: moves where logs begin. It answers when that is durable.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, PartitionId};
use kafka_protocol::messages::delete_records_request::DeleteRecordsPartition;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use serving_broker::{Action, Resource, Topic};

use super::stage::Outcome;
use crate::error_code::{self, Code};
use crate::link::{Link, OPENING_MAX};
use crate::wire::{Broken, Request};

/// "All that are there."
const TO_THE_END: i64 = -1;
/// Where a log begins that was not trimmed.
const UNKNOWN: i64 = -1;
/// Partitions of one topic that are trimmed together.
const TRIMS_AT_ONCE: usize = 16;

/// Answers it.
pub(super) async fn delete(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: DeleteRecordsRequest = request.decode()?;
    let until = request.began + OPENING_MAX;
    let mut topics = Vec::with_capacity(message.topics.len());
    for wanted in message.topics {
        let topic = link.topic(&wanted.name, uuid::Uuid::nil(), until).await;
        let partitions = stream::iter(wanted.partitions)
            .map(|partition| one(link, topic.as_ref(), partition))
            .buffered(TRIMS_AT_ONCE);
        let result = DeleteRecordsTopicResult::default()
            .with_name(wanted.name)
            .with_partitions(partitions.collect().await);
        topics.push(result);
    }
    let response = DeleteRecordsResponse::default().with_topics(topics);
    Ok(Outcome::message(request.asked(), &response))
}

async fn one(
    link: &Link,
    topic: Result<&Topic, &Fault>,
    wanted: DeleteRecordsPartition,
) -> DeleteRecordsPartitionResult {
    let result =
        DeleteRecordsPartitionResult::default().with_partition_index(wanted.partition_index);
    match trim(link, topic, &wanted).await {
        Ok(start) => result.with_low_watermark(i64::try_from(start.0).unwrap_or(i64::MAX)),
        Err(code) => result.with_low_watermark(UNKNOWN).with_error_code(code),
    }
}

async fn trim(
    link: &Link,
    topic: Result<&Topic, &Fault>,
    wanted: &DeleteRecordsPartition,
) -> Result<Offset, Code> {
    let front = link.front();
    let told = |fault: &Fault| {
        front.metrics().fault(fault.reason);
        error_code::of_record(fault.reason)
    };
    let topic = topic.map_err(told)?;
    front
        .allow(Action::Delete, Resource::Topic(&topic.name))
        .map_err(|fault| told(&fault))?;
    let Ok(index) = u32::try_from(wanted.partition_index) else {
        return Err(error_code::UNKNOWN_TOPIC_OR_PARTITION);
    };
    let to = match wanted.offset {
        TO_THE_END => None,
        offset => match u64::try_from(offset) {
            Ok(offset) => Some(Offset(offset)),
            Err(_) => return Err(error_code::OFFSET_OUT_OF_RANGE),
        },
    };
    let partition = PartitionId {
        topic: topic.id,
        index,
    };
    front
        .trim(partition, to)
        .await
        .map_err(|fault| told(&fault))
}
