//! The admin's words on how partitions are spread over brokers.

use hulse_proto::wire::v1;

use super::handle::Admin;
use crate::error::Error;

/// A look of the balancer at the load of all brokers, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BalanceReport {
    /// The broker that looked.
    pub balancer: String,
    /// It is the elected one.
    pub elected: bool,
    /// Its clock when it looked, ms since 1970.
    pub looked_ms: i64,
    /// By how much the broker furthest from the mean load is above or below it, in percent of the mean.
    pub spread_percent: u32,
    /// Why moves were made or were not, for a person.
    pub verdict: String,
    /// The last plan.
    pub moves: Vec<BalanceMove>,
    /// Moves that were made since this broker began to balance.
    pub done: u64,
    /// Moves that failed since then.
    pub failed: u64,
}

/// A partition that goes to another broker to even out the load.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BalanceMove {
    /// The topic's full name.
    pub topic: String,
    /// Which partition of it.
    pub partition: u32,
    /// The broker that has it.
    pub from: String,
    /// The broker that is to have it.
    pub to: String,
    /// In and out.
    pub bytes_per_second: u64,
    /// "planned", "done" or "failed".
    pub state: String,
    /// Of one that failed.
    pub why: Option<String>,
}

impl BalanceReport {
    pub(super) fn from_wire(wire: v1::BalanceReport) -> Self {
        let moves = wire.moves.into_iter().map(|wire| BalanceMove {
            topic: wire.topic,
            partition: wire.partition,
            from: wire.from,
            to: wire.to,
            bytes_per_second: wire.bytes_per_second,
            state: wire.state,
            why: Some(wire.why).filter(|why| !why.is_empty()),
        });
        Self {
            balancer: wire.balancer,
            elected: wire.elected,
            looked_ms: wire.looked_ms,
            spread_percent: wire.spread_percent,
            verdict: wire.verdict,
            moves: moves.collect(),
            done: wire.done,
            failed: wire.failed,
        }
    }
}

impl Admin {
    /// Has the balancer look at the load of all brokers and make the moves that even it out; with `dry_run` it only says which those are.
    /// Answers when they are made, or after a few seconds: then the rest goes on by itself. Said twice it does no harm.
    ///
    /// # Errors
    /// The balancer, or metadata, cannot be asked.
    pub async fn balance_brokers(&self, dry_run: bool) -> Result<BalanceReport, Error> {
        let request = v1::BalanceBrokersRequest { dry_run };
        let answer = self.change_again(request, |mut admin, request| async move {
            admin.balance_brokers(request).await
        });
        let report = answer.await?.report;
        let report = report.ok_or_else(|| Error::wrong_answer("no report"))?;
        Ok(BalanceReport::from_wire(report))
    }
}
