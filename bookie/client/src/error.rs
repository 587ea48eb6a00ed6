//! Why an operation on a ledger did not succeed: one enum per operation.
//!
//! Each says what the caller does (`kind`) and whether the operation may have taken effect (`fate`).

use std::fmt;
use std::time::Duration;

use bookie_metadata::{MetadataError, Versioned};
use hulse_proto::bookie::BookieError;
use hulse_proto::error::{ErrorKind, Fate};
use hulse_proto::id::{EntryId, FenceToken, LedgerId, NodeName, Offset};
use hulse_proto::ledger::{LedgerMetadataError, LedgerState};

/// How a writer came to its end (storage.md W6). Final.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriterEnd {
    /// The owner closed or rolled it.
    #[error("ledger {ledger} was closed by its writer")]
    Closed {
        /// The ledger.
        ledger: LedgerId,
    },
    /// A recoverer fenced the ledger: another owner is at work.
    #[error("ledger {ledger} is fenced by token {token}")]
    Fenced {
        /// The ledger.
        ledger: LedgerId,
        /// The token that stands.
        token: FenceToken,
    },
    /// The ledger was deleted.
    #[error("ledger {ledger} is deleted")]
    Deleted {
        /// The ledger.
        ledger: LedgerId,
    },
    /// A member belongs to another cluster.
    #[error("a member of ledger {ledger} belongs to another cell")]
    WrongCell {
        /// The ledger.
        ledger: LedgerId,
    },
    /// Somebody else changed the ledger's metadata: it is no longer this writer's.
    #[error("metadata of ledger {ledger} was changed by another")]
    MetadataChanged {
        /// The ledger.
        ledger: LedgerId,
    },
    /// Entries could not be confirmed in time, or a close is unresolved: what is unconfirmed may be in the log or not.
    #[error("outcome of the last appends to ledger {ledger} is unknown: {why}")]
    OutcomeUnknown {
        /// The ledger.
        ledger: LedgerId,
        /// Words for a person.
        why: String,
    },
}

impl WriterEnd {
    /// What the caller does.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Closed { .. } => ErrorKind::Conflict,
            Self::Fenced { .. } | Self::Deleted { .. } | Self::MetadataChanged { .. } => {
                ErrorKind::Fenced
            }
            Self::WrongCell { .. } => ErrorKind::Internal,
            Self::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
        }
    }
}

/// Why an entry certainly is not in the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotWritten {
    /// The in-flight limits are reached (storage.md W2); ask `has_room` first.
    #[error("in-flight limits of the writer are reached")]
    NoRoom,
    /// Its first offset does not follow the last entry's (storage.md W1).
    #[error("entry begins at offset {found}, expected {expected}")]
    OffsetGap {
        /// The next offset of the ledger.
        expected: Offset,
        /// The entry's.
        found: Offset,
    },
    /// The ledger is being closed or was closed below this entry (storage.md W13).
    #[error("ledger {ledger} is closed at entry {end}")]
    Closed {
        /// The ledger.
        ledger: LedgerId,
        /// Exclusive end; when still being closed: what was appended so far.
        end: EntryId,
    },
}

/// Why an append did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// It certainly is not and never will be in the log.
    #[error("entry was not written: {why}")]
    NotWritten {
        /// Why.
        why: NotWritten,
    },
    /// It may be in the log; a recoverer decides.
    #[error("entry {entry} of ledger {ledger} may be written: {why}")]
    OutcomeUnknown {
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: EntryId,
        /// How the writer ended.
        why: WriterEnd,
    },
    /// A recoverer fenced the ledger while this entry was in flight; it may be in the log.
    #[error("ledger {ledger} was fenced by token {token} while entry {entry} was in flight")]
    Fenced {
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: EntryId,
        /// The token that stands.
        token: FenceToken,
    },
    /// The entry is longer than `ENTRY_BYTES_MAX`. Nothing was written.
    #[error("entry of {bytes} bytes is longer than {max}")]
    TooLarge {
        /// Header and payload.
        bytes: usize,
        /// Allowed.
        max: usize,
    },
    /// The writer had ended before. Nothing was written.
    #[error("writer has ended: {0}")]
    Ended(WriterEnd),
}

impl AppendError {
    /// What the caller does.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotWritten { why } => match why {
                NotWritten::NoRoom => ErrorKind::Overloaded,
                NotWritten::OffsetGap { .. } => ErrorKind::Internal,
                NotWritten::Closed { .. } => ErrorKind::Unavailable,
            },
            Self::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
            Self::Fenced { .. } => ErrorKind::Fenced,
            Self::TooLarge { .. } => ErrorKind::Invalid,
            Self::Ended(end) => end.kind(),
        }
    }

    /// Whether the entry may be in the log.
    pub fn fate(&self) -> Fate {
        match self {
            Self::OutcomeUnknown { .. } | Self::Fenced { .. } => Fate::Unknown,
            Self::NotWritten { .. } | Self::TooLarge { .. } | Self::Ended(_) => Fate::NotApplied,
        }
    }
}

