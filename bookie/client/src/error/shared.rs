//! What the errors of several operations say.

use std::fmt;

use bookie_metadata::{MetadataError, Versioned};
use hulse_proto::bookie::BookieError;
use hulse_proto::error::ErrorKind;
use hulse_proto::id::NodeName;

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

pub(super) fn metadata_kind(error: &MetadataError) -> ErrorKind {
    match error {
        MetadataError::Unavailable { .. } => ErrorKind::Unavailable,
        MetadataError::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
        MetadataError::Compacted { .. } | MetadataError::LeaseEnded(_) => ErrorKind::Conflict,
        MetadataError::Invalid { .. } => ErrorKind::Internal,
        MetadataError::Corrupt { .. } => ErrorKind::Corrupt,
    }
}
