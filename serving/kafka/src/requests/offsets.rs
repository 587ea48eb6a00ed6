//! ListOffsets and OffsetForLeaderEpoch: places in a log, by time and by epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId};
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
use tokio::time::Instant;
use uuid::Uuid;

use super::metadata::epoch_number;
use super::rows::twice;
use super::stage::{FirstStage, Outcome, count};
use crate::error_code::{self, Code};
use crate::link::{Link, OPENING_MAX};
use crate::wire::{self, Answer, Broken, Request};

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

/// Answers ListOffsets. To look by time takes its time, so all of it is of the second stage.
pub(super) fn list(link: Arc<Link>, mut request: Request) -> Result<FirstStage, Broken> {
    let message: ListOffsetsRequest = request.decode()?;
    Ok(FirstStage::later(async move {
        let outcome = places(&link, &request, message).await;
        ended(&link, request, outcome)
    }))
}

/// What a second stage ends with. The answer is as large as the request in its decoded form, and takes over its room.
pub(crate) fn ended(link: &Link, mut request: Request, outcome: Outcome) -> Outcome {
    let (code, outcome) = match outcome {
        Outcome::Answer(answer) => {
            let room = request.decoded.take();
            (answer.code, Outcome::Answer(Answer { room, ..answer }))
        }
        other => (error_code::UNKNOWN, other),
    };
    count(link.front(), request.api.metric, request.began, code);
    outcome
}

async fn places(link: &Link, request: &Request, message: ListOffsetsRequest) -> Outcome {
    let until = request.began + OPENING_MAX;
    // Names are compared once per topic.
    let mut numbers = BTreeMap::new();
    let mut named = Vec::with_capacity(request.elements);
    for topic in &message.topics {
        let next = numbers.len();
        let number = *numbers.entry(topic.name.clone()).or_insert(next);
        let rows = topic.partitions.iter();
        named.extend(rows.map(|row| (number, row.partition_index)));
    }
    let twice = twice(&named, |place| *place);
    drop(named);
    let mut topics = Vec::with_capacity(message.topics.len());
    for wanted in message.topics {
        let number = numbers[&wanted.name];
        let topic = link.topic(&wanted.name, Uuid::nil(), until).await;
        let mut partitions = Vec::with_capacity(wanted.partitions.len());
        for partition in wanted.partitions {
            let index = partition.partition_index;
            let open = match twice.contains(&(number, index)) {
                true => Err(error_code::INVALID_REQUEST),
                false => open(link, topic.as_ref(), index, until).await,
            };
            let row = match (&open, &topic) {
                (Err(code), Ok(topic)) if *code == error_code::of_record(Reason::DataDamaged) => {
                    start_of_damaged(link, topic, &partition).await
                }
                _ => None,
            };
            partitions.push(match row {
                Some(row) => row,
                None => one(link, (request.version, until), open, &partition).await,
            });
        }
        topics.push(
            ListOffsetsTopicResponse::default()
                .with_name(wanted.name)
                .with_partitions(partitions),
        );
    }
    let rows = topics.iter().flat_map(|topic| &topic.partitions);
    let code = error_code::first_error(rows.map(|row| row.error_code));
    let response = ListOffsetsResponse::default().with_topics(topics);
    Outcome::message(request.asked(), &response).with_code(code)
}

/// Where the log of a partition begins that does not open because it is damaged. Clients ask again for ever when they are not told,
/// and their applications hear nothing; with this they fetch there, and hear.
async fn start_of_damaged(
    link: &Link,
    topic: &Topic,
    wanted: &ListOffsetsPartition,
) -> Option<ListOffsetsPartitionResponse> {
    let partition = PartitionId {
        topic: topic.id,
        index: u32::try_from(wanted.partition_index).ok()?,
    };
    let fault = link.front().partitions().last_fault(partition)?;
    let earliest = matches!(wanted.timestamp, EARLIEST | EARLIEST_LOCAL);
    if fault.reason != Reason::DataDamaged || !earliest {
        return None;
    }
    let start = link.front().partitions().log_start(partition).await;
    let response = ListOffsetsPartitionResponse::default()
        .with_partition_index(wanted.partition_index)
        .with_timestamp(NOTHING);
    Some(response.with_offset(wire::offset(start.ok()?)))
}

/// A place: offset, timestamp.
type Place = (i64, i64);

