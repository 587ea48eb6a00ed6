//! DeleteRecords: moves where logs begin. It answers when that is durable, which later requests do not wait for. What is "all that is
//! there" is decided at the first stage, so that nothing goes that was sent behind it.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, PartitionId};
use kafka_protocol::messages::TopicName;
use kafka_protocol::messages::delete_records_request::DeleteRecordsPartition;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use serving_broker::{Action, Resource, Topic};
use tokio::time::Instant;

use super::offsets::ended;
use super::stage::{FirstStage, Outcome};
use crate::error_code::{self, Code};
use crate::link::{Link, OPENING_MAX};
use crate::wire::{Broken, Request};

/// "All that are there."
const TO_THE_END: i64 = -1;
/// Where a log begins that was not trimmed.
const UNKNOWN: i64 = -1;
/// Partitions of one topic that are trimmed together.
const TRIMS_AT_ONCE: usize = 16;

/// A partition and the first offset that stays in it.
type Aim = (i32, Result<(PartitionId, Offset), Code>);

/// Decides up to where each partition is trimmed; that it is done is waited for at the second stage.
pub(super) async fn first_stage(
    link: Arc<Link>,
    mut request: Request,
) -> Result<FirstStage, Broken> {
    let message: DeleteRecordsRequest = request.decode()?;
    let until = request.began + OPENING_MAX;
    let mut topics = Vec::with_capacity(message.topics.len());
    for wanted in message.topics {
        let topic = link.topic(&wanted.name, uuid::Uuid::nil(), until).await;
        let aims = stream::iter(wanted.partitions).map(|partition| {
            let (link, topic) = (&link, topic.as_ref());
            async move {
                let aim = aim(link, topic, &partition, until).await;
                (partition.partition_index, aim)
            }
        });
        let aims: Vec<Aim> = aims.buffered(TRIMS_AT_ONCE).collect().await;
        topics.push((wanted.name, aims));
    }
    Ok(FirstStage::later(async move {
        let outcome = trim_all(&link, &request, topics).await;
        ended(&link, request, outcome)
    }))
}

async fn trim_all(link: &Link, request: &Request, topics: Vec<(TopicName, Vec<Aim>)>) -> Outcome {
    let mut results = Vec::with_capacity(topics.len());
    for (name, aims) in topics {
        let partitions = stream::iter(aims)
            .map(|aim| trim(link, aim))
            .buffered(TRIMS_AT_ONCE);
        let result = DeleteRecordsTopicResult::default()
            .with_name(name)
            .with_partitions(partitions.collect().await);
        results.push(result);
    }
    let rows = results.iter().flat_map(|topic| &topic.partitions);
    let code = error_code::first_error(rows.map(|row| row.error_code));
    let response = DeleteRecordsResponse::default().with_topics(results);
    Outcome::message(request.asked(), &response).with_code(code)
}

async fn trim(link: &Link, (index, aim): Aim) -> DeleteRecordsPartitionResult {
    let result = DeleteRecordsPartitionResult::default().with_partition_index(index);
    let trimmed = match aim {
        Ok((partition, to)) => {
            let trimmed = link.front().trim(partition, Some(to)).await;
            trimmed.map_err(|fault| told(link, &fault))
        }
        Err(code) => Err(code),
    };
    match trimmed {
        Ok(start) => result.with_low_watermark(i64::try_from(start.0).unwrap_or(i64::MAX)),
        Err(code) => result.with_low_watermark(UNKNOWN).with_error_code(code),
    }
}

fn told(link: &Link, fault: &Fault) -> Code {
    link.front().metrics().fault(fault.reason);
    error_code::of_record(fault.reason)
}

async fn aim(
    link: &Link,
    topic: Result<&Topic, &Fault>,
    wanted: &DeleteRecordsPartition,
    until: Instant,
) -> Result<(PartitionId, Offset), Code> {
    let topic = topic.map_err(|fault| told(link, fault))?;
    link.front()
        .allow(Action::Delete, Resource::Topic(&topic.name))
        .map_err(|fault| told(link, &fault))?;
    let Ok(index) = u32::try_from(wanted.partition_index) else {
        return Err(error_code::UNKNOWN_TOPIC_OR_PARTITION);
    };
    let partition = PartitionId {
        topic: topic.id,
        index,
    };
    if wanted.offset == TO_THE_END {
        let opened = link.open(topic, wanted.partition_index, Action::Delete, until);
        let open = opened.await.map_err(|fault| told(link, &fault))?;
        return Ok((partition, open.offsets().high_watermark));
    }
    match u64::try_from(wanted.offset) {
        Ok(offset) => Ok((partition, Offset(offset))),
        Err(_) => Err(error_code::OFFSET_OUT_OF_RANGE),
    }
}
