//! Passing over entries that are recorded as lost (storage.md R14): only those that no member has, and only where an operator
//! accepted it.

use bookie_client::ReadError;
use hulse_proto::entry::EntryHeader;
use hulse_proto::error::Fault;
use hulse_proto::id::{EntryId, Offset};

use super::reader::Search;
use crate::storage_fault;

impl Search {
    /// True when an entry that could not be read may be passed over.
    pub(super) fn is_lost(&self, entry: EntryId, error: &ReadError) -> bool {
        matches!(error, ReadError::Damaged { .. }) && self.reader.may_lack(entry)
    }

    /// The first entry behind a lost one that is there, and where it begins; behind the last one that is the ledger's end.
    pub(super) async fn after_loss(&self, lost: EntryId) -> Result<(EntryId, Offset), Fault> {
        let found = self.head_after_loss(lost.next()).await?;
        Ok(found.map_or((self.end_entry, self.end), |(entry, head)| {
            (entry, head.first_offset)
        }))
    }

    /// The header of the first entry from `entry` on that is there.
    pub(super) async fn head_after_loss(
        &self,
        entry: EntryId,
    ) -> Result<Option<(EntryId, EntryHeader)>, Fault> {
        let mut next = entry;
        while next < self.end_entry {
            let heads = self.reader.read_heads(next, next.next(), 1, self.class);
            match heads.await {
                Err(error) if self.is_lost(next, &error) => next = next.next(),
                Ok(heads) if !heads.is_empty() => return Ok(Some((next, heads[0].header))),
                Ok(_) => {
                    let why = "a ledger answered no entry where one must be";
                    return Err(super::reader::damaged(self.ledger, &why));
                }
                Err(error) => return Err(storage_fault::read(self.ledger, &error)),
            }
        }
        Ok(None)
    }
}
