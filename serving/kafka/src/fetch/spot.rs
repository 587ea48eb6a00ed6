//! A partition of a fetch: what is wanted of it, and what was found.

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::FetchTopic;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::error_code::{self, Code};

/// How a fetch calls a topic: by name, or from version 13 on by identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TopicKey {
    pub(crate) name: StrBytes,
    pub(crate) id: Uuid,
}

impl TopicKey {
    /// The same with bytes of its own, for what outlives the request: a slice would keep the whole frame.
    pub(crate) fn to_owned(&self) -> Self {
        Self {
            name: StrBytes::from_string(self.name.to_string()),
            id: self.id,
        }
    }
}

/// What is wanted of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) topic: TopicKey,
    pub(crate) index: i32,
    pub(crate) offset: i64,
    pub(crate) bytes_max: usize,
    /// The leader epoch that the client knows; −1: none.
    pub(crate) epoch: i32,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) code: Code,
    pub(crate) high_watermark: i64,
    pub(crate) log_start: i64,
    /// Who leads, where the client must be told: the epoch.
    pub(crate) leader_epoch: Option<i32>,
    pub(crate) records: Vec<Bytes>,
    pub(crate) bytes: usize,
    /// There are records, and the limits of the answer kept all of them out.
    pub(crate) left_out: bool,
}

impl Found {
    /// An error without offsets.
    pub(crate) fn failed(code: Code) -> Self {
        Self {
            code,
            high_watermark: -1,
            log_start: -1,
            leader_epoch: None,
            records: Vec::new(),
            bytes: 0,
            left_out: false,
        }
    }

    /// Nothing new.
    pub(crate) fn empty(high_watermark: i64, log_start: i64) -> Self {
        Self {
            high_watermark,
            log_start,
            ..Self::failed(error_code::NONE)
        }
    }
}

/// What the topics of a request want, in its order.
pub(crate) fn spots(topics: Vec<FetchTopic>) -> Vec<Spot> {
    let mut spots = Vec::with_capacity(topics.iter().map(|topic| topic.partitions.len()).sum());
    for topic in topics {
        let key = TopicKey {
            name: topic.topic.0,
            id: topic.topic_id,
        };
        spots.extend(topic.partitions.into_iter().map(|partition| Spot {
            topic: key.clone(),
            index: partition.partition,
            offset: partition.fetch_offset,
            bytes_max: usize::try_from(partition.partition_max_bytes).unwrap_or(0),
            epoch: partition.current_leader_epoch,
        }));
    }
    spots
}
