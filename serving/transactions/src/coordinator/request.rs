//! What a coordinator of transactions is asked and told.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use hulse_proto::id::TopicId;

use super::transaction::{Participant, Parts};
use crate::error::TxnError;
use crate::producer::{Producer, Version};

/// Names a request; the caller's choice, one of its own for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What happens to a coordinator shard.
#[derive(Debug, Clone)]
pub enum Input {
    /// A request. It is answered exactly once.
    Request(RequestId, Request),
    /// A participant answered a marker, or did not.
    Marker {
        /// Whose transaction.
        id: Arc<str>,
        /// Which of its transactions.
        serial: u32,
        /// Who.
        to: Participant,
        /// What became of it.
        outcome: MarkerOutcome,
    },
    /// These topics are deleted: their partitions take part in nothing any more.
    Deleted(BTreeSet<TopicId>),
    /// These producer ids are this shard's, and nobody else's ever.
    ProducerIds(Range<i64>),
    /// All deltas up to this number are durable.
    Confirmed(u64),
    /// Time has passed: due at [`super::Coordinator::due`].
    Tick,
}

/// What became of a marker at one participant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkerOutcome {
    /// It is durable there.
    Applied,
    /// The participant's topic is deleted, by its identity.
    Gone,
    /// Nobody knows, or not now: it is sent again.
    Unknown,
    /// The participant refused it.
    Refused(TxnError),
}

/// A request.
#[derive(Debug, Clone)]
pub enum Request {
    /// A producer begins (InitProducerId).
    Init {
        /// Its transactional id.
        id: Arc<str>,
        /// How long a transaction may take, ms.
        timeout_ms: u32,
        /// What it believes to be, where it goes on (KIP-360).
        expected: Option<Producer>,
    },
    /// Participants are added (AddPartitionsToTxn, AddOffsetsToTxn), by the client or by their owners.
    Add {
        /// Whose transaction.
        id: Arc<str>,
        /// Who speaks.
        producer: Producer,
        /// How its client ends transactions.
        version: Version,
        /// Who.
        participants: BTreeMap<Participant, Parts>,
        /// Nothing is added: do they take part?
        verify_only: bool,
    },
    /// The transaction ends (EndTxn).
    End {
        /// Whose transaction.
        id: Arc<str>,
        /// Who speaks.
        producer: Producer,
        /// How its client ends transactions.
        version: Version,
        /// Else abort.
        commit: bool,
    },
    /// All of the shard.
    List,
    /// One of them.
    Describe {
        /// Which.
        id: Arc<str>,
    },
    /// An operator aborts what is open, and fences its producer.
    Abort {
        /// Whose transaction.
        id: Arc<str>,
    },
}

impl Request {
    /// The transactional id that it is about; `None`: all.
    pub fn id(&self) -> Option<&Arc<str>> {
        match self {
            Self::Init { id, .. }
            | Self::Add { id, .. }
            | Self::End { id, .. }
            | Self::Describe { id }
            | Self::Abort { id } => Some(id),
            Self::List => None,
        }
    }

    /// It may change something; else it only looks, and the shell makes sure that this coordinator is still the one.
    pub fn changes(&self) -> bool {
        match self {
            Self::Add { verify_only, .. } => !verify_only,
            Self::Init { .. } | Self::End { .. } | Self::Abort { .. } => true,
            Self::List | Self::Describe { .. } => false,
        }
    }
}
