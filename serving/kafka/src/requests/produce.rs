//! Produce: hands batches over in order, and answers when they are durable.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use hulse_proto::batch::{BatchHeader, Compression};
use hulse_proto::error::{Fate, Fault, Reason};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TopicName};
use serving_broker::{Action, Front, PartitionHandle, ProduceFuture, Produced, Topic};
use tokio::time::Instant;
use uuid::Uuid;

use super::metadata::epoch_number;
use super::owed::{Owed, Place};
use super::stage::{FirstStage, Outcome, count, millis, throttle};
use crate::error_code::{self, Code};
use crate::link::{Link, OPENING_MAX};
use crate::wire::{self, Answer, Asked, Broken, Request, text};

/// Partitions that are opened at the same time for one request.
const OPENINGS_AT_ONCE: usize = 16;
/// Openings that are made ready at a time: each takes some kilobytes.
const OPENINGS_MADE: usize = 512;
/// Bounds of the time after which a producer is told that it is not known whether its batch is stored.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
const TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// A batch is a slice of its frame where it is at least this part of it.
const PINNED_SHARE: usize = 4;
/// Attribute of a batch whose first timestamp says when its tombstones go (KIP-534).
const DELETE_HORIZON: i16 = 1 << 6;
/// First version that carries zstd, whose consumers know it too (KIP-110).
const ZSTD_FROM: i16 = 7;
/// First versions whose answers say where the leader is, and why a batch is refused.
const LEADER_FROM: i16 = 10;
const WORDS_FROM: i16 = 8;

/// Why a batch is not taken.
struct Refused {
    code: Code,
    why: String,
}

/// One batch of a request.
struct Sent {
    index: i32,
    pending: Result<Pending, Refused>,
    open: Option<PartitionHandle>,
}

struct Pending {
    answer: ProduceFuture,
    place: Place,
    header: Option<BatchHeader>,
    bytes: u64,
}

struct SentTopic {
    name: TopicName,
    id: Uuid,
    batches: Vec<Sent>,
}