/// The caller's own compares did not hold: it is not the owner any more (storage.md P5), or looked too early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardFailed {
    /// Each compared key as it is, the ledger's keys first; empty when it was learnt by a later read.
    pub current: Vec<Option<Versioned>>,
}

impl fmt::Display for GuardFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a compare of the transaction did not hold")
    }
}

/// Why a ledger was not created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// Too few bookies for the quorums (storage.md M5). Nothing was changed.
    #[error(
        "{live} bookies of {registered} are usable; an ack quorum of {ack} and an ensemble of {ensemble} are needed"
    )]
    NotEnoughBookies {
        /// Live, and writable where that is needed.
        live: usize,
        /// Registered at all.
        registered: usize,
        /// Qa.
        ack: u32,
        /// E.
        ensemble: u32,
    },
    /// A compare did not hold. Nothing was changed.
    #[error("ledger was not created: {0}")]
    Conflict(GuardFailed),
    /// Metadata did not answer or refused. Nothing was changed.
    #[error("ledger was not created: {0}")]
    Metadata(#[from] MetadataError),
    /// The transaction may or may not have been applied, or may yet be; never delete the ledger (storage.md M6).
    #[error("outcome of creating ledger {ledger} is unknown: {why}")]
    OutcomeUnknown {
        /// Its number.
        ledger: LedgerId,
        /// Words for a person.
        why: String,
    },
}

impl CreateError {
    /// What the caller does.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotEnoughBookies { .. } => ErrorKind::Unavailable,
            Self::Conflict(_) => ErrorKind::Fenced,
            Self::Metadata(error) => metadata_kind(error),
            Self::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
        }
    }

    /// Whether the ledger may exist.
    pub fn fate(&self) -> Fate {
        match self {
            Self::OutcomeUnknown { .. } => Fate::Unknown,
            _ => Fate::NotApplied,
        }
    }
}

/// Why a ledger was not rolled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RollError {
    /// Nothing was begun; the old writer goes on (storage.md W15: limits are soft while metadata is silent).
    #[error("roll was not started, the ledger stays open: {0}")]
    NotStarted(CreateError),
    /// The old writer had ended, or ended while it drained.
    #[error("roll is not possible: {0}")]
    Ended(WriterEnd),
    /// A compare did not hold; nothing was changed and the old writer is dead.
    #[error("roll was refused: {0}")]
    Conflict(GuardFailed),
    /// May or may not have been applied; the old writer is dead, this owner must stop (storage.md W14).
    #[error("outcome of rolling ledger {ledger} is unknown: {why}")]
    OutcomeUnknown {
        /// The old ledger.
        ledger: LedgerId,
        /// Words for a person.
        why: String,
    },
}

impl RollError {
    /// What the caller does.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotStarted(error) => error.kind(),
            Self::Ended(end) => end.kind(),
            Self::Conflict(_) => ErrorKind::Fenced,
            Self::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
        }
    }
}

/// Why a ledger was not closed by its writer. The writer is dead in every case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloseError {
    /// The writer had ended, or ended while it drained.
    #[error("ledger cannot be closed by its writer: {0}")]
    Ended(WriterEnd),
    /// A compare did not hold: somebody else decides the ledger's end.
    #[error("close was refused: {0}")]
    Conflict(GuardFailed),
    /// May or may not have been applied; this owner must stop (storage.md W14).
    #[error("outcome of closing ledger {ledger} is unknown: {why}")]
    OutcomeUnknown {
        /// The ledger.
        ledger: LedgerId,
        /// Words for a person.
        why: String,
    },
}

impl CloseError {
    /// What the caller does.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Ended(end) => end.kind(),
            Self::Conflict(_) => ErrorKind::Fenced,
            Self::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
        }
    }
}

/// What one member said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberAnswer {
    /// Who.
    pub bookie: NodeName,
    /// What; `None`: nothing yet.
    pub error: Option<BookieError>,
}

/// The answers of all asked members, for a person.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberAnswers(pub Vec<MemberAnswer>);

impl fmt::Display for MemberAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, answer) in self.0.iter().enumerate() {
            let separator = if index > 0 { "; " } else { "" };
            match &answer.error {
                Some(error) => write!(f, "{separator}{}: {error}", answer.bookie)?,
                None => write!(f, "{separator}{}: not answered yet", answer.bookie)?,
            }
        }
        Ok(())
    }
}

