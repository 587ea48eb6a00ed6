//! Metadata of all topics: a long answer, of which only the bytes are in memory.
//!
//! A decoded row takes ten times the bytes that it becomes, so each topic is encoded as it is met and then forgotten. An answer of more
//! rows than others may have is made and written while no other such is.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hulse_proto::error::{Fault, Reason};
use kafka_protocol::messages::MetadataResponse;
use kafka_protocol::protocol::Encodable;
use serving_broker::{Action, Resource, Topic, TopicState};
use tokio::sync::OwnedSemaphorePermit;

use super::metadata::served_topic;
use super::rows::{ROWS_MAX, Rows};
use crate::brokers::Nodes;
use crate::link::Link;
use crate::wire::{Answer, Asked, put_header, put_varint};

/// Topics read at a time.
const PAGE: u32 = 1000;
/// Most rows of the answer, of some 30 bytes each: topics and their partitions.
const ALL_ROWS_MAX: usize = 1_000_000;
/// The end of another such answer is waited for at most this long.
const TURN_WAIT_MAX: Duration = Duration::from_secs(30);
/// About the length of a run of bytes.
const RUN_BYTES: usize = 256 << 10;
/// First version whose counts are compact and whose structs end with tagged fields.
const FLEXIBLE_FROM: i16 = 9;

/// The topics of an answer in their encoded form.
pub(super) struct AllTopics {
    count: usize,
    runs: Vec<Bytes>,
    turn: Option<OwnedSemaphorePermit>,
}

/// The topics that there are.
pub(super) async fn active_topics(link: &Link, rows: &mut Rows<'_>) -> Result<Vec<Topic>, Fault> {
    let front = link.front();
    front.allow(Action::Describe, Resource::Namespace(""))?;
    rows.large().await;
    let mut topics = Vec::new();
    let mut token = String::new();
    loop {
        let page = front.topics().list("", &token, PAGE).await?;
        rows.add(page.topics.len()).await?;
        let active = page.topics.into_iter();
        topics.extend(
            active.filter(|topic| topic.state == TopicState::Active && !topic.is_internal()),
        );
        match page.next {
            Some(next) => token = next,
            None => return Ok(topics),
        }
    }
}

/// Every topic, as this version tells of it.
///
/// # Errors
/// `INVALID_REQUEST`: there are too many; `METADATA_UNAVAILABLE`.
pub(super) async fn all_topics(
    link: &Arc<Link>,
    nodes: &Nodes,
    version: i16,
) -> Result<AllTopics, Fault> {
    let mut turn = None;
    loop {
        let mut rows = Rows::new(link);
        let topics = active_topics(link, &mut rows).await?;
        let partitions = topics.iter().map(|topic| topic.partitions as usize);
        let count = topics.len() + partitions.sum::<usize>();
        if count > ALL_ROWS_MAX {
            let words = format!(
                "metadata of all topics have {count} rows, more than the {ALL_ROWS_MAX} of an answer; ask for some of them"
            );
            return Err(Fault::new(Reason::InvalidRequest, words));
        }
        if count > ROWS_MAX && turn.is_none() {
            turn = link.served.longest.clone().try_acquire_owned().ok();
            if turn.is_none() {
                // Nothing is held while others are waited for.
                drop((topics, rows));
                turn = Some(take_turn(link).await?);
                continue;
            }
        }
        return encode((link, nodes), version, topics, turn).await;
    }
}

async fn take_turn(link: &Link) -> Result<OwnedSemaphorePermit, Fault> {
    let turn = link.served.longest.clone().acquire_owned();
    match tokio::time::timeout(TURN_WAIT_MAX, turn).await {
        Ok(turn) => Ok(turn.expect("this semaphore is never closed")),
        Err(_) => {
            let why = "metadata of all topics are told to others, one at a time; ask again";
            Err(Fault::new(Reason::MetadataUnavailable, why))
        }
    }
}

async fn encode(
    (link, nodes): (&Link, &Nodes),
    version: i16,
    topics: Vec<Topic>,
    turn: Option<OwnedSemaphorePermit>,
) -> Result<AllTopics, Fault> {
    let count = topics.len();
    let mut out = BytesMut::new();
    let mut runs = Vec::new();
    for topic in topics {
        let told = served_topic((link, nodes), &topic, None).await;
        told.encode(&mut out, version)
            .map_err(|error| Fault::new(Reason::Internal, error.to_string()))?;
        if out.len() >= RUN_BYTES {
            runs.push(out.split().freeze());
        }
    }
    runs.push(out.freeze());
    Ok(AllTopics { count, runs, turn })
}

impl AllTopics {
    /// The answer that `response` is with these topics; `None` when it cannot be said in this version, which is a bug.
    pub(super) fn answer(self, asked: Asked, response: &MetadataResponse) -> Option<Answer> {
        debug_assert!(response.topics.is_empty());
        let version = asked.version;
        let mut before = BytesMut::new();
        put_header(&mut before, asked);
        response.encode(&mut before, version).ok()?;
        // What follows the topics: operations on the cluster, the error of the whole, no tags.
        let operations = if (8..=10).contains(&version) { 4 } else { 0 };
        let error = if version >= super::metadata::ERROR_FROM {
            2
        } else {
            0
        };
        let (none, tags) = match version >= FLEXIBLE_FROM {
            true => (1, 1),
            false => (4, 0),
        };
        let after = before.split_off(before.len() - operations - error - tags);
        before.truncate(before.len() - none);
        match version >= FLEXIBLE_FROM {
            true => put_varint(&mut before, self.count + 1),
            false => before.put_i32(self.count as i32),
        }
        let mut parts = vec![before.freeze()];
        parts.extend(self.runs);
        parts.push(after.freeze());
        Some(Answer {
            rows: self.turn,
            ..Answer::frame(parts)
        })
    }
}
