//! What goes into the machines of tiering and what comes out.

use hulse_proto::id::{LedgerId, SegmentId};
use hulse_proto::ledger::{LedgerMetadata, Member};
use hulse_proto::tier::{Attempt, Segment};

use super::mutant::TierMutation;
use super::sweep::SweepReport;
use crate::format::FormatError;
use crate::segment::{SegmentError, Written};

/// The version of a ledger's key, as its store counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A ledger's metadata as read, linearizably; `None`: there is no such key.
pub type Found = Option<(LedgerMetadata, Version)>;

/// Random numbers, new with each look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fresh {
    /// For an attempt that may begin now.
    pub segment: SegmentId,
    /// For a change that may be proposed now.
    pub nonce: [u8; 16],
}

/// Bounds of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierLimits {
    /// Changes that lose a race are made anew so often.
    pub tries_max: u32,
    /// For tests: a rule that is switched off.
    pub mutation: TierMutation,
}

impl Default for TierLimits {
    fn default() -> Self {
        Self {
            tries_max: 8,
            mutation: TierMutation::default(),
        }
    }
}

/// A change of one ledger's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub ledger: LedgerId,
    /// The version that it replaces.
    pub version: Version,
    /// What stands there then; `None`: nothing.
    pub value: Option<Box<LedgerMetadata>>,
}

/// An object to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadOrder {
    /// Its name.
    pub attempt: Attempt,
    /// What goes into it, in order.
    pub ledgers: Vec<(LedgerId, LedgerMetadata)>,
}

/// An object that was sent, as the store took it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uploaded {
    /// What was written.
    pub written: Written,
    /// What the store calls it; empty when it says nothing.
    pub etag: String,
}

/// Why the store did not do as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// There is no such object.
    #[error("object {object} is not there")]
    Absent {
        /// Which.
        object: String,
    },
    /// It is there and is not what was written.
    #[error("object {object} is damaged: {error}")]
    Damaged {
        /// Which.
        object: String,
        /// How.
        error: FormatError,
    },
    /// It is of another length.
    #[error("object {object} has {found} bytes, {expected} were written")]
    Length {
        /// Which.
        object: String,
        /// There.
        found: u64,
        /// Needed.
        expected: u64,
    },
    /// The bucket is not one of this process's configuration.
    #[error("no bucket is configured as {bucket}: add it to [tier]")]
    NoBucket {
        /// The name that was asked for.
        bucket: String,
    },
    /// It did not answer, or not as it should. A write may have been done, or may yet be.
    #[error("object store: {why}")]
    Unavailable {
        /// What it said.
        why: String,
    },
}

impl ObjectError {
    /// True when the object itself is wrong or missing: asking again does not help.
    pub fn is_proof(&self) -> bool {
        match self {
            Self::Absent { .. } | Self::Damaged { .. } | Self::Length { .. } => true,
            Self::NoBucket { .. } | Self::Unavailable { .. } => false,
        }
    }

    /// What the caller should do, in the words that all layers share.
    pub fn kind(&self) -> hulse_proto::error::ErrorKind {
        use hulse_proto::error::ErrorKind;
        match self {
            Self::Absent { .. } => ErrorKind::NotFound,
            Self::Damaged { .. } | Self::Length { .. } => ErrorKind::Corrupt,
            Self::NoBucket { .. } => ErrorKind::Invalid,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
        }
    }
}

/// Why an object was not made. Something of it may be there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UploadError {
    /// What the bookies gave is not the ledger.
    #[error(transparent)]
    Content(#[from] SegmentError),
    /// The ledger could not be read.
    #[error("ledger {ledger} cannot be read: {why}")]
    Source {
        /// Which.
        ledger: LedgerId,
        /// Why.
        why: String,
    },
    /// The store did not take it.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// Objects to be deleted, and which ledgers must not be read from them by then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// Which.
    pub attempts: Vec<Attempt>,
}

