//! Numbers: the one place that decides which entry comes next (storage.md W1).
//!
//! The handle keeps one to answer at once, the core keeps one to seal; both see the same entries in the same order, so they agree.

use hulse_proto::entry::{HEADER_BYTES, NewEntry};
use hulse_proto::id::{EntryId, Offset};
use hulse_proto::ledger::LedgerKind;
use hulse_proto::limits::ENTRY_BYTES_MAX;

use crate::error::{AppendError, NotWritten};

/// What the next entry of a ledger must look like.
#[derive(Debug, Clone)]
pub struct Sequence {
    kind: LedgerKind,
    next_entry: EntryId,
    next_offset: Offset,
    bytes: u64,
}

impl Sequence {
    /// Of an empty ledger.
    pub fn new(kind: LedgerKind, base_offset: Offset) -> Self {
        Self {
            kind,
            next_entry: EntryId(0),
            next_offset: base_offset,
            bytes: 0,
        }
    }

    /// Gives an entry its number.
    ///
    /// # Errors
    /// [`AppendError::TooLarge`] and [`NotWritten::OffsetGap`]; then nothing changed.
    pub fn admit(&mut self, entry: &NewEntry) -> Result<EntryId, AppendError> {
        let payload = entry.payload_len();
        if payload + HEADER_BYTES > ENTRY_BYTES_MAX {
            return Err(AppendError::TooLarge {
                bytes: payload + HEADER_BYTES,
                max: ENTRY_BYTES_MAX,
            });
        }
        if self.kind == LedgerKind::Log {
            if entry.first_offset != self.next_offset {
                let why = NotWritten::OffsetGap {
                    expected: self.next_offset,
                    found: entry.first_offset,
                };
                return Err(AppendError::NotWritten { why });
            }
            self.next_offset = Offset(self.next_offset.0 + u64::from(entry.offset_span));
        }
        let number = self.next_entry;
        self.next_entry = number.next();
        self.bytes += payload as u64;
        Ok(number)
    }

    /// Exclusive end of what was admitted.
    pub fn end(&self) -> EntryId {
        self.next_entry
    }

    /// Payload bytes admitted.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
