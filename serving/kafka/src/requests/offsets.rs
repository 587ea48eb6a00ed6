//! ListOffsets and OffsetForLeaderEpoch: places in a log, by time and by epoch.

use std::sync::Arc;

use hulse_proto::error::Fault;
use hulse_proto::id::OwnerEpoch;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
};
use serving_broker::{Action, PartitionHandle, Topic};
use uuid::Uuid;

use super::begin::Outcome;
use super::metadata::epoch_number;
use crate::error_code::{self, Code};
use crate::fetch::wire;
use crate::link::Link;
use crate::wire::{Broken, Request};

/// Times that are none.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
/// First version whose answers have an epoch.
const EPOCH_FROM: i16 = 4;
/// "There is none."
const NOTHING: i64 = -1;

/// Answers ListOffsets.
pub(super) async fn list(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: ListOffsetsRequest = request.decode()?;
    let mut topics = Vec::with_capacity(message.topics.len());
    for wanted in message.topics {
        let topic = link.topic(&wanted.name, Uuid::nil()).await;
        let mut partitions = Vec::with_capacity(wanted.partitions.len());
        for partition in wanted.partitions {
            partitions.push(one(link, request.version, topic.as_ref(), &partition).await);
        }
        topics.push(
            ListOffsetsTopicResponse::default()
                .with_name(wanted.name)
                .with_partitions(partitions),
        );
    }
    let response = ListOffsetsResponse::default().with_topics(topics);
    Ok(Outcome::message(request.asked(), &response))
}

/// A place: offset, timestamp.
type Place = (i64, i64);

async fn one(
    link: &Link,
    version: i16,
    topic: Result<&Topic, &Fault>,
    wanted: &ListOffsetsPartition,
) -> ListOffsetsPartitionResponse {
    let response = ListOffsetsPartitionResponse::default()
        .with_partition_index(wanted.partition_index)
        .with_timestamp(NOTHING)
        .with_offset(NOTHING);
    let open = open(link, topic, wanted.partition_index).await;
    let found = match &open {
        Ok(open) => match check_epoch(wanted.current_leader_epoch, open) {
            Ok(()) => look_up(link, open, wanted.timestamp).await,
            Err(code) => Err(code),
        },
        Err(code) => Err(*code),
    };
    match (found, open) {
        (Ok((offset, timestamp)), Ok(open)) => {
            let epoch = match offset {
                NOTHING => -1,
                _ if version < EPOCH_FROM => -1,
                _ => epoch_number(open.leader_epoch()),
            };
            response
                .with_offset(offset)
                .with_timestamp(timestamp)
                .with_leader_epoch(epoch)
        }
        (Err(code), _) | (_, Err(code)) => response.with_error_code(code),
    }
}

async fn look_up(link: &Link, open: &PartitionHandle, time: i64) -> Result<Place, Code> {
    let offsets = open.offsets();
    let found = match time {
        LATEST => return Ok((wire(offsets.high_watermark), NOTHING)),
        EARLIEST | EARLIEST_LOCAL => return Ok((wire(offsets.log_start), NOTHING)),
        // Nothing is in another tier than the local one, and nothing waits to be.
        LATEST_TIERED => return Ok((NOTHING, NOTHING)),
        MAX_TIMESTAMP => open.offset_of_max_time().await,
        ..0 => return Ok((NOTHING, NOTHING)),
        time => open.offset_at_time(time).await,
    };
    match found {
        Ok(Some((offset, timestamp))) => Ok((wire(offset), timestamp)),
        Ok(None) => Ok((NOTHING, NOTHING)),
        Err(fault) => Err(told(link, &fault)),
    }
}

fn told(link: &Link, fault: &Fault) -> Code {
    link.front().metrics().fault(fault.reason);
    error_code::of_record(fault.reason)
}

async fn open(
    link: &Link,
    topic: Result<&Topic, &Fault>,
    index: i32,
) -> Result<PartitionHandle, Code> {
    let topic = topic.map_err(|fault| told(link, fault))?;
    let opened = link.open(topic, index, Action::Consume).await;
    opened.map_err(|fault| told(link, &fault))
}

/// The epoch that a client knows, against the owner's; −1 is none.
fn check_epoch(known: i32, open: &PartitionHandle) -> Result<(), Code> {
    match known.cmp(&epoch_number(open.leader_epoch())) {
        _ if known < 0 => Ok(()),
        std::cmp::Ordering::Less => Err(error_code::FENCED_LEADER_EPOCH),
        std::cmp::Ordering::Greater => Err(error_code::UNKNOWN_LEADER_EPOCH),
        std::cmp::Ordering::Equal => Ok(()),
    }
}

/// Answers OffsetForLeaderEpoch.
pub(super) async fn leader_epochs(
    link: &Arc<Link>,
    mut request: Request,
) -> Result<Outcome, Broken> {
    let message: OffsetForLeaderEpochRequest = request.decode()?;
    let mut topics = Vec::with_capacity(message.topics.len());
    for wanted in message.topics {
        let topic = link.topic(&wanted.topic, Uuid::nil()).await;
        let mut partitions = Vec::with_capacity(wanted.partitions.len());
        for partition in wanted.partitions {
            partitions.push(epoch_end(link, topic.as_ref(), &partition).await);
        }
        topics.push(
            OffsetForLeaderTopicResult::default()
                .with_topic(wanted.topic)
                .with_partitions(partitions),
        );
    }
    let response = OffsetForLeaderEpochResponse::default().with_topics(topics);
    Ok(Outcome::message(request.asked(), &response))
}

async fn epoch_end(
    link: &Link,
    topic: Result<&Topic, &Fault>,
    wanted: &OffsetForLeaderPartition,
) -> EpochEndOffset {
    let response = EpochEndOffset::default()
        .with_partition(wanted.partition)
        .with_leader_epoch(-1)
        .with_end_offset(NOTHING);
    let open = match open(link, topic, wanted.partition).await {
        Ok(open) => open,
        Err(code) => return response.with_error_code(code),
    };
    if let Err(code) = check_epoch(wanted.current_leader_epoch, &open) {
        return response.with_error_code(code);
    }
    let asked = u32::try_from(wanted.leader_epoch).ok();
    match asked.and_then(|epoch| open.end_of_epoch(OwnerEpoch(epoch))) {
        Some((epoch, end)) => response
            .with_leader_epoch(epoch_number(epoch))
            .with_end_offset(wire(end)),
        None => response,
    }
}
