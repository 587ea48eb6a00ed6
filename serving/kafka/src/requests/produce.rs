//! Produce: hands batches over in order, and answers when they are durable.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use hulse_proto::batch::{BatchHeader, Compression};
use hulse_proto::error::{Fate, Fault, Reason};
use kafka_protocol::messages::produce_request::TopicProduceData;
use kafka_protocol::messages::produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TopicName};
use serving_broker::{Action, Front, PartitionHandle, ProduceFuture, Produced, Topic};
use tokio::time::Instant;
use uuid::Uuid;

use super::begin::{Begun, Outcome, count, millis, throttle};
use super::metadata::epoch_number;
use crate::error_code::{self, Code};
use crate::link::Link;
use crate::wire::{Asked, Broken, Request, text};

/// Partitions that are opened at the same time for one request.
const OPENINGS_AT_ONCE: usize = 16;
/// Bounds of the time after which a producer is told that it is not known whether its batch is stored.
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(300));
/// A batch is a slice of its frame where it is at least this part of it.
const PINNED_SHARE: usize = 4;
/// First version that carries zstd, whose consumers know it too (KIP-110).
const ZSTD_FROM: i16 = 7;
/// First versions whose answers say where the leader is, and why a batch is refused.
const LEADER_FROM: i16 = 10;
const WORDS_FROM: i16 = 8;

/// A refusal: the code, and the fault where there is one.
struct Refused {
    code: Code,
    why: String,
}

/// One batch of a request.
struct Sent {
    index: i32,
    begun: Result<Pending, Refused>,
    open: Option<PartitionHandle>,
}

struct Pending {
    answer: ProduceFuture,
    records: u64,
    bytes: u64,
}

struct SentTopic {
    name: TopicName,
    id: Uuid,
    batches: Vec<Sent>,
}

/// First stage: every batch is handed to its partition. The second waits for the answers.
pub(super) async fn begin(link: Arc<Link>, mut request: Request) -> Result<Begun, Broken> {
    let message: ProduceRequest = request.decode()?;
    let asked = request.asked();
    let refusal = refuse_all(&message);
    let mut topics = Vec::with_capacity(message.topic_data.len());
    for data in message.topic_data {
        topics.push(hand_over(&link, &request, data, refusal.as_ref()).await);
    }
    let timeout = Duration::from_millis(u64::try_from(message.timeout_ms).unwrap_or(0));
    let pending = Answering {
        link,
        asked,
        request,
        topics,
        deadline: Instant::now() + timeout.clamp(TIMEOUT.0, TIMEOUT.1),
    };
    match message.acks {
        0 => Ok(Begun::later(pending.unanswered())),
        _ => Ok(Begun::later(pending.answered())),
    }
}

/// What is wrong with the request as a whole.
fn refuse_all(message: &ProduceRequest) -> Option<(Code, &'static str)> {
    if !(-1..=1).contains(&message.acks) {
        let why = "acks is -1, 0 or 1";
        return Some((error_code::INVALID_REQUIRED_ACKS, why));
    }
    message.transactional_id.as_ref().map(|_| {
        let why = "this broker has no transactions yet; send without a transactional id";
        (error_code::INVALID_REQUEST, why)
    })
}

