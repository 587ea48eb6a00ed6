//! What the writer core is told, and what it wants done.

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::{MetadataError, TxnOutcome, Versioned};
use hulse_proto::bookie::{AddRequest, Address, BookieError};
use hulse_proto::entry::{EntryDigest, NewEntry};
use hulse_proto::id::{CellId, EntryId, LedgerId, Offset};
use hulse_proto::ledger::{ClosedTotals, Degraded, LedgerKind, Member, Quorums};
use hulse_proto::mutant::Mutation;

use crate::config::ClientConfig;
use crate::directory::Candidate;
use crate::error::{AppendError, WriterEnd};
use crate::metadata::ProposalStep;

/// What a writer core must know from the start.
#[derive(Debug, Clone)]
pub struct WriterConfig {
    /// The cluster.
    pub cell: CellId,
    /// The ledger; empty and open in metadata.
    pub ledger: LedgerId,
    /// Log or state.
    pub kind: LedgerKind,
    /// Offset of the first record.
    pub base_offset: Offset,
    /// E, Qw, Qa.
    pub quorums: Quorums,
    /// The committed ensemble, E members.
    pub ensemble: Vec<Member>,
    /// Unconfirmed for this long: the writer ends.
    pub add_timeout: Duration,
    /// Unanswered for this long: sent again.
    pub answer_timeout: Duration,
    /// First wait before a member is tried again.
    pub retry_initial: Duration,
    /// Longest such wait.
    pub retry_max: Duration,
    /// Late entries are kept this long (storage.md W12).
    pub late_time_max: Duration,
    /// Late entries are kept up to this many bytes.
    pub late_bytes_max: usize,
    /// The nonce of the metadata that `ensemble` comes from.
    pub writer_nonce: [u8; 16],
    /// A survey older than this proves nothing (storage.md, amended W8a).
    pub metadata_fresh: Duration,
    /// Blocked by read-only members for this long: the ledger is full (storage.md D1).
    pub full_patience: Duration,
    /// Fragments of a worn ledger (storage.md W15).
    pub worn_fragments: usize,
    /// Changes within a minute of a worn ledger.
    pub worn_changes: usize,
    /// A rule that is switched off, so that a test can show that it is needed.
    pub mutation: Mutation,
}

impl WriterConfig {
    /// Takes times and limits from the client's config; quorums and ensemble are the ledger's.
    pub fn new(
        cell: CellId,
        ledger: LedgerId,
        metadata: &hulse_proto::ledger::LedgerMetadata,
        config: &ClientConfig,
    ) -> Self {
        Self {
            cell,
            ledger,
            kind: metadata.kind,
            base_offset: metadata.base_offset,
            quorums: metadata.quorums,
            ensemble: metadata.last_fragment().ensemble.clone(),
            add_timeout: config.add_timeout,
            answer_timeout: config.answer_timeout,
            retry_initial: config.retry_initial,
            retry_max: config.retry_max,
            late_time_max: config.late_time_max,
            late_bytes_max: config.late_bytes_max,
            writer_nonce: metadata.writer_nonce,
            metadata_fresh: config.metadata_fresh,
            full_patience: config.full_patience,
            worn_fragments: config.worn_fragments,
            worn_changes: config.worn_changes,
            mutation: config.mutation,
        }
    }
}

/// One add on its way to one member.
#[derive(Debug, Clone)]
pub struct AddCall {
    /// Position in the ensemble.
    pub position: usize,
    /// The position's attempt; goes back with the answer.
    pub attempt: u32,
    /// Whom to call.
    pub member: Member,
    /// What to ask.
    pub request: AddRequest,
}

impl AddCall {
    /// What must come back with the answer (storage.md W3).
    pub fn tag(&self) -> AddTag {
        AddTag {
            position: self.position,
            attempt: self.attempt,
            from: self.member.clone(),
            address: self.request.to,
            entry: self.request.entry.header().entry,
            digest: self.request.entry.header().digest(),
        }
    }
}

