//! An operator's word about a closed ledger (storage.md R14): entries that no member has any more are recorded as lost.
//!
//! A closed ledger keeps its state, its end and its totals for ever (M2, R10). The loss is written beside them: from its first entry
//! on, readers may pass over an entry that every member says it does not have, and over no other.

use std::sync::Arc;

use bookie_metadata::{MetadataError, Revision, Txn};
use hulse_proto::bookie::ReadClass;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Loss, LossKind, ledger_key};
use tokio::time::Instant;

use crate::error::{ReadError, RecoverError};
use crate::ledger_client::Inner;
use crate::metadata::{NonceField, NotCommitted, Proposal, commit, read_ledger};
use crate::reader::LedgerReader;

/// Bytes asked for at once while every entry is looked at.
const READ_BYTES: u32 = 8 << 20;

/// Reads a closed ledger and records where it begins to lack entries; unchanged when nothing more is missing than was known.
pub(crate) async fn accept(
    inner: &Arc<Inner>,
    ledger: LedgerId,
    (closed, version): (LedgerMetadata, Revision),
) -> Result<LedgerMetadata, RecoverError> {
    let first = first_lost(inner, ledger, &closed).await?;
    let known = |from: EntryId| closed.loss.is_some_and(|loss| loss.from <= from);
    let Some(from) = first.filter(|from| !known(*from)) else {
        return Ok(closed);
    };
    let lossy = LedgerMetadata {
        loss: Some(Loss {
            kind: LossKind::Accepted,
            from,
            at: inner.clock.now_ms(),
        }),
        recovery_nonce: inner.nonce(),
        ..closed
    };
    let proposal = Proposal::new(
        ledger_key(ledger),
        Some(version),
        &lossy,
        NonceField::Recovery,
        Txn::default(),
    );
    let deadline = Instant::now() + inner.config.metadata_deadline;
    match commit(&*inner.metadata, proposal, Some(deadline)).await {
        Ok(committed) => Ok(committed.metadata),
        Err(NotCommitted::Failed { .. }) => Err(RecoverError::Superseded { ledger }),
        Err(NotCommitted::Store(error)) => Err(error.into()),
        Err(NotCommitted::Unknown(why)) => Err(MetadataError::OutcomeUnknown { why }.into()),
    }
}

/// The same for a ledger that was sealed a moment ago.
pub(crate) async fn accept_below(
    inner: &Arc<Inner>,
    ledger: LedgerId,
) -> Result<LedgerMetadata, RecoverError> {
    match read_ledger(&*inner.metadata, ledger).await? {
        Some(sealed) if sealed.0.state == LedgerState::Closed => {
            accept(inner, ledger, sealed).await
        }
        Some(_) => Err(RecoverError::Deleting { ledger }),
        None => Err(RecoverError::NotFound { ledger }),
    }
}

/// The first entry that every member says it does not have; a silent member may have it, so its silence decides nothing.
async fn first_lost(
    inner: &Arc<Inner>,
    ledger: LedgerId,
    closed: &LedgerMetadata,
) -> Result<Option<EntryId>, RecoverError> {
    let reader = LedgerReader::new(inner.clone(), ledger, closed.clone());
    let end = closed.closed.map_or(EntryId(0), |totals| totals.end);
    let mut next = EntryId(0);
    while next < end {
        match reader.read(next, end, READ_BYTES, ReadClass::CatchUp).await {
            Ok(entries) => next = EntryId(next.0 + entries.len() as u64),
            Err(ReadError::Damaged { .. }) => return Ok(Some(next)),
            Err(ReadError::Unavailable { members, .. }) => {
                return Err(RecoverError::Unavailable {
                    ledger,
                    entry: next,
                    deadline: inner.config.read_timeout,
                    members,
                });
            }
            Err(ReadError::Deleted { .. } | ReadError::NotConfirmed { .. }) => {
                return Err(RecoverError::Deleting { ledger });
            }
        }
    }
    Ok(None)
}