async fn hand_over(
    link: &Link,
    request: &Request,
    data: TopicProduceData,
    refusal: Option<&(Code, &'static str)>,
) -> SentTopic {
    let found = match refusal {
        Some((code, why)) => Err(Refused {
            code: *code,
            why: (*why).to_owned(),
        }),
        None => {
            let found = link.topic(&data.name, data.topic_id).await;
            let code = match data.topic_id.is_nil() {
                true => error_code::of_record,
                false => error_code::of_record_by_id,
            };
            found.map_err(|fault| refused(link.front(), &fault, code(fault.reason)))
        }
    };
    let mut batches = Vec::with_capacity(data.partition_data.len());
    match found {
        Ok(topic) => {
            let indexes = data.partition_data.iter().map(|data| data.index).collect();
            let opened = open_all(link, &topic, indexes).await;
            // In the order sent, and without a pause from here on.
            for (data, open) in data.partition_data.into_iter().zip(opened) {
                batches.push(append(
                    link.front(),
                    request,
                    (data.index, data.records),
                    open,
                ));
            }
        }
        Err(Refused { code, why }) => batches.extend(data.partition_data.iter().map(|data| Sent {
            index: data.index,
            begun: Err(Refused {
                code,
                why: why.clone(),
            }),
            open: None,
        })),
    }
    SentTopic {
        name: data.name,
        id: data.topic_id,
        batches,
    }
}

async fn open_all(
    link: &Link,
    topic: &Topic,
    indexes: Vec<i32>,
) -> Vec<Result<PartitionHandle, Fault>> {
    let opening = indexes
        .into_iter()
        .map(|index| link.open(topic, index, Action::Produce));
    stream::iter(opening)
        .buffered(OPENINGS_AT_ONCE)
        .collect()
        .await
}

fn append(
    front: &Front,
    request: &Request,
    (index, batch): (i32, Option<Bytes>),
    open: Result<PartitionHandle, Fault>,
) -> Sent {
    let open = match open {
        Ok(open) => open,
        Err(fault) => {
            let refused = refused(front, &fault, error_code::of_record(fault.reason));
            return Sent {
                index,
                begun: Err(refused),
                open: None,
            };
        }
    };
    let begun = check(request, batch).and_then(|(batch, records)| {
        let bytes = batch.len() as u64;
        let mut answer = open.produce(batch);
        match answer.refused() {
            None => Ok(Pending {
                answer,
                records,
                bytes,
            }),
            Some(fault) => Err(refused(front, &fault, error_code::of_record(fault.reason))),
        }
    });
    Sent {
        index,
        begun,
        open: Some(open),
    }
}

/// What this wire asks of a batch beside what the partition does. A batch without a readable header goes on: the partition says best
/// what is wrong with it.
fn check(request: &Request, batch: Option<Bytes>) -> Result<(Bytes, u64), Refused> {
    let Some(batch) = batch.filter(|batch| !batch.is_empty()) else {
        return Err(Refused {
            code: error_code::INVALID_RECORD,
            why: "a partition was named without a batch".to_owned(),
        });
    };
    let header = BatchHeader::view(&batch).ok();
    let compression = header.and_then(|header| header.compression().ok());
    if compression == Some(Compression::Zstd) && request.version < ZSTD_FROM {
        return Err(Refused {
            code: error_code::UNSUPPORTED_COMPRESSION,
            why: format!("zstd is for Produce from version {ZSTD_FROM} on"),
        });
    }
    // What is kept of a frame pins all of it, so a small part of a large one is copied out.
    let batch = match batch.len() < request.frame_bytes / PINNED_SHARE {
        true => Bytes::copy_from_slice(&batch),
        false => batch,
    };
    Ok((batch, header.map_or(0, |header| u64::from(header.count))))
}

fn refused(front: &Front, fault: &Fault, code: Code) -> Refused {
    front.metrics().fault(fault.reason);
    Refused {
        code,
        why: fault.message.clone(),
    }
}

/// The second stage.
struct Answering {
    link: Arc<Link>,
    asked: Asked,
    /// Held for its room.
    request: Request,
    topics: Vec<SentTopic>,
    deadline: Instant,
}

impl Answering {
    async fn answered(self) -> Outcome {
        let Self {
            link,
            asked,
            request,
            topics,
            deadline,
        } = self;
        let front = link.front();
        let mut moved = false;
        let mut responses = Vec::with_capacity(topics.len());
        for topic in topics {
            let mut partitions = Vec::with_capacity(topic.batches.len());
            for sent in topic.batches {
                let response = settle(front, request.began, deadline, sent).await;
                partitions.push(in_version(&link, asked.version, response, &mut moved));
            }
            responses.push(
                TopicProduceResponse::default()
                    .with_name(topic.name)
                    .with_topic_id(topic.id)
                    .with_partition_responses(partitions),
            );
        }
        count(front, request.api.metric, request.began, None);
        let wait = throttle(request.waited);
        let mut response = ProduceResponse::default()
            .with_responses(responses)
            .with_throttle_time_ms(millis(wait));
        if moved {
            response.node_endpoints = vec![
                NodeEndpoint::default()
                    .with_node_id(link.served.node_id.into())
                    .with_host(text(link.host.clone()))
                    .with_port(i32::from(link.port)),
            ];
        }
        Outcome::muting(asked, &response, wait)
    }

    /// With acks=0 there is no answer, so a failure can only be told by ending the connection.
    async fn unanswered(self) -> Outcome {
        let front = self.link.front();
        for topic in self.topics {
            for sent in topic.batches {
                let response = settle(front, self.request.began, self.deadline, sent).await;
                if response.error_code != error_code::NONE {
                    let code = response.error_code;
                    let why = format!("a batch sent with acks=0 met error {code}");
                    return Outcome::Close(why);
                }
            }
        }
        count(front, self.request.api.metric, self.request.began, None);
        Outcome::Silence
    }
}

/// Waits for one batch.
async fn settle(
    front: &Front,
    began: Instant,
    deadline: Instant,
    sent: Sent,
) -> PartitionProduceResponse {
    let response = PartitionProduceResponse::default()
        .with_index(sent.index)
        .with_base_offset(-1)
        .with_log_append_time_ms(-1)
        .with_log_start_offset(-1);
    let leader = sent.open.as_ref().map(PartitionHandle::leader_epoch);
    let response = response.with_current_leader(
        LeaderIdAndEpoch::default().with_leader_epoch(leader.map_or(-1, epoch_number)),
    );
    let pending = match sent.begun {
        Ok(pending) => pending,
        Err(Refused { code, why }) => {
            return response
                .with_error_code(code)
                .with_error_message(Some(text(why)));
        }
    };
    let answer = tokio::time::timeout_at(deadline, pending.answer).await;
    match answer.unwrap_or_else(|_| Err(too_late())) {
        Ok(produced) => {
            if !produced.duplicate {
                let metrics = front.metrics();
                metrics.stored(pending.records, pending.bytes, began.elapsed());
            }
            stored(response, &produced, sent.open.as_ref())
        }
        Err(fault) => {
            front.metrics().fault(fault.reason);
            response
                .with_error_code(error_code::of_record(fault.reason))
                .with_error_message(Some(text(fault.message)))
        }
    }
}

fn stored(
    response: PartitionProduceResponse,
    produced: &Produced,
    open: Option<&PartitionHandle>,
) -> PartitionProduceResponse {
    let response = match open.is_some_and(PartitionHandle::is_log_append_time) {
        true => response.with_log_append_time_ms(produced.append_time),
        false => response,
    };
    let log_start = open.map_or(-1, |open| offset(open.offsets().log_start.0));
    response
        .with_base_offset(offset(produced.base_offset.0))
        .with_log_start_offset(log_start)
}

/// An offset as the wire has it.
fn offset(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

fn too_late() -> Fault {
    let words = "the batch was not confirmed in the time that the request gives; it may be stored";
    let mut fault = Fault::new(Reason::StorageTimeout, words);
    fault.fate = Fate::Unknown;
    fault
}

/// Takes out what the version does not have, and names the leader where a client must look for it (KIP-951).
fn in_version(
    link: &Link,
    version: i16,
    mut response: PartitionProduceResponse,
    moved: &mut bool,
) -> PartitionProduceResponse {
    if version < WORDS_FROM {
        response.error_message = None;
    }
    let not_leader =
        response.error_code == error_code::NOT_LEADER && response.current_leader.leader_epoch >= 0;
    if version >= LEADER_FROM && not_leader {
        response.current_leader.leader_id = link.served.node_id.into();
        *moved = true;
    } else {
        response.current_leader = LeaderIdAndEpoch::default();
    }
    response
}
