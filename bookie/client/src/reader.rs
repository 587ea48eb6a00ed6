//! Reads of a ledger: the one place where reads are clipped (storage.md B13).

use std::sync::Arc;

use hulse_proto::bookie::{EntryHead, ReadClass};
use hulse_proto::entry::Entry;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::LedgerMetadata;

use crate::error::ReadError;
use crate::ledger_client::Inner;

/// Reads entries of one ledger. Cheap to clone.
#[derive(Clone)]
pub struct LedgerReader {
    pub(crate) inner: Arc<Inner>,
    pub(crate) ledger: LedgerId,
    pub(crate) metadata: Arc<LedgerMetadata>,
}

impl LedgerReader {
    /// Reads a run of entries that begins at `first`: at least one, at most those below `end`, about `max_bytes`.
    ///
    /// # Errors
    /// [`ReadError`]. Cancel-safe.
    pub async fn read(
        &self,
        first: EntryId,
        end: EntryId,
        max_bytes: u32,
        class: ReadClass,
    ) -> Result<Vec<Entry>, ReadError> {
        let _ = (&self.inner, &self.metadata, max_bytes, class);
        Err(ReadError::NotConfirmed {
            ledger: self.ledger,
            entry: first,
            end,
        })
    }

    /// As [`LedgerReader::read`], headers and envelopes only.
    ///
    /// # Errors
    /// [`ReadError`]. Cancel-safe.
    pub async fn read_heads(
        &self,
        first: EntryId,
        end: EntryId,
        max_bytes: u32,
    ) -> Result<Vec<EntryHead>, ReadError> {
        let _ = max_bytes;
        Err(ReadError::NotConfirmed {
            ledger: self.ledger,
            entry: first,
            end,
        })
    }
}