/// Identifies the add that an answer belongs to: all that storage.md W3 compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddTag {
    /// Position in the ensemble.
    pub position: usize,
    /// The position's attempt.
    pub attempt: u32,
    /// Who answers.
    pub from: Member,
    /// Cell, incarnation and ledger as asked.
    pub address: Address,
    /// The entry.
    pub entry: EntryId,
    /// Its content.
    pub digest: EntryDigest,
}

/// What happened.
#[derive(Debug)]
pub enum WriterEvent {
    /// The owner appends; it was admitted by a [`super::Sequence`].
    Append(NewEntry),
    /// A member answered, or its transport did.
    Answer {
        /// Which add.
        tag: AddTag,
        /// What.
        result: Result<(), BookieError>,
    },
    /// Time passed: [`super::WriterCore::next_wakeup`] is reached.
    Tick,
    /// No more appends will come: drain (storage.md W13).
    Stop,
    /// The close is about to be sent: nothing is confirmed any more.
    Freeze,
    /// The close is committed (storage.md W14).
    CloseCommitted,
    /// The close was refused or stays unknown.
    CloseFailed(WriterEnd),
    /// A read of metadata showed that the ledger is no longer this writer's.
    MetadataChanged,
    /// These bookies stay. A member that is none of them is to be replaced, also while nothing is written (storage.md C7).
    Staying(Arc<[Member]>),
    /// The answer to [`WriterEffect::Survey`].
    Surveyed(Result<Survey, MetadataError>),
    /// The answer to [`WriterEffect::Metadata`] with a send.
    MetadataAnswer(Result<TxnOutcome, MetadataError>),
    /// The answer to [`WriterEffect::Metadata`] with a read.
    MetadataRead(Result<Option<Versioned>, MetadataError>),
}

/// What an ensemble change begins with.
#[derive(Debug)]
pub struct Survey {
    /// The ledger's key, read linearizably after the survey was asked for.
    pub found: Option<Versioned>,
    /// Bookies that may be placed; among equals the first is taken, so their order should be random.
    pub candidates: Vec<Candidate>,
    /// Fresh.
    pub nonce: [u8; 16],
}

/// What the shell must do, in this order.
#[derive(Debug)]
pub enum WriterEffect {
    /// Call a member.
    Send(AddCall),
    /// Drop the answers of everything sent to this position so far: it will be sent again.
    Forget {
        /// Position in the ensemble.
        position: usize,
    },
    /// Answer this append with success; comes in entry order (storage.md W5).
    Confirmed {
        /// The entry.
        entry: EntryId,
    },
    /// Answer this append with an error; comes in entry order.
    Failed {
        /// The entry.
        entry: EntryId,
        /// Why.
        error: AppendError,
    },
    /// A current member says that metadata does not name it: read the ledger's key (amended B2).
    CheckMetadata,
    /// Read the ledger's key and list the candidates, within `metadata_fresh`: a member should be replaced (W8).
    Survey,
    /// Send, or read, for an ensemble change; at once.
    Metadata(ProposalStep),
    /// After [`WriterEvent::Stop`]: nothing more can be waited for.
    Drained,
    /// The answer to [`WriterEvent::Freeze`]: what to write into metadata.
    Frozen(Sealing),
    /// Entries are given up at one member (storage.md W12).
    Released {
        /// Who lacks it.
        member: Member,
        /// The entry.
        entry: EntryId,
    },
    /// Members refuse the head because they are read-only, so that no ack quorum is left, and nobody can take their places: the
    /// owner should close the ledger at its confirmed end (amended D1). Said once.
    Full {
        /// What the members say, for a person.
        why: String,
    },
    /// A member holds the entry with other bytes (storage.md B7): a bug, or corruption.
    Conflicted {
        /// Who.
        member: Member,
        /// The entry.
        entry: EntryId,
        /// What this writer sent.
        digest: EntryDigest,
    },
    /// The writer has ended: say so at once; open appends are still being answered.
    Ended(WriterEnd),
}

/// What a close writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealing {
    /// End and totals at LAC + 1.
    pub totals: ClosedTotals,
    /// Entries below the end that lack copies.
    pub degraded: Vec<Degraded>,
}
