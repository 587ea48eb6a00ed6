//! Ledgers in memory as the source of an upload.

use futures::future::BoxFuture;
use hulse_proto::entry::Entry;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::tier::AbortedRange;

use super::ledger::ClosedLedger;
use crate::protocol::UploadError;
use crate::store::EntrySource;

/// Gives entries of these ledgers; an entry that `lacking` names cannot be read.
#[derive(Debug, Clone, Default)]
pub struct MemorySource {
    /// All of them.
    pub ledgers: Vec<ClosedLedger>,
    /// Nobody has it.
    pub lacking: Option<(LedgerId, EntryId)>,
    /// What a ledger of aborted ranges would give.
    pub aborted: Vec<AbortedRange>,
}

impl EntrySource for MemorySource {
    fn read(
        &self,
        ledger: LedgerId,
        first: EntryId,
        end: EntryId,
        bytes_max: u32,
    ) -> BoxFuture<'_, Result<Vec<Entry>, UploadError>> {
        let why = |why: &str| UploadError::Source {
            ledger,
            why: why.to_owned(),
        };
        let found = self.ledgers.iter().find(|found| found.ledger == ledger);
        let lacking = self.lacking == Some((ledger, first));
        let answer = match found.filter(|_| !lacking) {
            None => Err(why("no bookie has a good copy")),
            Some(found) => {
                let mut bytes = 0;
                let entries = found.entries[first.0 as usize..end.0 as usize].iter();
                let entries = entries.take_while(|entry| {
                    let fits = bytes == 0 || bytes < bytes_max as usize;
                    bytes += entry.header().entry_len();
                    fits && self.lacking != Some((ledger, entry.header().entry))
                });
                Ok(entries.cloned().collect())
            }
        };
        Box::pin(std::future::ready(answer))
    }

    fn aborted(&self, _holder: LedgerId) -> BoxFuture<'_, Result<Vec<AbortedRange>, UploadError>> {
        Box::pin(std::future::ready(Ok(self.aborted.clone())))
    }
}