/// Why a ledger was not recovered. Safe to repeat (storage.md R12).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// No such ledger (any more).
    #[error("ledger {ledger} does not exist")]
    NotFound {
        /// The ledger.
        ledger: LedgerId,
    },
    /// It is being deleted.
    #[error("ledger {ledger} is being deleted")]
    Deleting {
        /// The ledger.
        ledger: LedgerId,
    },
    /// The caller's compares did not hold.
    #[error("recovery was refused: {0}")]
    Conflict(GuardFailed),
    /// Another recoverer was faster again and again.
    #[error("ledger {ledger} is being recovered by another")]
    Superseded {
        /// The ledger.
        ledger: LedgerId,
    },
    /// Too few members answered within the deadline. Retry.
    #[error(
        "ledger {ledger} cannot be recovered now at entry {entry} within {deadline:?}: {members}"
    )]
    Unavailable {
        /// The ledger.
        ledger: LedgerId,
        /// Where it stands.
        entry: EntryId,
        /// The deadline that passed.
        deadline: Duration,
        /// What each member said.
        members: MemberAnswers,
    },
    /// Every member answered, and none can say what the entry is: only an operator's word helps (storage.md R14).
    #[error("entry {entry} of ledger {ledger} is damaged or lost on every member: {members}")]
    Damaged {
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: EntryId,
        /// What each member said.
        members: MemberAnswers,
    },
    /// What was read contradicts itself (storage.md R7): a bug or undetected corruption.
    #[error("entry {entry} of ledger {ledger} contradicts its predecessor: {why}")]
    Corrupt {
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: EntryId,
        /// Words for a person.
        why: String,
    },
    /// Metadata did not answer or refused.
    #[error("ledger was not recovered: {0}")]
    Metadata(#[from] MetadataError),
    /// The ledger's metadata cannot be read.
    #[error("metadata of ledger {ledger} cannot be read: {why}")]
    Unreadable {
        /// The ledger.
        ledger: LedgerId,
        /// Why.
        why: LedgerMetadataError,
    },
}

impl RecoverError {
    /// What the caller does.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } | Self::Deleting { .. } => ErrorKind::NotFound,
            Self::Conflict(_) => ErrorKind::Fenced,
            Self::Superseded { .. } | Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::Damaged { .. } | Self::Corrupt { .. } | Self::Unreadable { .. } => {
                ErrorKind::Corrupt
            }
            Self::Metadata(error) => metadata_kind(error),
        }
    }
}

/// Why entries were not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// At or above what may be read (storage.md B13).
    #[error("entry {entry} of ledger {ledger} is at or above its readable end {end}")]
    NotConfirmed {
        /// The ledger.
        ledger: LedgerId,
        /// Asked.
        entry: EntryId,
        /// Exclusive.
        end: EntryId,
    },
    /// The ledger is gone: look at its metadata again.
    #[error("ledger {ledger} is deleted")]
    Deleted {
        /// The ledger.
        ledger: LedgerId,
    },
    /// No copy is left on any member that was asked.
    #[error("entry {entry} of ledger {ledger} is damaged or missing on every member: {members}")]
    Damaged {
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: EntryId,
        /// What each member said.
        members: MemberAnswers,
    },
    /// Some member did not answer; retry.
    #[error("entry {entry} of ledger {ledger} cannot be read now: {members}")]
    Unavailable {
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: EntryId,
        /// What each member said.
        members: MemberAnswers,
    },
}

impl ReadError {
    /// What the caller does.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotConfirmed { .. } => ErrorKind::Conflict,
            Self::Deleted { .. } => ErrorKind::NotFound,
            Self::Damaged { .. } => ErrorKind::Corrupt,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
        }
    }
}

/// Why a ledger was not deleted. Repeating goes on where it stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeleteError {
    /// Only closed ledgers are deleted (storage.md M2): recover it first.
    #[error("ledger {ledger} is {state:?}, only a closed one can be deleted")]
    NotClosed {
        /// The ledger.
        ledger: LedgerId,
        /// Its state.
        state: LedgerState,
    },
    /// The caller's compares did not hold.
    #[error("deletion was refused: {0}")]
    Conflict(GuardFailed),
    /// It is marked, but not every member has confirmed its tombstone.
    #[error("ledger {ledger} is marked as deleted, but not by every member: {members}")]
    Unavailable {
        /// The ledger.
        ledger: LedgerId,
        /// What each member said that has not confirmed.
        members: MemberAnswers,
    },
    /// Metadata did not answer or refused.
    #[error("ledger was not deleted: {0}")]
    Metadata(#[from] MetadataError),
    /// The ledger's metadata cannot be read.
    #[error("metadata of ledger {ledger} cannot be read: {why}")]
    Unreadable {
        /// The ledger.
        ledger: LedgerId,
        /// Why.
        why: LedgerMetadataError,
    },
}

impl DeleteError {
    /// What the caller does.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotClosed { .. } => ErrorKind::Conflict,
            Self::Conflict(_) => ErrorKind::Fenced,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::Metadata(error) => metadata_kind(error),
            Self::Unreadable { .. } => ErrorKind::Corrupt,
        }
    }
}

fn metadata_kind(error: &MetadataError) -> ErrorKind {
    match error {
        MetadataError::Unavailable { .. } => ErrorKind::Unavailable,
        MetadataError::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
        MetadataError::Compacted { .. } | MetadataError::LeaseEnded(_) => ErrorKind::Conflict,
        MetadataError::Invalid { .. } => ErrorKind::Internal,
        MetadataError::Corrupt { .. } => ErrorKind::Corrupt,
    }
}
