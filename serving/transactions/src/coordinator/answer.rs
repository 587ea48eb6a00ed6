//! What a coordinator of transactions answers and asks for.

use std::sync::Arc;

use super::change::Delta;
use super::request::RequestId;
use super::transaction::{Participant, Parts, Transaction, TxnState};
use crate::error::TxnError;
use crate::marker::Marker;
use crate::producer::Producer;

/// What a coordinator wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append this to the state chain. Numbers are dense and in order. When it fails, this coordinator ends: the next one replays.
    Append {
        /// From 1 after what was replayed.
        number: u64,
        /// What.
        delta: Delta,
    },
    /// The answer to a request. Everything that it rests on is durable.
    Answer(RequestId, Answer),
    /// Send a marker to a participant, and say what became of it.
    SendMarker {
        /// Whose transaction; for the outcome.
        id: Arc<str>,
        /// To whom.
        to: Participant,
        /// What of it.
        parts: Parts,
        /// What.
        marker: Marker,
    },
    /// Fetch a block of producer ids.
    WantProducerIds,
    /// A participant knows a newer epoch of the producer than its coordinator: it is passed over, and somebody should look.
    Odd {
        /// Whose transaction.
        id: Arc<str>,
        /// Who.
        to: Participant,
        /// What it said.
        error: TxnError,
    },
    /// A participant knows a newer epoch of this coordinator: it ends.
    Fenced,
}

/// The answer to a request of the same name.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Who it is from now on.
    Begun(Result<Producer, TxnError>),
    /// They take part, durably.
    Added(Result<Added, TxnError>),
    /// It is decided, durably; who speaks from now on.
    Ended(Result<Producer, TxnError>),
    /// All of the shard, by name.
    Listed(Vec<Listing>),
    /// One of them.
    Described(Result<Box<Transaction>, TxnError>),
    /// It is decided, durably.
    Aborted(Result<(), TxnError>),
}

impl Answer {
    /// The caller is to ask again, whatever became of what is under way.
    pub(super) fn asks_again(&self) -> bool {
        let error = match self {
            Self::Begun(Err(error)) | Self::Ended(Err(error)) => error,
            Self::Added(Err(error)) => error,
            Self::Described(Err(error)) => error,
            Self::Aborted(Err(error)) => error,
            _ => return false,
        };
        matches!(error, TxnError::Concurrent | TxnError::Busy)
    }
}

/// Which transaction they take part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// Its number.
    pub serial: u32,
}

/// A transactional id in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Its name.
    pub id: Arc<str>,
    /// Who speaks.
    pub producer: Producer,
    /// Where it stands.
    pub state: TxnState,
    /// How long its transaction has been open, ms; 0: none is.
    pub open_ms: u64,
}
