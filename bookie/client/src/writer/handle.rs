//! What the owner holds: enqueues appends, waits for them, closes.

use std::future::Future;
use std::sync::Arc;

use bookie_metadata::Txn;
use hulse_proto::entry::{EntryClass, NewEntry};
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{ClosedTotals, LedgerMetadata};
use tokio::sync::watch;

use crate::error::{AppendError, CloseError, NotWritten, WriterEnd};
use crate::reader::LedgerReader;

/// A confirmed append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its number.
    pub entry: EntryId,
    /// Exclusive end of what is confirmed; above `entry`.
    pub confirmed_end: EntryId,
}

pub(crate) struct Shared {
    ledger: LedgerId,
    metadata: LedgerMetadata,
    reader: LedgerReader,
    ended: watch::Receiver<Option<WriterEnd>>,
}

/// The one writer of one ledger. Clones share it.
#[derive(Clone)]
pub struct LedgerWriter {
    shared: Arc<Shared>,
}

impl LedgerWriter {
    /// Its number.
    pub fn ledger(&self) -> LedgerId {
        self.shared.ledger
    }

    /// Its metadata as this writer last wrote them.
    pub fn metadata(&self) -> LedgerMetadata {
        self.shared.metadata.clone()
    }

    /// Appends an entry. Takes its place in the order before it returns (storage.md W1); the future completes in entry order,
    /// when the entry is confirmed (W5). Dropping the future drops the answer only.
    ///
    /// # Errors
    /// [`AppendError`]; its `fate` says whether the entry may be in the log. [`NotWritten::NoRoom`] when the limits of its
    /// permit class are reached: ask [`LedgerWriter::has_room`] first.
    pub fn append(
        &self,
        entry: NewEntry,
    ) -> impl Future<Output = Result<Appended, AppendError>> + Send + 'static {
        let _ = entry;
        async {
            Err(AppendError::NotWritten {
                why: NotWritten::NoRoom,
            })
        }
    }

    /// True when an append of this class would be taken (storage.md W2). META and CONTROL have permits of their own.
    pub fn has_room(&self, class: EntryClass) -> bool {
        let _ = class;
        false
    }

    /// Waits until [`LedgerWriter::has_room`], or until the writer has ended. Cancel-safe.
    pub async fn room(&self, class: EntryClass) {
        let _ = class;
    }

    /// Exclusive end of what is confirmed.
    pub fn confirmed_end(&self) -> EntryId {
        EntryId(0)
    }

    /// Exclusive end of what was appended.
    pub fn appended_end(&self) -> EntryId {
        EntryId(0)
    }

    /// Payload bytes appended so far.
    pub fn appended_bytes(&self) -> u64 {
        0
    }

    /// A reader of this open ledger; clips to what is confirmed at the time of each read (storage.md B13).
    pub fn reader(&self) -> LedgerReader {
        self.shared.reader.clone()
    }

    /// Stops, drains and closes the ledger (storage.md W13). `part` joins the transaction. After `Ok` the entries at or above
    /// `totals.end` are definitely not in the log. Waits while metadata does not answer.
    ///
    /// # Errors
    /// [`CloseError`]; the writer is dead in every case. Dropping the future ends the writer with an unknown outcome.
    pub async fn close(&self, part: Txn) -> Result<ClosedTotals, CloseError> {
        let _ = part;
        Err(CloseError::Ended(WriterEnd::Closed {
            ledger: self.shared.ledger,
        }))
    }

    /// Shows how the writer ended, once it has (storage.md W6); `None` until then.
    pub fn ended(&self) -> watch::Receiver<Option<WriterEnd>> {
        self.shared.ended.clone()
    }
}
