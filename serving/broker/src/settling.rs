//! Partitions without an owner whose open ledgers lack copies: whoever would get them opens them, which closes the ledgers, so that
//! repair can make the copies anew (storage.md X3).
//!
//! Upkeep says which ledgers those are; it never fences one itself (X2). What is open somewhere is its owner's, whose writers replace
//! members that are gone by themselves.

use std::time::Duration;

use bookie_client::upkeep_report;
use hulse_proto::error::Fault;
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::LedgerState;
use hulse_proto::wire::metadata::UpkeepReport;
use hulse_proto::wire::metadata::blocked_repair::Kind;
use tokio::time::sleep;

use crate::owner::Partitions;
use crate::partition::Claim;
use crate::topics::{Topics, read};

/// Between two looks at what upkeep says.
const EVERY: Duration = Duration::from_secs(10);
/// A ledger that has not settled for so long is not about to: clients of its partition would have opened it.
const PATIENCE_MS: i64 = 15_000;

/// The look-out of one broker.
pub(crate) struct Settling {
    partitions: Partitions,
    topics: Topics,
}

impl Settling {
    pub(crate) fn new(partitions: Partitions, topics: Topics) -> Self {
        Self { partitions, topics }
    }

    /// Goes on for ever.
    pub(crate) async fn run(self) {
        loop {
            sleep(EVERY).await;
            // Silence is no reason for anything.
            let report = upkeep_report(&*self.partitions.with.metadata).await;
            for ledger in report.ok().flatten().iter().flat_map(unsettled) {
                if let Err(fault) = self.settle(ledger).await {
                    tracing::debug!(%ledger, %fault, "a ledger that lacks copies is not closed yet");
                }
            }
        }
    }

    /// Opens the partition of a ledger, if nobody else has it.
    async fn settle(&self, ledger: LedgerId) -> Result<(), Fault> {
        let found = read(self.partitions.with.client.describe(ledger)).await?;
        let open = found.filter(|(metadata, _)| {
            matches!(metadata.state, LedgerState::Open | LedgerState::InRecovery)
        });
        let Some((metadata, _)) = open else {
            return Ok(());
        };
        let partition = metadata.partition;
        if self.partitions.opened(partition).is_some() || self.partitions.is_elsewhere(partition) {
            return Ok(());
        }
        let topic = self.topics.find(partition.topic).await?;
        tracing::info!(%partition, %ledger, "partition is opened, as a ledger of its last owner lacks copies");
        let opened = self
            .partitions
            .open_of(&self.topics, &topic, partition, Claim::Owner);
        opened.await.map(drop)
    }
}

/// Ledgers that have not settled for long enough.
fn unsettled(report: &UpkeepReport) -> impl Iterator<Item = LedgerId> + '_ {
    let long = report.blocked.iter().filter(|blocked| {
        blocked.kind() == Kind::Settling
            && report.at_ms.saturating_sub(blocked.since_ms) >= PATIENCE_MS
    });
    long.map(|blocked| LedgerId(blocked.ledger))
}

#[cfg(test)]
mod tests {
    use hulse_proto::wire::metadata::BlockedRepair;

    use super::*;

    #[test]
    fn only_what_has_not_settled_for_long_is_opened() {
        let blocked = |ledger, kind: Kind, since_ms| BlockedRepair {
            ledger,
            kind: kind as i32,
            since_ms,
            ..BlockedRepair::default()
        };
        let report = UpkeepReport {
            at_ms: 100_000,
            blocked: vec![
                blocked(1, Kind::Settling, 80_000),
                blocked(2, Kind::Settling, 90_000),
                blocked(3, Kind::NoTarget, 0),
            ],
            ..UpkeepReport::default()
        };
        let found: Vec<LedgerId> = unsettled(&report).collect();
        assert_eq!(found, [LedgerId(1)]);
    }
}
