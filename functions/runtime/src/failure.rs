//! Why a task ends, and why an operator refuses an epoch.

use crate::codec::CodecError;
use crate::id::{Fingerprint, InputPartition};

/// Why an operator could not compute an epoch. Errors of users are deterministic and are never tried again (compute.md B10).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// A limit of the task is spent. The epoch is tried again with fewer records while there are several.
    #[error(
        "{needed} exceeds {limit} = {max}; raise it, or make the function's state or output smaller"
    )]
    OverLimit {
        /// Field of [`crate::Limits`].
        limit: &'static str,
        /// Its value.
        max: usize,
        /// What was needed at least.
        needed: usize,
    },
    /// The function cannot go on, whatever the records.
    #[error("{message}")]
    Failed {
        /// What and why.
        message: String,
    },
}

/// Why a task ended. None of these heals by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskFailure {
    /// Another instance of the task took over. Its transaction in flight, if any, is that one's to resolve.
    #[error("another worker took over {task}")]
    Fenced {
        /// The transactional id.
        task: String,
    },
    /// Changelog and group disagree on what is consumed; going on would lose or repeat records. Nothing was written.
    #[error(
        "partition {partition}: the changelog says next offset {changelog:?}, the group {group:?}; reset the function"
    )]
    OffsetsDisagree {
        /// The first partition that differs.
        partition: InputPartition,
        /// Of the last epoch in the changelog.
        changelog: Option<u64>,
        /// As committed for the group.
        group: Option<u64>,
    },
    /// The state was written by another version of the function.
    #[error(
        "state has fingerprint {stored}, the function {expected}; reset or replay the function"
    )]
    OtherFunction {
        /// In the changelog or snapshot.
        stored: Fingerprint,
        /// Of the operator that runs.
        expected: Fingerprint,
    },
    /// The changelog or a snapshot is damaged.
    #[error("state cannot be read: {0}")]
    Corrupt(#[from] CodecError),
    /// The changelog lacks epochs, or names a snapshot that is not there.
    #[error("state is incomplete: {what}")]
    Incomplete {
        /// What is missing.
        what: String,
    },
    /// A record failed and the policy is `fail`.
    #[error("record {partition}@{offset}: {kind}: {message}")]
    Record {
        /// Where it was read.
        partition: InputPartition,
        /// There.
        offset: u64,
        /// Word for the kind of error.
        kind: &'static str,
        /// What and why.
        message: String,
    },
    /// Too many records of one epoch failed.
    #[error(
        "{failed} of {rows} records of an epoch failed, more than error_permille_max allows; the first: {first}"
    )]
    TooManyErrors {
        /// Records that failed.
        failed: usize,
        /// Records of the epoch.
        rows: usize,
        /// Message of the first.
        first: String,
    },
    /// The operator refused.
    #[error(transparent)]
    Operator(#[from] OperatorError),
}
