//! Entries for an upload, as readers get them from bookies, at the pace of upkeep.

use std::sync::Arc;

use bookie_client::LedgerClient;
use bookie_tier::protocol::UploadError;
use bookie_tier::store::EntrySource;
use futures::future::BoxFuture;
use hulse_proto::bookie::ReadClass;
use hulse_proto::entry::Entry;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::tier::AbortedRange;

use crate::pace::Pace;

/// Reads through the ledger client.
pub(super) struct ClientSource {
    pub(super) client: LedgerClient,
    pub(super) pace: Arc<Pace>,
}

impl EntrySource for ClientSource {
    fn read(
        &self,
        ledger: LedgerId,
        first: EntryId,
        end: EntryId,
        bytes_max: u32,
    ) -> BoxFuture<'_, Result<Vec<Entry>, UploadError>> {
        Box::pin(async move {
            let unread = |why: String| UploadError::Source { ledger, why };
            let found = self.client.describe(ledger).await;
            let found = found.map_err(|error| unread(error.to_string()))?;
            let (metadata, _) = found.ok_or_else(|| unread("it is deleted".to_owned()))?;
            let reader = self.client.reader(ledger, metadata);
            let read = reader.read(first, end, bytes_max, ReadClass::CatchUp);
            let entries = read.await.map_err(|error| unread(error.to_string()))?;
            let bytes: usize = entries.iter().map(|found| found.header().entry_len()).sum();
            self.pace.spend(bytes as u64).await;
            Ok(entries)
        })
    }

    fn aborted(&self, holder: LedgerId) -> BoxFuture<'_, Result<Vec<AbortedRange>, UploadError>> {
        let why = "aborted ranges that stand in a ledger of their own are not read by this build";
        let error = UploadError::Source {
            ledger: holder,
            why: why.to_owned(),
        };
        Box::pin(std::future::ready(Err(error)))
    }
}
