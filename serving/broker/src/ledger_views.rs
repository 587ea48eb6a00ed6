//! The ledgers of partitions, for people.

use hulse_proto::error::Fault;
use hulse_proto::id::{LedgerId, Offset, PartitionId};
use hulse_proto::ledger::{LedgerKind, LedgerMetadata};

use crate::log::Chain;
use crate::owner::Partitions;
use crate::storage_fault;

/// A ledger of a partition, for people.
#[derive(Debug, Clone)]
pub struct LedgerView {
    /// Which.
    pub ledger: LedgerId,
    /// Of which chain.
    pub kind: LedgerKind,
    /// What metadata says; `None` when it is gone.
    pub metadata: Option<LedgerMetadata>,
}

impl Partitions {
    /// Where the log begins, by metadata alone: also of a partition that does not open.
    ///
    /// # Errors
    /// METADATA_UNAVAILABLE, DATA_DAMAGED.
    pub async fn log_start(&self, partition: PartitionId) -> Result<Offset, Fault> {
        let chain = Chain::load(&*self.with.metadata, partition, LedgerKind::Log).await;
        let chain = chain.map_err(|error| storage_fault::chain(&error))?;
        Ok(chain.log_start())
    }

    /// The ledgers of both chains, oldest first.
    ///
    /// # Errors
    /// METADATA_UNAVAILABLE.
    pub async fn ledgers(&self, partition: PartitionId) -> Result<Vec<LedgerView>, Fault> {
        let mut views = Vec::new();
        for kind in [LedgerKind::Log, LedgerKind::State] {
            let chain = Chain::load(&*self.with.metadata, partition, kind).await;
            for link in chain.map_err(|error| storage_fault::chain(&error))?.links() {
                let ledger = LedgerId(link.ledger);
                let found = self.with.client.describe(ledger).await;
                let metadata = found
                    .map_err(|error| storage_fault::metadata(&error))?
                    .map(|(metadata, _)| metadata);
                views.push(LedgerView {
                    ledger,
                    kind,
                    metadata,
                });
            }
        }
        Ok(views)
    }
}
