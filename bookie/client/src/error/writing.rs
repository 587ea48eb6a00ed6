//! Why a ledger was not created, written, rolled or closed.

use bookie_metadata::MetadataError;
use hulse_proto::error::{ErrorKind, Fate};
use hulse_proto::id::{EntryId, FenceToken, LedgerId, Offset};

use super::shared::{GuardFailed, metadata_kind};

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
    /// The members are read-only, and nobody can take their places (storage.md, amended D1).
    #[error("bookies of ledger {ledger} are read-only")]
    Full {
        /// The ledger.
        ledger: LedgerId,
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
                NotWritten::Full { .. } | NotWritten::Closed { .. } => ErrorKind::Unavailable,
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

/// Why a ledger was not created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// Too few bookies for the quorums (storage.md M5). Nothing was changed.
    #[error(
        "{live} bookies of {registered} are usable, {read_only} take no records; an ack quorum of {ack} and an ensemble of {ensemble} are needed"
    )]
    NotEnoughBookies {
        /// Live, and writable where that is needed.
        live: usize,
        /// Live, and not writable where that is needed.
        read_only: usize,
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
    /// True when there are bookies enough, but too many of them take no records (storage.md, amended D1).
    pub fn is_full(&self) -> bool {
        match self {
            Self::NotEnoughBookies {
                live,
                read_only,
                registered,
                ack,
                ensemble,
            } => live + read_only >= *ack as usize && *registered >= *ensemble as usize,
            _ => false,
        }
    }

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
