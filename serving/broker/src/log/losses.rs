//! Passing over entries that are recorded as lost (storage.md R14): only those that no member has, and only where an operator
//! accepted it.

use std::ops::Range;

use bookie_client::ReadError;
use hulse_proto::bookie::{EntryHead, ReadClass};
use hulse_proto::error::Fault;
use hulse_proto::id::{EntryId, LedgerId, Offset};

use super::reader::{LogReader, Search};
use crate::storage_fault;

impl LogReader {
    /// The offsets that entries of a ledger hold, as near as their neighbours tell; `None`: the ledger is none that is served.
    /// Neighbours that cannot be read make it wider, up to the whole ledger.
    pub(crate) async fn offsets_of(
        &self,
        ledger: LedgerId,
        entries: Range<EntryId>,
    ) -> Option<Range<Offset>> {
        let search = self.with_view(|view| {
            let span = view.ledgers.iter().find(|span| span.ledger == ledger)?;
            Some(Search::whole(span, ReadClass::CatchUp))
        })?;
        let first = match entries.start.0.checked_sub(1) {
            None => search.base,
            Some(before) => {
                let head = search.head_unless_lost(EntryId(before)).await;
                let end = head.ok().flatten().map(|head| head.header.end_offset());
                end.unwrap_or(search.base)
            }
        };
        let end = match entries.end < search.end_entry {
            false => search.end,
            true => {
                let head = search.head_unless_lost(entries.end).await;
                let first = head.ok().flatten().map(|head| head.header.first_offset);
                first.unwrap_or(search.end)
            }
        };
        Some(first..end)
    }
}

impl Search {
    /// True when an entry that could not be read may be passed over.
    pub(super) fn is_lost(&self, entry: EntryId, error: &ReadError) -> bool {
        matches!(error, ReadError::Damaged { .. }) && self.reader.may_lack(entry)
    }

    /// The first entry behind a lost one that is there, and where it begins; behind the last one that is the ledger's end.
    pub(super) async fn after_loss(&self, lost: EntryId) -> Result<(EntryId, Offset), Fault> {
        let found = self.head_after_loss(lost.next()).await?;
        Ok(found.map_or((self.end_entry, self.end), |head| {
            (head.header.entry, head.header.first_offset)
        }))
    }

    /// The head of the first entry from `entry` on that is there.
    pub(super) async fn head_after_loss(&self, entry: EntryId) -> Result<Option<EntryHead>, Fault> {
        let mut next = entry;
        while next < self.end_entry {
            match self.head_unless_lost(next).await? {
                None => next = next.next(),
                found => return Ok(found),
            }
        }
        Ok(None)
    }

    /// The head of the first entry from `entry` on that can be read: only to tell where a place is, since damage is passed over.
    pub(super) async fn head_beyond(&self, entry: EntryId) -> Result<Option<EntryHead>, Fault> {
        let mut next = entry;
        while next < self.end_entry {
            let heads = self.reader.read_heads(next, next.next(), 1, self.class);
            match heads.await {
                Err(ReadError::Damaged { .. }) => next = next.next(),
                Err(error) => return Err(storage_fault::read(self.ledger, &error)),
                Ok(heads) => return Ok(heads.into_iter().next()),
            }
        }
        Ok(None)
    }

    /// The head of the last entry that is there.
    pub(super) async fn last_head(&self) -> Result<Option<EntryHead>, Fault> {
        for entry in (0..self.end_entry.0).rev() {
            let found = self.head_unless_lost(EntryId(entry)).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    async fn head_unless_lost(&self, entry: EntryId) -> Result<Option<EntryHead>, Fault> {
        let heads = self.reader.read_heads(entry, entry.next(), 1, self.class);
        match heads.await {
            Err(error) if self.is_lost(entry, &error) => Ok(None),
            Err(error) => Err(storage_fault::read(self.ledger, &error)),
            Ok(heads) => match heads.into_iter().next() {
                None => {
                    let why = "a ledger answered no entry where one must be";
                    Err(super::reader::damaged(self.ledger, &why))
                }
                head => Ok(head),
            },
        }
    }
}
