//! What is said over the network.

use std::sync::Arc;

use hulse_proto::id::{PartitionId, TopicId};
use uuid::Uuid;

use crate::coordinator::{MarkerOutcome, Participant, Parts, Request};
use crate::{Marker, Producer, Ticket, TxnError, Version};

/// Partitions with records.
pub(super) const PARTITIONS: usize = 3;
/// Coordinator shards.
pub(super) const SHARDS: usize = 2;

/// Who hears it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum To {
    Coordinator(usize),
    Partition(usize),
    Groups,
    Client(usize),
}

/// Who is told what came of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    /// A client, by the number of its call.
    Client(usize, u64),
    /// An owner that holds a guard; for acks, or for batches.
    Owner {
        place: To,
        life: u32,
        producer: Producer,
        ticket: Ticket,
        acks: bool,
    },
}

/// A first part, or any other, of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) id: Arc<str>,
    pub(super) producer: Producer,
    pub(super) version: Version,
    pub(super) what: What,
    pub(super) reply: Reply,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    /// A value, under a sequence.
    Write { sequence: i32, value: u64 },
    /// An ack of this record.
    Ack(u64),
    /// An offset of the group.
    Offset(u64),
}

#[derive(Debug, Clone)]
pub(super) enum Message {
    Ask(Request, Reply),
    Outcome {
        epoch: u32,
        id: Arc<str>,
        serial: u32,
        to: Participant,
        outcome: MarkerOutcome,
    },
    Part(Part),
    Mark {
        shard: usize,
        id: Arc<str>,
        to: Participant,
        parts: Parts,
        marker: Marker,
    },
    Verified {
        life: u32,
        producer: Producer,
        ticket: Ticket,
        acks: bool,
        answer: Result<(), TxnError>,
    },
    /// An offset that is committed without a transaction.
    Plain(u64),
    Answer(u64, Result<Option<Producer>, TxnError>),
}

pub(super) type Sent = Vec<(To, Message)>;

pub(super) fn data(index: usize) -> PartitionId {
    PartitionId {
        topic: TopicId(Uuid::from_u128(1)),
        index: index as u32,
    }
}

pub(super) fn groups() -> PartitionId {
    PartitionId {
        topic: TopicId(Uuid::from_u128(2)),
        index: 0,
    }
}

pub(super) fn shard_of(id: &str) -> usize {
    id.bytes().map(usize::from).sum::<usize>() % SHARDS
}

pub(super) fn place_of(participant: Participant) -> To {
    match participant {
        Participant::Partition(partition) => To::Partition(partition.index as usize),
        Participant::Groups(_) => To::Groups,
    }
}

/// An answer on its way back.
pub(super) fn answer(reply: &Reply, said: Result<Option<Producer>, TxnError>) -> (To, Message) {
    match reply {
        Reply::Client(client, call) => (To::Client(*client), Message::Answer(*call, said)),
        Reply::Owner {
            place,
            life,
            producer,
            ticket,
            acks,
        } => {
            let verified = Message::Verified {
                life: *life,
                producer: *producer,
                ticket: *ticket,
                acks: *acks,
                answer: said.map(|_| ()),
            };
            (*place, verified)
        }
    }
}

/// What a coordinator hears instead of an outcome that nobody told it.
pub(super) fn unknown((to, message): (To, Message)) -> Option<(To, Message)> {
    let Message::Outcome {
        epoch,
        id,
        serial,
        to: participant,
        ..
    } = message
    else {
        return None;
    };
    let message = Message::Outcome {
        epoch,
        id,
        serial,
        to: participant,
        outcome: MarkerOutcome::Unknown,
    };
    Some((to, message))
}

/// A coordinator's marker gets no answer.
pub(super) fn unanswered(message: &Message) -> Option<(To, Message)> {
    match message.clone() {
        Message::Mark {
            shard,
            id,
            to,
            marker,
            ..
        } => {
            let message = Message::Outcome {
                epoch: marker.coordinator_epoch as u32,
                id,
                serial: marker.serial,
                to,
                outcome: MarkerOutcome::Unknown,
            };
            Some((To::Coordinator(shard), message))
        }
        Message::Outcome { ref id, .. } => {
            let shard = To::Coordinator(shard_of(id));
            unknown((shard, message.clone()))
        }
        _ => None,
    }
}

/// Whose call it is, where its client speaks the first version: such a client has one connection, on which nothing comes twice or late.
pub(super) fn ordered(message: &Message) -> Option<(usize, u64)> {
    let (reply, version) = match message {
        Message::Part(part) => (&part.reply, part.version),
        Message::Ask(Request::Add { version, .. } | Request::End { version, .. }, reply) => {
            (reply, *version)
        }
        _ => return None,
    };
    match (reply, version) {
        (Reply::Client(client, call), Version::Tv1) => Some((*client, *call)),
        _ => None,
    }
}

/// A question to a coordinator: does this place take part?
pub(super) fn question(
    part: &Part,
    participant: Participant,
    parts: Parts,
    reply: Reply,
) -> (To, Message) {
    let request = Request::Add {
        id: part.id.clone(),
        producer: part.producer,
        version: part.version,
        participants: [(participant, parts)].into(),
        verify_only: part.version == Version::Tv1,
    };
    let shard = shard_of(&part.id);
    (To::Coordinator(shard), Message::Ask(request, reply))
}
