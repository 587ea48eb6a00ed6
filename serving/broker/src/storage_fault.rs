//! What the ledger client's errors mean to users of a partition: the one place where they become faults.

use std::time::Duration;

use bookie_client::{AppendError, CreateError, DeleteError, ReadError, RecoverError};
use bookie_metadata::MetadataError;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::LedgerId;

use crate::log::ChainError;

/// What a producer is advised to wait for room.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// A read from a ledger.
pub(crate) fn read(ledger: LedgerId, error: &ReadError) -> Fault {
    match error {
        ReadError::Damaged { .. } => damaged(ledger, error),
        ReadError::Deleted { .. } => Fault::new(
            Reason::OffsetOutOfRange,
            format!("{error}; its records were trimmed while they were being read"),
        ),
        ReadError::NotConfirmed { .. } => Fault::new(Reason::Internal, error.to_string()),
        ReadError::Unavailable { .. } => {
            Fault::new(Reason::StorageUnavailable, format!("{error}; retry"))
        }
    }
}

/// An append of unknown fate, or one that should not have failed: the partition stops, a snapshot is tried again. What a closed
/// or full log ledger refuses does not come here.
pub(crate) fn append(error: &AppendError) -> Fault {
    Fault::new(Reason::StorageUnknown, error.to_string())
}

/// A ledger that could not be made.
pub(crate) fn create(error: &CreateError) -> Fault {
    let reason = match error {
        CreateError::NotEnoughBookies { .. } if error.is_full() => return full(&error.to_string()),
        CreateError::NotEnoughBookies { .. } => Reason::NotEnoughBookies,
        CreateError::Conflict(_) => Reason::PartitionMoved,
        CreateError::Metadata(error) => return metadata(error),
        CreateError::OutcomeUnknown { .. } => Reason::MetadataUnknown,
    };
    Fault::new(reason, error.to_string())
}

/// True when a ledger could not be made for want of bookies only: it may be tried again later.
pub(crate) fn is_no_room(error: &CreateError) -> bool {
    matches!(error, CreateError::NotEnoughBookies { .. })
}

/// Records are refused because the disks are full (storage.md, amended D1).
pub(crate) fn full(why: &str) -> Fault {
    let words = format!(
        "storage is full: too few bookies take records, and nothing of this was stored ({why}); delete topics, shorten their retention, enlarge the disks or add bookies, and producing goes on by itself"
    );
    Fault::new(Reason::StorageFull, words).retry_after(FULL_RETRY)
}

/// A recovery: during take-over, or of a state ledger that is to go.
pub(crate) fn recover(ledger: LedgerId, error: &RecoverError) -> Fault {
    match error {
        RecoverError::Damaged { .. }
        | RecoverError::Corrupt { .. }
        | RecoverError::Unreadable { .. } => damaged(ledger, error),
        RecoverError::Conflict(_) | RecoverError::Superseded { .. } => Fault::new(
            Reason::PartitionMoved,
            format!("another broker is taking the partition over: {error}"),
        ),
        RecoverError::Unavailable { .. } => {
            Fault::new(Reason::StorageUnavailable, format!("{error}; retry"))
        }
        RecoverError::SealedUnread { .. } => Fault::new(
            Reason::StorageUnavailable,
            format!("{error}; the same command again looks once more"),
        ),
        RecoverError::Metadata(error) => metadata(error),
        RecoverError::NotFound { .. } | RecoverError::Deleting { .. } => Fault::new(
            Reason::TopicDeleting,
            format!("{error}: the partition is being deleted"),
        ),
    }
}

/// A deletion.
pub(crate) fn delete(error: &DeleteError) -> Fault {
    match error {
        DeleteError::Metadata(error) => metadata(error),
        DeleteError::Conflict(_) => Fault::new(Reason::PartitionMoved, error.to_string()),
        DeleteError::NotClosed { .. } | DeleteError::Unavailable { .. } => Fault::new(
            Reason::StorageUnavailable,
            format!("{error}; it is resumed later"),
        ),
        DeleteError::Unreadable { .. } => Fault::new(Reason::DataDamaged, error.to_string()),
    }
}

/// The metadata store.
pub(crate) fn metadata(error: &MetadataError) -> Fault {
    let reason = match error {
        MetadataError::Unavailable { .. }
        | MetadataError::Compacted { .. }
        | MetadataError::LeaseEnded(_) => Reason::MetadataUnavailable,
        MetadataError::OutcomeUnknown { .. } => Reason::MetadataUnknown,
        MetadataError::Invalid { .. } => Reason::Internal,
        MetadataError::Corrupt { .. } => Reason::DataDamaged,
    };
    Fault::new(reason, error.to_string())
}

/// A chain.
pub(crate) fn chain(error: &ChainError) -> Fault {
    match error {
        ChainError::Metadata(error) => metadata(error),
        ChainError::Corrupt { .. } => Fault::new(Reason::DataDamaged, error.to_string()),
        ChainError::Changed { .. } => Fault::new(Reason::PartitionMoved, error.to_string()),
    }
}

/// Bytes that nobody can give any more.
pub(crate) fn damaged(ledger: LedgerId, why: &dyn std::fmt::Display) -> Fault {
    let message = format!(
        "ledger {ledger} is damaged: {why}; bring its disk back, or give the records up with `hulse ledgers accept-loss {ledger}`"
    );
    Fault::new(Reason::DataDamaged, message).with("ledger", ledger)
}