/// What a machine wants done. One at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TierEffect {
    /// Read these keys linearizably, each after this was asked for.
    Look(Vec<LedgerId>),
    /// Make these changes in one transaction, or none of them.
    Propose(Vec<Change>),
    /// Make an object.
    Upload(Box<UploadOrder>),
    /// Compare an object with what was sent: length, trailer, directory, indexes (O5).
    Verify(Attempt, Box<Uploaded>),
    /// Read a ledger's blocks through the way that readers go (O8).
    ReadBack(LedgerId, Box<Segment>),
    /// Have these bookies drop their copies of a ledger.
    DropCopies(LedgerId, Vec<Member>),
    /// Delete objects; one that is not there is deleted.
    Delete(Deletion),
    /// List the next objects of a bucket, after this name.
    List(Option<String>),
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TierEvent {
    /// In the order that was asked.
    Looked(Vec<Found>, Fresh),
    /// Metadata did not answer a look.
    Blind(String),
    /// The changes are made.
    Committed,
    /// A compare did not hold; nothing was changed, and nothing will be.
    Beaten,
    /// The outcome is unknown.
    Silent(String),
    /// An upload ended.
    Uploaded(Result<Box<Uploaded>, UploadError>),
    /// Of [`TierEffect::Verify`], [`TierEffect::ReadBack`] and [`TierEffect::Delete`].
    Object(Result<(), ObjectError>),
    /// All bookies dropped their copies, or why not.
    Dropped(Result<(), String>),
    /// Names and lengths of objects, in order; empty: there are no more.
    Listed(Result<Vec<(String, u64)>, ObjectError>),
}

/// How a machine ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TierEnd {
    /// It is done.
    Done {
        /// Bytes that were sent.
        bytes: u64,
    },
    /// There is nothing to do any more.
    Needless,
    /// The ledger's segment was bad and stands for it no more; its copies are still there.
    Withdrawn(ObjectError),
    /// A sweep ended.
    Swept(Box<SweepReport>),
    /// It is not done.
    Failed(TierFailure),
}

/// Why a machine could not go on. What it left behind is found by the next one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TierFailure {
    /// The ledger changes under it again and again.
    #[error("the ledger changes meanwhile")]
    Changing,
    /// So many attempts failed that their objects must be deleted first.
    #[error("objects of earlier attempts are not deleted yet")]
    Garbage,
    /// The ledger is not marked as being deleted.
    #[error("the ledger is not marked as deleting")]
    NotMarked,
    /// The name of an object does not say whose it is, so it cannot be known who reads it.
    #[error("{0} is not the name of a segment")]
    Name(String),
    /// Metadata did not answer.
    #[error("metadata: {0}")]
    Metadata(String),
    /// No object was made.
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// The store.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Bookies did not drop their copies.
    #[error("copies are not dropped: {0}")]
    Copies(String),
    /// Metadata do not know ledgers that have objects: they are not this cell's, or an older copy of it (Z6).
    #[error(
        "metadata have not given the number of ledger {0}, which has objects: nothing is deleted"
    )]
    Unknown(LedgerId),
    /// So many objects have no owner that something must be wrong (G3).
    #[error("{0} objects have no owner, which is too many at once: nothing is deleted")]
    Breaker(u64),
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Do this and tell.
    Do(TierEffect),
    /// It ended.
    End(TierEnd),
}

impl Step {
    pub(super) fn look(ledgers: &[LedgerId]) -> Self {
        Self::Do(TierEffect::Look(ledgers.to_vec()))
    }

    pub(super) fn failed(failure: impl Into<TierFailure>) -> Self {
        Self::End(TierEnd::Failed(failure.into()))
    }

    /// An answer that does not belong to what was asked: the driver's mistake, which must not become ours.
    pub(super) fn out_of_turn() -> Self {
        Self::failed(TierFailure::Changing)
    }
}
