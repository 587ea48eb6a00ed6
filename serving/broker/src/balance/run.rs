//! The balancer's task: samples what its own partitions have to do, and, where it is elected, looks at all brokers and has partitions
//! handed over.
//!
//! # Invariants
//! 1. One is elected. Two at once would do no harm: a move is done by the owner or not at all, and a partition that was just moved rests.
//! 2. Nothing of it is in metadata but the seat of the elected one.
//! 3. A broker that is alone asks and moves nothing.

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::{Election, Seat};
use futures::stream::{FuturesUnordered, StreamExt as _};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::judge::{Judge, Look, Verdict};
use super::metrics::MoveReason;
use super::model::{LOOKS, Move};
use super::words::words;
use crate::keys::pin_key;
use crate::listener::Front;
use crate::storage_fault;

/// Of the balancer.
const ELECTION: Election = Election {
    key: "balance/balancer",
    lease: Duration::from_secs(6),
};
/// Between two tries to be elected.
const TRY: Duration = Duration::from_secs(2);
/// Between two samples of what partitions have to do.
const SAMPLE: Duration = Duration::from_secs(2);
/// Moves that are begun in a second, and that are under way at once, in the whole cluster.
const MOVES_PER_SECOND: u32 = 8;
const MOVES_AT_ONCE: usize = 4;
/// Moves of one plan; what is left is planned anew.
const MOVES_MAX: usize = 240;
/// How long an operator waits for moves.
const ANSWER_MAX: Duration = Duration::from_secs(5);

impl Front {
    /// Counts what the partitions of this broker have to do, for ever.
    pub(crate) async fn sample_loads(&self) {
        let mut tick = interval(SAMPLE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            if !self.partitions.with.owners.alone() {
                self.sample_load();
            }
        }
    }

    pub(super) fn sample_load(&self) {
        let load = self.balance.sample(self.partitions.traffic().into_iter());
        self.metrics.balance().load(load);
    }