/// First stage: every batch is handed to its partition. The second waits for the answers.
pub(super) async fn first_stage(
    link: Arc<Link>,
    mut request: Request,
) -> Result<FirstStage, Broken> {
    let message: ProduceRequest = request.decode()?;
    let asked = request.asked();
    let refusal = refuse_all(&message);
    let timeout = Duration::from_millis(u64::try_from(message.timeout_ms).unwrap_or(0));
    let deadline = request.began + timeout.clamp(TIMEOUT_MIN, TIMEOUT_MAX);
    let mut topics = Vec::with_capacity(message.topic_data.len());
    for data in message.topic_data {
        topics.push(match &refusal {
            Some((code, why)) => not_taken(data, *code, why),
            None => {
                hand_over(
                    &link,
                    &request,
                    data,
                    deadline.min(request.began + OPENING_MAX),
                )
                .await
            }
        });
    }
    let pending = Answering {
        link,
        asked,
        request,
        topics,
        deadline,
    };
    match message.acks {
        0 => Ok(FirstStage::later(pending.unanswered())),
        _ => Ok(FirstStage::later(pending.answered())),
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

/// A topic of a request that is refused as a whole.
fn not_taken(data: TopicProduceData, code: Code, why: &str) -> SentTopic {
    let batches = data.partition_data.iter().map(|data| Sent {
        index: data.index,
        pending: Err(Refused {
            code,
            why: why.to_owned(),
        }),
        open: None,
    });
    SentTopic {
        batches: batches.collect(),
        name: data.name,
        id: data.topic_id,
    }
}

/// Hands the batches of a topic over, of those partitions that are open by `until`.
async fn hand_over(
    link: &Link,
    request: &Request,
    data: TopicProduceData,
    until: Instant,
) -> SentTopic {
    let (name, id, sent) = (data.name, data.topic_id, data.partition_data);
    let opened = match link.topic(&name, id, until).await {
        Ok(topic) => open_all(link, &topic, &sent, until).await,
        Err(fault) => sent.iter().map(|_| Err(fault.clone())).collect(),
    };
    // In the order sent, and without a pause from here on.
    let mut to = HandOver {
        front: link.front(),
        request,
        topic: Place::new(&name, id, 0),
        id,
        owed: lock(&link.owed),
    };
    let sent = sent.into_iter().zip(opened);
    let batches = sent.map(|(data, open)| to.append(data, open)).collect();
    drop(to);
    SentTopic { name, id, batches }
}

async fn open_all(
    link: &Link,
    topic: &Topic,
    sent: &[PartitionProduceData],
    until: Instant,
) -> Vec<Result<PartitionHandle, Fault>> {
    let mut opened = Vec::with_capacity(sent.len());
    for some in sent.chunks(OPENINGS_MADE) {
        let mut opening = Vec::with_capacity(some.len());
        for data in some {
            opening.push(link.open(topic, data.index, Action::Produce, until));
        }
        let mut opening = stream::iter(opening).buffered(OPENINGS_AT_ONCE);
        while let Some(open) = opening.next().await {
            opened.push(open);
        }
    }
    opened
}

/// The batches of one topic on their way to its partitions.
struct HandOver<'a> {
    front: &'a Front,
    request: &'a Request,
    /// Its first partition.
    topic: Place,
    id: Uuid,
    owed: MutexGuard<'a, Owed>,
}

impl HandOver<'_> {
    fn append(&mut self, data: PartitionProduceData, open: Result<PartitionHandle, Fault>) -> Sent {
        let index = data.index;
        let place = self.topic.at(index);
        let header = data.records.as_deref().map(BatchHeader::view);
        let header = header.and_then(Result::ok);
        let (pending, open) = match open {
            Ok(open) => {
                let pending = self.produce(place, header.as_ref(), data.records, &open);
                (pending, Some(open))
            }
            Err(fault) => (Err(refused(self.front, self.id, fault)), None),
        };
        match (&pending, &header) {
            (Ok(_), Some(header)) => self.owed.taken(place, header),
            // What is damaged says nothing of itself.
            (Err(refused), Some(header)) if refused.code != error_code::CORRUPT_MESSAGE => {
                self.owed.refused(place, header);
            }
            (_, Some(_) | None) => {}
        }
        Sent {
            index,
            pending,
            open,
        }
    }

    fn produce(
        &self,
        place: Place,
        header: Option<&BatchHeader>,
        batch: Option<Bytes>,
        open: &PartitionHandle,
    ) -> Result<Pending, Refused> {
        let batch = check(self.request, header, batch, open)?;
        if let Some(fault) = header.and_then(|header| self.owed.judge(place, header)) {
            return Err(refused(self.front, self.id, fault));
        }
        let bytes = batch.len() as u64;
        let mut answer = open.produce_in(self.request.room(), batch);
        match answer.refused() {
            None => Ok(Pending {
                answer,
                place,
                header: header.copied(),
                bytes,
            }),
            Some(fault) => Err(refused(self.front, self.id, fault)),
        }
    }
}

fn lock(owed: &Mutex<Owed>) -> MutexGuard<'_, Owed> {
    owed.lock()
        .expect("no code panics while it holds this lock")
}

/// What this wire asks of a batch beside what the partition does. A batch without a readable header goes on: the partition says best
/// what is wrong with it.
fn check(
    request: &Request,
    header: Option<&BatchHeader>,
    batch: Option<Bytes>,
    open: &PartitionHandle,
) -> Result<Bytes, Refused> {
    let Some(batch) = batch.filter(|batch| !batch.is_empty()) else {
        return Err(Refused {
            code: error_code::INVALID_RECORD,
            why: "a partition was named without a batch".to_owned(),
        });
    };
    if header.is_some_and(|header| is_of_broker(header, open)) {
        return Err(Refused {
            code: error_code::INVALID_RECORD,
            why: "a batch has attributes that a broker sets".to_owned(),
        });
    }
    let compression = header.and_then(|header| header.compression().ok());
    if compression == Some(Compression::Zstd) && request.version < ZSTD_FROM {
        return Err(Refused {
            code: error_code::UNSUPPORTED_COMPRESSION,
            why: format!("zstd is for Produce from version {ZSTD_FROM} on"),
        });
    }
    // What is kept of a frame pins all of it, so a small part of a large one is copied out.
    Ok(match batch.len() < request.frame_bytes / PINNED_SHARE {
        true => Bytes::copy_from_slice(&batch),
        false => batch,
    })
}

/// Whether a batch claims what only a broker knows of it, and would be told so to consumers: no client sends that.
fn is_of_broker(header: &BatchHeader, open: &PartitionHandle) -> bool {
    let append_time = header.is_log_append_time() && !open.is_log_append_time();
    append_time || header.attributes & DELETE_HORIZON != 0
}

