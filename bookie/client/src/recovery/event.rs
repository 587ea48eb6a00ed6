//! What the recovery core is told, and what it wants done.

use std::time::Duration;

use bookie_metadata::{MetadataError, Txn, TxnOutcome, Versioned};
use hulse_proto::bookie::{
    AddRequest, BookieError, FenceAnswer, FenceRequest, RecoveryReadAnswer, RecoveryReadRequest,
};
use hulse_proto::id::{CellId, EntryId, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, Member};
use hulse_proto::mutant::Mutation;
use hulse_proto::time::TimestampMs;

use crate::config::ClientConfig;
use crate::directory::Candidate;
use crate::error::RecoverError;

/// How far a recovery may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Unknown never counts as negative (R6).
    Strict,
    /// An operator's word (R14).
    AcceptLoss {
        /// Seal exactly here (exclusive); `None`: behind the last entry that is found, whatever is missing below.
        up_to: Option<EntryId>,
    },
}

/// What one attempt must know from the start.
#[derive(Debug, Clone)]
pub struct RecoveryConfig {
    /// The cluster.
    pub cell: CellId,
    /// The ledger.
    pub ledger: LedgerId,
    /// How far it may go.
    pub policy: Policy,
    /// The caller's compares and effects, joined to both transactions.
    pub part: Txn,
    /// Fresh: one for the start (R2), one for the close (R10).
    pub nonces: [[u8; 16]; 2],
    /// Entries read ahead of the decision (R13).
    pub read_ahead: usize,
    /// Payload bytes held at most, give or take one entry per position (R13).
    pub bytes_max: usize,
    /// First wait before a member is asked again.
    pub retry_initial: Duration,
    /// Longest such wait.
    pub retry_max: Duration,
    /// Unanswered for this long: asked again.
    pub answer_timeout: Duration,
    /// The attempt gives up after this long.
    pub deadline: Duration,
    /// When it is, for a recorded loss.
    pub now_ms: TimestampMs,
    /// A rule that is switched off, so that a test can show that it is needed.
    pub mutation: Mutation,
}

impl RecoveryConfig {
    /// A strict attempt with the client's times and limits.
    pub fn new(
        cell: CellId,
        ledger: LedgerId,
        config: &ClientConfig,
        nonces: [[u8; 16]; 2],
    ) -> Self {
        Self {
            cell,
            ledger,
            policy: Policy::Strict,
            part: Txn::default(),
            nonces,
            read_ahead: config.recovery_read_ahead.max(1),
            bytes_max: config.recovery_bytes_max,
            retry_initial: config.retry_initial,
            retry_max: config.retry_max,
            answer_timeout: config.read_timeout,
            deadline: config.recovery_deadline,
            now_ms: 0,
            mutation: config.mutation,
        }
    }
}

/// What happened.
#[derive(Debug)]
pub enum RecoveryEvent {
    /// Begin (R1).
    Start,
    /// The answer to [`RecoveryEffect::ReadMetadata`].
    MetadataRead(Result<Option<Versioned>, MetadataError>),
    /// The answer to [`RecoveryEffect::Commit`].
    MetadataAnswer(Result<TxnOutcome, MetadataError>),
    /// The answer to [`BookieAsk::Fence`].
    Fenced {
        /// Position in the frozen ensemble.
        position: usize,
        /// What.
        result: Result<FenceAnswer, BookieError>,
    },
    /// The answer to [`BookieAsk::Read`].
    Read {
        /// Position in the ensemble of the entry's fragment.
        position: usize,
        /// The entry.
        entry: EntryId,
        /// What.
        result: Result<RecoveryReadAnswer, BookieError>,
    },
    /// The answer to [`BookieAsk::Add`].
    Added {
        /// Position in the ensemble that the entry is written back to.
        position: usize,
        /// The entry.
        entry: EntryId,
        /// Who was asked.
        from: Member,
        /// What.
        result: Result<(), BookieError>,
    },
    /// The answer to [`RecoveryEffect::ListBookies`]; among equals the first is taken, so the order should be random.
    Listed(Result<Vec<Candidate>, MetadataError>),
    /// Time passed: [`super::RecoveryCore::next_wakeup`] is reached.
    Tick,
}

/// A question to a member.
#[derive(Debug, Clone)]
pub enum BookieAsk {
    /// Fence it (R4).
    Fence(FenceRequest),
    /// Read one entry, fencing first (R6).
    Read(RecoveryReadRequest),
    /// Write back one entry (R8).
    Add(AddRequest),
}

/// What the shell must do.
#[derive(Debug)]
pub enum RecoveryEffect {
    /// Read this key linearizably.
    ReadMetadata(String),
    /// Send this transaction.
    Commit(Txn),
    /// Ask a member.
    Ask {
        /// Position; goes back with the answer.
        position: usize,
        /// Whom.
        member: Member,
        /// What.
        ask: BookieAsk,
    },
    /// List the bookies that may be placed.
    ListBookies,
    /// The attempt is over: the closed ledger, or why not. Nothing follows.
    Done(Result<LedgerMetadata, RecoverError>),
}
