//! Why a ledger was not recovered, read or deleted.

use std::time::Duration;

use bookie_metadata::MetadataError;
use hulse_proto::error::ErrorKind;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{LedgerMetadataError, LedgerState};

use super::shared::{GuardFailed, MemberAnswers, metadata_kind};

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
    /// Too many members have lost what the entry was: whatever the others say, only an operator's word helps (storage.md R14).
    #[error("entry {entry} of ledger {ledger} is damaged or lost on too many members: {members}")]
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
    /// An operator's word sealed the ledger for good, and what lies below its end could not be looked at. Saying it again looks.
    #[error(
        "ledger {ledger} is sealed at entry {end} for good, but whether entries below are lost, too, could not be found out: {why}"
    )]
    SealedUnread {
        /// The ledger.
        ledger: LedgerId,
        /// Its exclusive end.
        end: EntryId,
        /// Why not.
        why: Box<RecoverError>,
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
            Self::SealedUnread { .. } => ErrorKind::Unavailable,
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

/// Why a ledger was not settled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    /// No such ledger (any more).
    #[error("ledger {ledger} does not exist")]
    NotFound {
        /// The ledger.
        ledger: LedgerId,
    },
    /// Only closed log ledgers are settled.
    #[error("ledger {ledger} is not a closed log ledger")]
    NotClosed {
        /// The ledger.
        ledger: LedgerId,
    },
    /// The caller's compares did not hold, or the ledger changed again and again.
    #[error("ledger {ledger} was not settled: {guard}")]
    Conflict {
        /// The ledger.
        ledger: LedgerId,
        /// The compares as they were.
        guard: GuardFailed,
    },
    /// The store.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

impl SettleError {
    /// What the caller should do, in the words that all layers share.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::NotClosed { .. } | Self::Conflict { .. } => ErrorKind::Conflict,
            Self::Metadata(error) => metadata_kind(error),
        }
    }
}
