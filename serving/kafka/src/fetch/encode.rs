//! The answer to a fetch, written by hand: the records in it are the stored bytes, not copies of them.
//!
//! A message encoder would copy every record into its own buffer. The fields are few, and a test reads what is written here with the
//! decoder of another hand, in every version.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;

use super::gather::put_records;
use super::run::SESSIONS_FROM;
use super::spot::{Found, Spot};
use crate::error_code::{self, Code};
use crate::link::Link;
use crate::wire::{Answer, Asked, put_header, put_varint};

/// First versions that tell where the log begins, and which replica to read from.
const LOG_START_FROM: i16 = 5;
const PREFERRED_REPLICA_FROM: i16 = 11;
/// First flexible version.
const FLEXIBLE_FROM: i16 = 12;
/// First version that names topics by identity.
const TOPIC_IDS_FROM: i16 = 13;
/// First version that tells where brokers are.
const ENDPOINTS_FROM: i16 = 16;

/// What a partition takes beside its records, and small ones of these.
const ROW_BYTES: usize = 96;

/// What stands around the partitions.
pub(super) struct Head<'a> {
    pub(super) asked: Asked,
    pub(super) throttle_ms: i32,
    pub(super) code: Code,
    pub(super) session: i32,
    pub(super) broker: Broker<'a>,
}

/// This broker, as it is told to clients that looked for another leader.
pub(super) struct Broker<'a> {
    node_id: i32,
    host: &'a str,
    port: u16,
}

impl<'a> Broker<'a> {
    /// As the client of this connection reaches it.
    pub(super) fn of(link: &'a Link) -> Self {
        Self {
            node_id: link.served.node_id,
            host: &link.host,
            port: link.port,
        }
    }
}

/// About what an answer takes beside its records.
pub(super) fn rows_bytes(partitions: &[(Spot, Found)]) -> usize {
    let topics = partitions.chunk_by(|(left, _), (right, _)| left.topic == right.topic);
    let names: usize = topics.map(|rows| rows[0].0.topic.name.len()).sum();
    names + ROW_BYTES * partitions.len()
}

/// The frame.
pub(super) fn encode(head: &Head<'_>, partitions: Vec<(Spot, Found)>) -> Answer {
    let version = head.asked.version;
    debug_assert_eq!(head.asked.key, ApiKey::Fetch);
    let mut out = BytesMut::with_capacity(64 + ROW_BYTES * partitions.len());
    let mut parts = Vec::new();
    put_header(&mut out, head.asked);
    out.put_i32(head.throttle_ms);
    if version >= SESSIONS_FROM {
        out.put_i16(head.code);
        out.put_i32(head.session);
    }
    let moved = partitions
        .iter()
        .any(|(_, found)| found.leader_epoch.is_some());
    let mut writer = Writer {
        version,
        leader: head.broker.node_id,
        out: &mut out,
        parts: &mut parts,
    };
    writer.topics(partitions);
    if version >= FLEXIBLE_FROM {
        writer.endpoints(head, moved);
    }
    parts.push(out.freeze());
    Answer::frame(parts)
}

struct Writer<'a> {
    version: i16,
    leader: i32,
    out: &'a mut BytesMut,
    parts: &'a mut Vec<Bytes>,
}

impl Writer<'_> {
    fn flexible(&self) -> bool {
        self.version >= FLEXIBLE_FROM
    }

    fn count(&mut self, count: usize) {
        match self.flexible() {
            true => put_varint(self.out, count + 1),
            false => self.out.put_i32(count as i32),
        }
    }

    fn no_tags(&mut self) {
        if self.flexible() {
            self.out.put_u8(0);
        }
    }

    fn topics(&mut self, partitions: Vec<(Spot, Found)>) {
        let starts =
            |index: usize| index == 0 || partitions[index - 1].0.topic != partitions[index].0.topic;
        let mut groups: Vec<usize> = Vec::new();
        for index in 0..partitions.len() {
            match starts(index) {
                true => groups.push(1),
                false => *groups.last_mut().expect("the first one starts a group") += 1,
            }
        }
        self.count(groups.len());
        let mut rest = partitions.into_iter();
        for length in groups {
            let mut group = rest.by_ref().take(length).peekable();
            let topic = group.peek().map(|(spot, _)| spot.topic.clone());
            let topic = topic.expect("a group has a partition");
            match self.version >= TOPIC_IDS_FROM {
                true => self.out.put_slice(topic.id.as_bytes()),
                false => self.text(&topic.name),
            }
            self.count(length);
            for (spot, found) in group {
                self.partition(&spot, found);
            }
            self.no_tags();
        }
    }

    fn text(&mut self, text: &str) {
        match self.flexible() {
            true => put_varint(self.out, text.len() + 1),
            false => self.out.put_i16(text.len() as i16),
        }
        self.out.put_slice(text.as_bytes());
    }

    fn partition(&mut self, spot: &Spot, found: Found) {
        self.out.put_i32(spot.index);
        self.out.put_i16(found.code);
        self.out.put_i64(found.high_watermark);
        // Without transactions every record is decided.
        self.out.put_i64(found.high_watermark);
        if self.version >= LOG_START_FROM {
            self.out.put_i64(found.log_start);
        }
        // No aborted transactions.
        self.count(0);
        if self.version >= PREFERRED_REPLICA_FROM {
            // No other replica is better.
            self.out.put_i32(-1);
        }
        match self.flexible() {
            true => put_varint(self.out, found.bytes + 1),
            false => self.out.put_i32(found.bytes as i32),
        }
        put_records(self.out, self.parts, found.records);
        if !self.flexible() {
            return;
        }
        match found.leader_epoch {
            Some(epoch) => {
                // One tagged field, number 1: the leader, nine bytes with its own tags.
                self.out.put_slice(&[1, 1, 9]);
                self.out.put_i32(self.leader);
                self.out.put_i32(epoch);
                self.out.put_u8(0);
            }
            None => self.out.put_u8(0),
        }
    }

    /// The tags of the whole: where the leaders are, from the version on that has it.
    fn endpoints(&mut self, head: &Head<'_>, moved: bool) {
        let Broker {
            node_id,
            host,
            port,
        } = head.broker;
        if !moved || self.version < ENDPOINTS_FROM {
            return self.out.put_u8(0);
        }
        let mut field = BytesMut::new();
        put_varint(&mut field, 2);
        field.put_i32(node_id);
        put_varint(&mut field, host.len() + 1);
        field.put_slice(host.as_bytes());
        field.put_i32(i32::from(port));
        // No rack, no tags.
        field.put_slice(&[0, 0]);
        self.out.put_slice(&[1, 0]);
        put_varint(self.out, field.len());
        self.out.put_slice(&field);
    }
}

/// The answer that carries nothing but an error of the session.
pub(super) fn refuse(head: &Head<'_>) -> Answer {
    debug_assert_ne!(head.code, error_code::NONE);
    encode(head, Vec::new())
}
