//! The operator's word that a loss is accepted (storage.md R14), and what follows of it here.
//!
//! It goes on when its caller goes away: between the word in metadata and the end of the open partition, which reads by what it knew
//! before, nothing may be left out.

use bookie_client::RecoverError;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, LedgerState};

use crate::owner::Partitions;
use crate::storage_fault;

impl Partitions {
    /// The operator's word (storage.md R14): a ledger that cannot be recovered is sealed at `up_to`, or behind the last entry
    /// that can be read, and the gap is recorded by the partition's next ledger. Of a closed ledger the entries that no bookie has any more are recorded as
    /// lost; it keeps its end. The partition opens anew afterwards.
    ///
    /// # Errors
    /// LEDGER_NOT_FOUND; PRECONDITION_FAILED when the ledger is not damaged; what recovery says.
    pub async fn accept_loss(
        &self,
        ledger: LedgerId,
        up_to: Option<EntryId>,
    ) -> Result<LedgerMetadata, Fault> {
        let this = self.clone();
        let accepting = tokio::spawn(async move { this.accept_loss_once(ledger, up_to).await });
        accepting.await.unwrap_or_else(|error| {
            let why = format!("accepting the loss of ledger {ledger} ended by itself: {error}");
            Err(Fault::new(Reason::Internal, why))
        })
    }

    async fn accept_loss_once(
        &self,
        ledger: LedgerId,
        up_to: Option<EntryId>,
    ) -> Result<LedgerMetadata, Fault> {
        let found = self
            .with
            .client
            .describe(ledger)
            .await
            .map_err(|error| storage_fault::metadata(&error))?;
        let Some((metadata, _)) = found else {
            let why =
                format!("ledger {ledger} does not exist; `hulse ledgers list` shows those that do");
            return Err(Fault::new(Reason::LedgerNotFound, why));
        };
        let refused = |why: String| Err(Fault::new(Reason::PreconditionFailed, why));
        if matches!(metadata.state, LedgerState::Open | LedgerState::Deleting) {
            return refused(format!(
                "ledger {ledger} is {:?}, only one that is closed or whose recovery is stuck can lose records",
                metadata.state
            ));
        }
        // The same word again, after what lay below could not be read.
        let end = metadata.closed.map(|totals| totals.end);
        if metadata.state == LedgerState::Closed && up_to.is_some() && up_to != end {
            return refused(format!(
                "ledger {ledger} is closed, its end is decided; without `--up-to` what cannot be read is given up"
            ));
        }
        let sealed = self.with.client.accept_loss(ledger, up_to).await;
        if sealed.is_ok() || matches!(sealed, Err(RecoverError::SealedUnread { .. })) {
            self.loss_accepted(&metadata, sealed.as_ref().ok()).await;
        }
        let sealed = sealed.map_err(|error| storage_fault::recover(ledger, &error))?;
        if metadata.state == LedgerState::Closed && sealed.loss == metadata.loss {
            return refused(format!(
                "every entry of closed ledger {ledger} can be read, or its loss is recorded already"
            ));
        }
        Ok(sealed)
    }

    /// Lets the partition of a ledger open anew, by what metadata say now.
    async fn loss_accepted(&self, before: &LedgerMetadata, now: Option<&LedgerMetadata>) {
        if now.is_some_and(|now| now.loss != before.loss) {
            // A partition that is open, or opens at this moment, reads by what it knew before.
            let why = "a loss was accepted, the partition is opened again; retry";
            let reopened = Fault::new(Reason::PartitionLoading, why);
            self.close(before.partition, reopened).await;
        }
        self.forget_failure(before.partition);
    }
}