    /// Is elected or waits, until the end is asked for. What is under way is dropped then: a partition is still whose key it is.
    pub(crate) async fn balance_brokers(self: Arc<Self>, shutdown: CancellationToken) {
        let Some(period) = self.balance.limits.interval else {
            return;
        };
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = sleep(TRY) => {}
            }
            if self.partitions.with.owners.brokers().len() < 2 {
                continue;
            }
            let won = ELECTION.try_win(&*self.metadata, self.config.name.as_str());
            let won = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                won = won => won,
            };
            let seat = match won {
                Ok(Some(seat)) => seat,
                Ok(None) => continue,
                Err(error) => {
                    tracing::debug!(%error, "no balancer is elected");
                    continue;
                }
            };
            tracing::info!("this broker evens out the load of all");
            self.balance.elect(true);
            self.metrics.balance().elected(true);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = seat.keep(&*self.metadata) => {
                    tracing::info!("another broker evens out the load from now on");
                }
                () = self.lead(&seat, period) => {}
            }
            self.balance.elect(false);
            self.metrics.balance().elected(false);
            seat.leave(&*self.metadata).await;
        }
    }

    /// Look after look, while there are others.
    async fn lead(&self, seat: &Seat, period: Duration) {
        let mut tick = interval(period / LOOKS);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What was never measured is not looked at.
        tick.tick().await;
        loop {
            tick.tick().await;
            if self.partitions.with.owners.brokers().len() < 2 {
                return;
            }
            let mut judge = Arc::clone(&self.balance.judge).lock_owned().await;
            match self.look(&mut judge, false).await {
                Ok(look) => {
                    self.show(&look).await;
                    if look.verdict == Verdict::Act {
                        self.make(&mut judge, &look.planned.moves, Some(seat)).await;
                    }
                }
                Err(fault) => tracing::debug!(%fault, "brokers cannot be looked at"),
            }
        }
    }

    /// Looks at all brokers.
    async fn look(&self, judge: &mut Judge, at_once: bool) -> Result<Look, Fault> {
        let mut scene = self.scene().await?;
        let when = (self.balance.now(), at_once);
        Ok(judge.look(&mut scene, &self.balance.limits, when))
    }

    /// Makes the first of these moves, paced.
    async fn make(&self, judge: &mut Judge, moves: &[Move], seat: Option<&Seat>) {
        let mut pace = interval(Duration::from_secs(1) / MOVES_PER_SECOND);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut left = moves.iter().take(MOVES_MAX).enumerate();
        let mut next = left.next();
        let mut running = FuturesUnordered::new();
        loop {
            let begins = next.is_some() && running.len() < MOVES_AT_ONCE;
            tokio::select! {
                biased;
                Some((at, ended)) = running.next(), if !running.is_empty() => self.ended(at, ended),
                _ = pace.tick(), if begins => {
                    // A balancer that was frozen, or that metadata do not answer, may be none any more.
                    if seat.is_some_and(|seat| !seat.stands()) {
                        next = None;
                        continue;
                    }
                    if let Some((at, moved)) = next.take() {
                        judge.tried(moved, self.balance.now());
                        running.push(async move { (at, self.one(moved).await) });
                    }
                    next = left.next();
                }
                else => break,
            }
        }
        judge.acted(moves.len() > MOVES_MAX);
    }

    async fn one(&self, moved: &Move) -> Result<(), Fault> {
        let Move {
            partition,
            from,
            to,
            bytes,
        } = moved;
        // An operator's word that came since the look.
        let pin = self.metadata.get(&pin_key(*partition)).await;
        if pin
            .map_err(|error| storage_fault::metadata(&error))?
            .is_some()
        {
            return Err(Fault::new(
                Reason::PreconditionFailed,
                "the partition was pinned meanwhile",
            ));
        }
        let began = Instant::now();
        self.have_handed_over(*partition, from, to).await?;
        tracing::info!(%partition, %from, %to, bytes, took = ?began.elapsed(), "partition was moved to even out the load");
        Ok(())
    }

    fn ended(&self, at: usize, ended: Result<(), Fault>) {
        self.metrics
            .balance()
            .moved(MoveReason::Balance, ended.is_ok());
        self.balance.note(|report| {
            let (state, why) = match &ended {
                Ok(()) => {
                    report.done += 1;
                    ("done", String::new())
                }
                Err(fault) => {
                    report.failed += 1;
                    ("failed", fault.message.clone())
                }
            };
            if let Some(moved) = report.moves.get_mut(at) {
                state.clone_into(&mut moved.state);
                moved.why = why;
            }
        });
    }

    /// Writes down what a look came to, for people.
    async fn show(&self, look: &Look) {
        let report = self.told(look).await;
        self.metrics
            .balance()
            .looked(look.planned.before.percent, report.looked_ms);
        self.balance.note(|shown| {
            // The last moves stay to be seen while there are no others.
            let moves = match look.verdict {
                Verdict::Act => report.moves,
                _ => std::mem::take(&mut shown.moves),
            };
            *shown = v1::BalanceReport {
                moves,
                done: shown.done,
                failed: shown.failed,
                ..report
            };
        });
    }

    async fn told(&self, look: &Look) -> v1::BalanceReport {
        let mut moves = Vec::new();
        for moved in look.planned.moves.iter().take(MOVES_MAX) {
            let topic = self.topics.find(moved.partition.topic).await;
            // Deleted meanwhile: its identity is all that there is.
            let name = |topic: crate::Topic| topic.name.as_str().to_owned();
            moves.push(v1::BalanceMove {
                topic: topic.map_or_else(|_| moved.partition.topic.to_string(), name),
                partition: moved.partition.index,
                from: moved.from.to_string(),
                to: moved.to.to_string(),
                bytes_per_second: moved.bytes,
                state: "planned".to_owned(),
                why: String::new(),
            });
        }
        v1::BalanceReport {
            balancer: self.config.name.to_string(),
            looked_ms: self.partitions.with.clock.now_ms(),
            spread_percent: look.planned.before.percent,
            verdict: words(look, &self.balance.limits),
            moves,
            ..Default::default()
        }
    }

    /// The operator's word: the balancer looks now, and acts at once, unless it only is to say what it would do.
    ///
    /// # Errors
    /// Those of metadata; the balancer cannot be asked.
    pub(crate) async fn balance_now(
        self: &Arc<Self>,
        dry_run: bool,
    ) -> Result<v1::BalanceReport, Fault> {
        let elected = ELECTION.elected(&*self.metadata).await;
        let elected = elected.map_err(|error| storage_fault::metadata(&error))?;
        let brokers = self.partitions.with.owners.brokers();
        let other = elected.filter(|name| name != self.config.name.as_str());
        let other = other.and_then(|name| brokers.into_iter().find(|of| of.name.as_str() == name));
        match other {
            Some(balancer) => self.ask_balance(&balancer.endpoint, dry_run).await,
            // Nobody is elected where nothing is balanced by itself.
            None => self.balance_here(dry_run).await,
        }
    }

    /// As [`Front::balance_now`], by this broker.
    ///
    /// # Errors
    /// Those of metadata.
    pub(crate) async fn balance_here(
        self: &Arc<Self>,
        dry_run: bool,
    ) -> Result<v1::BalanceReport, Fault> {
        let Ok(mut judge) = Arc::clone(&self.balance.judge).try_lock_owned() else {
            let mut report = self.balance.report().unwrap_or_default();
            report.verdict = format!("moves are under way: {}", report.verdict);
            return Ok(report);
        };
        if dry_run {
            let look = self.look(&mut judge.clone(), true).await?;
            return Ok(self.told(&look).await);
        }
        let look = self.look(&mut judge, true).await?;
        self.show(&look).await;
        if look.verdict == Verdict::Act {
            let this = Arc::clone(self);
            let making = tokio::spawn(async move { this.make_all(judge, look).await });
            // The rest goes on by itself.
            drop(timeout(ANSWER_MAX, making).await);
        }
        Ok(self.balance.report().unwrap_or_default())
    }

    async fn make_all(&self, mut judge: OwnedMutexGuard<Judge>, look: Look) {
        self.make(&mut judge, &look.planned.moves, None).await;
    }
}
