//! Why a machine of this crate refuses; each refusal is one of the wire's closed set of reasons (serving.md E4).

use hulse_proto::error::{Fault, Reason};

use crate::producer::Producer;
use crate::staging::Decision;

/// A refusal. Nothing of the request was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TxnError {
    /// A field is missing, contradicts another, or is too large.
    #[error("the request is malformed: {0}")]
    InvalidRequest(&'static str),
    /// The transactional id is empty or too long.
    #[error("the transactional id is empty or too long")]
    InvalidId,
    /// The time-out is zero, or longer than may be.
    #[error("a transaction may take 1 to {max_ms} ms")]
    InvalidTimeout {
        /// The longest.
        max_ms: u32,
    },
    /// Nobody knows this transactional id.
    #[error("there is no such transactional id")]
    NotFound,
    /// The producer id is not the one of this transactional id.
    #[error("the producer id is not the one of this transactional id")]
    WrongProducer,
    /// A newer instance of the producer took over, or its transaction timed out.
    #[error("{found} is fenced, {known} is known")]
    Fenced {
        /// Who asked.
        found: Producer,
        /// Who took over.
        known: Producer,
    },
    /// The marker is of a coordinator that is none any more.
    #[error("a marker of coordinator epoch {found} came behind one of {known}")]
    CoordinatorFenced {
        /// The marker's.
        found: i32,
        /// Seen.
        known: i32,
    },
    /// Something of this transactional id is under way: ask again.
    #[error("the transaction before is being ended; ask again")]
    Concurrent,
    /// The state of the transaction forbids it.
    #[error("the state of the transaction forbids it: {0}")]
    InvalidState(&'static str),
    /// The transaction does not have this participant: abort it.
    #[error("the transaction does not have this participant; abort it")]
    Abortable,
    /// Another transaction has staged the same.
    #[error("another transaction has staged the same; abort and try it all again")]
    Conflict,
    /// A batch before this one waits: send it again behind that one.
    #[error("a batch before this one, from sequence {first} on, waits to be verified")]
    Overtaken {
        /// The lowest that waits.
        first: i32,
    },
    /// A producer of which nothing is known begins at sequence 0.
    #[error("nothing is known of the producer, and its first sequence is {found}")]
    NotFirst {
        /// Its first sequence.
        found: i32,
    },
    /// The append is to go elsewhere than where the log ends.
    #[error("the log ends at {actual}")]
    OffsetMismatch {
        /// Where it ends.
        actual: u64,
    },
    /// The fencing token is older than one that was seen.
    #[error("a fencing token of {actual} was seen")]
    TokenFenced {
        /// The highest.
        actual: u64,
    },
    /// An offset is staged in a transaction that is not decided.
    #[error("an offset is part of a transaction that is not decided")]
    Unstable,
    /// There is no such half or scheduled message, or it was decided long ago.
    #[error("there is no such half or scheduled message")]
    NoItem,
    /// It was decided otherwise before.
    #[error("it was decided before: {0}")]
    Decided(Decision),
    /// A bound is reached.
    #[error("at most {limit} {what} are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        limit: usize,
    },
    /// More is under way than may be, or producer ids are being fetched: ask again.
    #[error("the coordinator is busy; ask again")]
    Busy,
}

impl TxnError {
    /// The reason on the wire.
    pub fn reason(&self) -> Reason {
        match self {
            Self::InvalidRequest(_) | Self::InvalidId => Reason::InvalidRequest,
            Self::InvalidTimeout { .. } => Reason::InvalidTxnTimeout,
            Self::NotFound => Reason::TxnNotFound,
            Self::WrongProducer => Reason::ProducerMismatch,
            Self::Fenced { .. } => Reason::FencedEpoch,
            Self::CoordinatorFenced { .. } => Reason::CoordinatorFenced,
            Self::Concurrent => Reason::TxnConcurrent,
            Self::InvalidState(_) => Reason::TxnStateInvalid,
            Self::Abortable => Reason::TxnAbortable,
            Self::Conflict => Reason::TxnConflict,
            Self::Overtaken { .. } | Self::NotFirst { .. } => Reason::OutOfOrderSequence,
            Self::OffsetMismatch { .. } | Self::TokenFenced { .. } => Reason::OffsetMismatch,
            Self::Unstable => Reason::OffsetUnstable,
            Self::NoItem => Reason::StagedNotFound,
            Self::Decided(_) => Reason::StagedDecided,
            Self::TooMany { .. } => Reason::Overloaded,
            Self::Busy => Reason::CoordinatorLoading,
        }
    }

    /// With its facts, for the wire.
    pub fn fault(&self) -> Fault {
        let fault = Fault::new(self.reason(), self.to_string());
        match self {
            Self::Fenced { known, .. } => fault.with("epoch", known.epoch),
            Self::CoordinatorFenced { known, .. } => fault.with("coordinator_epoch", known),
            Self::OffsetMismatch { actual } => fault.with("end", actual),
            Self::TokenFenced { actual } => fault.with("token", actual),
            Self::Decided(decision) => fault.with("decision", decision),
            Self::Overtaken { first } => fault.with("expected_sequence", first),
            Self::NotFirst { .. } => fault.with("expected_sequence", 0),
            _ => fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_tried_again_is_so_on_the_wire() {
        for error in [TxnError::Concurrent, TxnError::Busy, TxnError::Unstable] {
            assert!(error.fault().reason.is_retryable(), "{error}");
        }
        for error in [
            TxnError::WrongProducer,
            TxnError::Conflict,
            TxnError::NoItem,
        ] {
            assert!(!error.fault().reason.is_retryable(), "{error}");
        }
        let actual = TxnError::OffsetMismatch { actual: 7 }.fault();
        assert_eq!(actual.details["end"], "7");
    }
}
