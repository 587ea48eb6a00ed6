//! One round over all ledgers: what is due is done, some at once.

use std::time::Duration;

use bookie_metadata::{ListRequest, MetadataError, counter};
use bookie_tier::protocol::TierEnd;
use futures::stream::{FuturesUnordered, StreamExt as _};
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{LEDGER_IDS_KEY, LEDGER_PREFIX, LedgerMetadata};
use hulse_proto::time::TimestampMs;
use tokio::time::Instant;

use super::hands::{TierHands, TierWork};
use super::plan::{TierConfig, TierPlan};

/// Rows of one page of the listing.
const PAGE_ROWS: usize = 500;
/// A sweep begins within this.
const SWEEP_BUDGET: Duration = Duration::from_secs(60);

/// What a round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierTotals {
    /// Objects that were committed.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Ledgers whose copies were dropped, or that were cleaned up after.
    pub dropped: u64,
    /// Ledgers that were removed.
    pub removed: u64,
    /// Objects that nobody named, deleted by a sweep.
    pub swept: u64,
    /// Segments that were bad and stand for their ledgers no more.
    pub withdrawn: u64,
    /// What could not be done now.
    pub failed: u64,
}

/// Rounds of one process.
pub struct TierRound {
    config: TierConfig,
    hands: TierHands,
}

impl TierRound {
    /// With these hands.
    pub fn new(config: TierConfig, hands: TierHands) -> Self {
        Self { config, hands }
    }

    /// The hands.
    pub fn hands(&self) -> &TierHands {
        &self.hands
    }

    /// Looks at every ledger and does what is due at `now`; begins nothing more once `budget` is over. Safe to drop.
    ///
    /// # Errors
    /// Of the listing. What fails for one ledger is told and counted, and tried again by the next round.
    pub async fn run(
        &self,
        now: TimestampMs,
        budget: Duration,
    ) -> Result<TierTotals, MetadataError> {
        let until = Instant::now() + budget;
        let mut plan = TierPlan::new(&self.config, now);
        let mut request = ListRequest {
            prefix: LEDGER_PREFIX.to_owned(),
            after: None,
            limit: PAGE_ROWS,
            at: None,
        };
        loop {
            let page = self.hands.metadata.list(request.clone()).await?;
            for row in &page.items {
                let number = row.key.strip_prefix(LEDGER_PREFIX);
                let number = number.and_then(|id| id.parse().ok()).map(LedgerId);
                if let (Some(ledger), Ok(metadata)) = (number, LedgerMetadata::decode(&row.value)) {
                    plan.see(ledger, &metadata);
                }
            }
            request.after = page.items.last().map(|row| row.key.clone());
            if !page.more || request.after.is_none() {
                break;
            }
        }
        Ok(self.work(plan.works(), until).await)
    }

    /// Deletes objects that nobody names (storage.md O12). For a rare run, daily say.
    ///
    /// # Errors
    /// Of the counter of ledgers.
    pub async fn sweep(&self) -> Result<TierTotals, MetadataError> {
        let given = counter::next_number(&*self.hands.metadata, LEDGER_IDS_KEY).await?;
        let sweep = vec![TierWork::Sweep(LedgerId(given))];
        Ok(self.work(sweep, Instant::now() + SWEEP_BUDGET).await)
    }

    async fn work(&self, works: Vec<TierWork>, until: Instant) -> TierTotals {
        let mut totals = TierTotals::default();
        let mut waiting = works.into_iter();
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < self.config.works_at_once.max(1)
                && Instant::now() < until
                && let Some(next) = waiting.next()
            {
                running.push(self.one(next));
            }
            let Some((work, end)) = running.next().await else {
                return totals;
            };
            tell(&work, &end);
            totals.add(&work, &end);
        }
    }

    async fn one(&self, work: TierWork) -> (TierWork, TierEnd) {
        let end = self.hands.work(&work).await;
        (work, end)
    }
}

impl TierTotals {
    fn add(&mut self, work: &TierWork, end: &TierEnd) {
        match (work, end) {
            (TierWork::Attempt(_), TierEnd::Done { bytes }) => {
                self.segments += 1;
                self.bytes += bytes;
            }
            (TierWork::Drop(_), TierEnd::Done { .. }) => self.dropped += 1,
            (_, TierEnd::Done { .. }) => self.removed += 1,
            (_, TierEnd::Swept(report)) => self.swept += report.deleted,
            (_, TierEnd::Withdrawn(_)) => self.withdrawn += 1,
            (_, TierEnd::Failed(_)) => self.failed += 1,
            (_, TierEnd::Needless) => {}
        }
    }
}

fn tell(work: &TierWork, end: &TierEnd) {
    match end {
        TierEnd::Done { bytes } => tracing::info!(?work, bytes, "tiered"),
        TierEnd::Swept(report) => tracing::info!(?report, "object storage was swept"),
        TierEnd::Withdrawn(error) => {
            tracing::error!(?work, %error, "a segment is bad; its ledger stays with its bookies");
        }
        TierEnd::Failed(why) => tracing::warn!(?work, %why, "not tiered now"),
        TierEnd::Needless => {}
    }
}