/// A fault of a topic that was named by `topic_id`, or by its name.
fn refused(front: &Front, topic_id: Uuid, fault: Fault) -> Refused {
    front.metrics().fault(fault.reason);
    let code = error_code::of_record(fault.reason);
    Refused {
        code: error_code::by_id(topic_id, fault.reason, code),
        why: fault.message,
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
            mut request,
            topics,
            deadline,
        } = self;
        let front = link.front();
        let mut moved = false;
        let mut responses = Vec::with_capacity(topics.len());
        for topic in topics {
            let mut partitions = Vec::with_capacity(topic.batches.len());
            let mut said = BTreeSet::new();
            for sent in topic.batches {
                let mut response = settle(&link, request.began, deadline, topic.id, sent).await;
                if !said.insert(response.error_code) {
                    // Words are long, and of all partitions much the same.
                    response.error_message = None;
                }
                partitions.push(in_version(&link, asked.version, response, &mut moved));
            }
            responses.push(
                TopicProduceResponse::default()
                    .with_name(topic.name)
                    .with_topic_id(topic.id)
                    .with_partition_responses(partitions),
            );
        }
        let rows = responses
            .iter()
            .flat_map(|topic| &topic.partition_responses);
        let code = error_code::first_error(rows.map(|row| row.error_code));
        count(front, request.api.metric, request.began, code);
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
        match Outcome::muting(asked, &response, wait) {
            // The answer takes over the room of the decoded request, whose rows it has.
            Outcome::Answer(answer) => Outcome::Answer(Answer {
                room: request.decoded.take(),
                code,
                ..answer
            }),
            other => other,
        }
    }

    /// With acks=0 there is no answer, so a failure can only be told by ending the connection.
    async fn unanswered(self) -> Outcome {
        let front = self.link.front();
        let began = self.request.began;
        for topic in self.topics {
            for sent in topic.batches {
                let response = settle(&self.link, began, self.deadline, topic.id, sent).await;
                if response.error_code != error_code::NONE {
                    let code = response.error_code;
                    count(front, self.request.api.metric, began, code);
                    let why = format!("a batch sent with acks=0 met error {code}");
                    return Outcome::Close(why);
                }
            }
        }
        count(front, self.request.api.metric, began, error_code::NONE);
        Outcome::Silence
    }
}

/// Waits for one batch.
async fn settle(
    link: &Link,
    began: Instant,
    deadline: Instant,
    topic_id: Uuid,
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
    let pending = match sent.pending {
        Ok(pending) => pending,
        Err(refused) => return refuse(response, refused),
    };
    let answer = tokio::time::timeout_at(deadline, pending.answer).await;
    match answer.unwrap_or_else(|_| Err(too_late())) {
        Ok(produced) => {
            if !produced.duplicate {
                let metrics = link.front().metrics();
                let records = pending.header.map_or(0, |header| header.count);
                metrics.stored(u64::from(records), pending.bytes, began.elapsed());
            }
            stored(response, &produced, sent.open.as_ref())
        }
        Err(fault) => {
            let ended = sent.open.is_some_and(|open| open.ended().is_some());
            if let Some(header) = pending.header.filter(|_| ended && is_sent_again(&fault)) {
                // The partition's next life may know nothing of its producer.
                lock(&link.owed).refused(pending.place, &header);
            }
            let response = match fault.reason {
                // The leader is another one, and this broker's epoch says nothing of it: metadata do.
                Reason::PartitionMoved => response.with_current_leader(LeaderIdAndEpoch::default()),
                _ => response,
            };
            refuse(response, refused(link.front(), topic_id, fault))
        }
    }
}

fn refuse(response: PartitionProduceResponse, refused: Refused) -> PartitionProduceResponse {
    response
        .with_error_code(refused.code)
        .with_error_message(Some(text(refused.why)))
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
    let log_start = open.map_or(-1, |open| wire::offset(open.offsets().log_start));
    response
        .with_base_offset(wire::offset(produced.base_offset))
        .with_log_start_offset(log_start)
}

/// False for a batch that was judged: it has its word.
fn is_sent_again(fault: &Fault) -> bool {
    !matches!(
        fault.reason,
        Reason::OutOfOrderSequence | Reason::SequenceOverlap | Reason::FencedEpoch
    )
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