async fn one(
    link: &Link,
    (version, until): (i16, Instant),
    open: Result<PartitionHandle, Code>,
    wanted: &ListOffsetsPartition,
) -> ListOffsetsPartitionResponse {
    let response = ListOffsetsPartitionResponse::default()
        .with_partition_index(wanted.partition_index)
        .with_timestamp(NOTHING)
        .with_offset(NOTHING);
    let found = match &open {
        Ok(open) => match check_epoch(wanted.current_leader_epoch, open) {
            Ok(()) => look_up(link, open, (wanted.timestamp, until)).await,
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

async fn look_up(
    link: &Link,
    open: &PartitionHandle,
    (time, until): (i64, Instant),
) -> Result<Place, Code> {
    let found = match time {
        LATEST => {
            let end = end_of(link, open, until).await?;
            return Ok((wire::offset(end), NOTHING));
        }
        EARLIEST | EARLIEST_LOCAL => {
            return Ok((wire::offset(open.offsets().log_start), NOTHING));
        }
        // Nothing is in another tier than the local one, and nothing waits to be.
        LATEST_TIERED => return Ok((NOTHING, NOTHING)),
        MAX_TIMESTAMP => open.offset_of_max_time().await,
        ..0 => return Ok((NOTHING, NOTHING)),
        time => open.offset_at_time(time).await,
    };
    match found {
        Ok(Some((offset, timestamp))) => Ok((wire::offset(offset), timestamp)),
        // Nothing so late up to the end, which is for the owner to say.
        Ok(None) => end_of(link, open, until).await.map(|_| (NOTHING, NOTHING)),
        Err(fault) => Err(told(link, &fault)),
    }
}

/// Where a log ends, by its owner. What is in doubt is not asked for one partition after the other for ever.
async fn end_of(link: &Link, open: &PartitionHandle, until: Instant) -> Result<Offset, Code> {
    if !open.is_certain() && Instant::now() >= until {
        let words = "what was asked before took too long";
        return Err(told(link, &Fault::new(Reason::MetadataUnavailable, words)));
    }
    let offsets = open.told_offsets().await;
    let offsets = offsets.map_err(|fault| told(link, &fault))?;
    Ok(offsets.high_watermark)
}

fn told(link: &Link, fault: &Fault) -> Code {
    link.front().metrics().fault(fault.reason);
    error_code::of_record(fault.reason)
}

async fn open(
    link: &Link,
    topic: Result<&Topic, &Fault>,
    index: i32,
    until: Instant,
) -> Result<PartitionHandle, Code> {
    let topic = topic.map_err(|fault| told(link, fault))?;
    let opened = link.open(topic, index, Action::Consume, until).await;
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

/// Answers OffsetForLeaderEpoch, at the second stage as [`list`].
pub(super) fn leader_epochs(link: Arc<Link>, mut request: Request) -> Result<FirstStage, Broken> {
    let message: OffsetForLeaderEpochRequest = request.decode()?;
    Ok(FirstStage::later(async move {
        let outcome = epoch_ends(&link, &request, message).await;
        ended(&link, request, outcome)
    }))
}

async fn epoch_ends(
    link: &Link,
    request: &Request,
    message: OffsetForLeaderEpochRequest,
) -> Outcome {
    let until = request.began + OPENING_MAX;
    let mut topics = Vec::with_capacity(message.topics.len());
    for wanted in message.topics {
        let topic = link.topic(&wanted.topic, Uuid::nil(), until).await;
        let mut partitions = Vec::with_capacity(wanted.partitions.len());
        for partition in wanted.partitions {
            let open = open(link, topic.as_ref(), partition.partition, until).await;
            let open = match open {
                // Also of an earlier epoch: the client compares with what another owner may have told.
                Ok(open) => end_of(link, &open, until).await.map(|_| open),
                closed => closed,
            };
            partitions.push(epoch_end(open, &partition));
        }
        topics.push(
            OffsetForLeaderTopicResult::default()
                .with_topic(wanted.topic)
                .with_partitions(partitions),
        );
    }
    let rows = topics.iter().flat_map(|topic| &topic.partitions);
    let code = error_code::first_error(rows.map(|row| row.error_code));
    let response = OffsetForLeaderEpochResponse::default().with_topics(topics);
    Outcome::message(request.asked(), &response).with_code(code)
}

fn epoch_end(
    open: Result<PartitionHandle, Code>,
    wanted: &OffsetForLeaderPartition,
) -> EpochEndOffset {
    let response = EpochEndOffset::default()
        .with_partition(wanted.partition)
        .with_leader_epoch(-1)
        .with_end_offset(NOTHING);
    let open = match open {
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
            .with_end_offset(wire::offset(end)),
        None => response,
    }
}
