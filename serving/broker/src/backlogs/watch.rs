//! Looks at the open partitions that have subscriptions: counts backlogs, and does what their topics say of them.
//!
//! Every partition is looked at once in ten rounds. In between a look is due where a subscription may have come to its limit since
//! the last one: by what was appended, or by the time that passed. What that does not show (a cursor that was moved back) is seen
//! within the ten rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, PartitionId, SubscriptionId};
use hulse_proto::time::TimestampMs;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::board::{Board, Standing};
use super::kept::Kept;
use super::policy::{BacklogLimits, QuotaAction};
use crate::complaints::Complaints;
use crate::metrics::Metrics;
use crate::state::{OffsetRange, OffsetRanges};
use crate::subscription_metrics::Backlog;
use crate::topics::Topics;
use crate::{CursorView, PartitionHandle, Partitions};

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(1);
/// In so many rounds every partition is looked at.
const ROUNDS: u64 = 10;
/// A look that takes longer is given up until the next round.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// Records whose age is read for the metrics of one round. Quotas of time read as many as they need.
const AGES_READ_MAX: usize = 256;

/// What was seen of one partition.
struct Seen {
    limits: BacklogLimits,
    at: Instant,
    /// Where the log ended.
    end: Offset,
    /// The most that a subscription kept.
    most: Kept,
    /// One was over its limit.
    over: bool,
    /// It takes no batches because of it.
    refused: Option<PartitionHandle>,
    /// Records are being given up.
    evicting: Vec<JoinHandle<()>>,
    /// Of each subscription the first record that is not processed, and when it was appended.
    oldest: BTreeMap<SubscriptionId, (Offset, TimestampMs)>,
}

impl Seen {
    fn new(limits: BacklogLimits) -> Self {
        Self {
            limits,
            at: Instant::now(),
            end: Offset(0),
            most: Kept::default(),
            over: false,
            refused: None,
            evicting: Vec::new(),
            oldest: BTreeMap::new(),
        }
    }

    /// Whether a subscription may be over its limit by now.
    fn is_due(&self, open: &PartitionHandle, limits: &BacklogLimits) -> bool {
        let most = Kept {
            bytes: self.most.bytes + open.bytes_from(self.end),
            age: self.most.age + self.at.elapsed(),
        };
        self.over || self.limits != *limits || most.exceeds(limits)
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        if let Some(open) = &self.refused {
            open.0.refusal.set(None);
        }
    }
}

/// The watch of one broker.
pub(crate) struct Watch {
    partitions: Partitions,
    topics: Topics,
    metrics: Arc<Metrics>,
    cluster: BacklogLimits,
    board: Board,
    seen: BTreeMap<PartitionId, Seen>,
    complaints: Arc<Complaints>,
    /// Reads that are left to this round's metrics.
    ages_left: usize,
}

/// A cursor and what it keeps.
type Measured = (CursorView, Kept);

impl Watch {
    pub(crate) fn new(
        partitions: Partitions,
        topics: Topics,
        metrics: Arc<Metrics>,
        cluster: BacklogLimits,
        board: Board,
    ) -> Self {
        Self {
            partitions,
            topics,
            metrics,
            cluster,
            board,
            seen: BTreeMap::new(),
            complaints: Arc::default(),
            ages_left: 0,
        }
    }

    /// Goes on for ever. What fails concerns one partition, which is looked at again in the next round.
    pub(crate) async fn run(mut self) {
        for round in 1_u64.. {
            sleep(EVERY).await;
            self.round(round.is_multiple_of(ROUNDS)).await;
        }
    }

    /// Once over the partitions; with `all` over those too that cannot have come to a limit.
    async fn round(&mut self, all: bool) {
        self.ages_left = if all { AGES_READ_MAX } else { 0 };
        let consumed = self.partitions.consumed();
        let known: BTreeSet<_> = consumed.iter().map(PartitionHandle::id).collect();
        self.seen.retain(|partition, _| known.contains(partition));
        self.board.retain(|partition| known.contains(partition));
        let mut backlogs: BTreeMap<Arc<str>, Backlog> = BTreeMap::new();
        let mut used: BTreeMap<String, f64> = BTreeMap::new();
        for open in &consumed {
            let topic = self.topics.hint_of(open.id().topic);
            let limits = topic
                .as_ref()
                .map(|topic| topic.backlog.limits(self.cluster));
            let limits = limits.unwrap_or_default();
            let due = match self.seen.get(&open.id()) {
                Some(seen) => seen.is_due(open, &limits),
                None => !limits.is_off(),
            };
            if !all && !due {
                continue;
            }
            let measured = match timeout(LOOK_MAX, self.look(open, limits)).await {
                Ok(Ok(measured)) => measured,
                Ok(Err(fault)) => {
                    tracing::debug!(partition = %open.id(), %fault, "a look at backlogs waits");
                    continue;
                }
                Err(_) => continue,
            };
            for (view, kept) in measured {
                let backlog = backlogs.entry(view.name).or_default();
                backlog.records += view.backlog;
                backlog.bytes += kept.bytes;
                backlog.age = backlog.age.max(kept.age);
            }
            if let (Some(topic), Some(worst)) = (topic, self.board.worst(open.id())) {
                let most = used.entry(topic.name.as_str().to_owned()).or_default();
                *most = most.max(worst.used);
            }
        }
        if all {
            self.metrics.subscriptions().set_backlogs(&backlogs);
            self.metrics.subscriptions().set_used(&used);
        }
    }

    /// Measures every cursor of a partition and does what its topic says of those that keep too much.
    async fn look(
        &mut self,
        open: &PartitionHandle,
        limits: BacklogLimits,
    ) -> Result<Vec<Measured>, Fault> {
        let (now, end) = (self.topics.now_ms(), open.offsets().high_watermark);
        let mut measured = Vec::new();
        for view in open.cursors(None, 0).await? {
            let timed = view.hold && limits.time.is_some();
            let kept = Kept {
                bytes: open.kept_bytes(&view),
                age: self.age(open, &view, timed, now).await?,
            };
            measured.push((view, kept));
        }
        let seen = self.seen.entry(open.id());
        let seen = seen.or_insert_with(|| Seen::new(limits));
        seen.oldest
            .retain(|id, _| measured.iter().any(|(view, _)| view.subscription == *id));
        (seen.limits, seen.at, seen.end) = (limits, Instant::now(), end);
        let held = measured.iter().filter(|(view, _)| view.hold);
        let by_use = |a: &&Measured, b: &&Measured| a.1.used(&limits).total_cmp(&b.1.used(&limits));
        let worst = held.max_by(by_use);
        seen.most = worst.map_or_else(Kept::default, |(_, kept)| *kept);
        let over = worst.is_some_and(|(_, kept)| kept.exceeds(&limits));
        if over != seen.over {
            tell(open, over, worst, &limits);
            seen.over = over;
        }
        let refusing = over && limits.action == QuotaAction::Reject;
        if refusing || seen.refused.is_some() {
            let fault = worst
                .filter(|_| refusing)
                .map(|(view, kept)| kept.refusal(&view.name, open.id(), &limits));
            open.0.refusal.set(fault);
            seen.refused = refusing.then(|| open.clone());
        }
        let standing = worst.and_then(|(view, kept)| {
            Some(Standing {
                subscription: view.name.clone(),
                kept: *kept,
                used: kept.used(&limits),
                used_percent: kept.used_percent(&limits)?,
                refusing,
            })
        });
        self.board.set_worst(open.id(), standing);
        if over && limits.action == QuotaAction::Evict {
            self.evict(open, &measured, limits, now).await?;
        }
        Ok(measured)
    }

    /// How old the first record is that is not processed. It is read where `exact`, or as long as this round may read for metrics;
    /// elsewhere what is known of it counts, and nothing where nothing is.
    async fn age(
        &mut self,
        open: &PartitionHandle,
        view: &CursorView,
        exact: bool,
        now: TimestampMs,
    ) -> Result<Duration, Fault> {
        let oldest = self.seen.get(&open.id());
        let oldest = oldest.and_then(|seen| seen.oldest.get(&view.subscription));
        let known = oldest.filter(|(offset, _)| *offset == view.first_unacked);
        let at = match known {
            _ if view.backlog == 0 => return Ok(Duration::ZERO),
            Some((_, at)) => Some(*at),
            None if exact || self.ages_left > 0 => {
                self.ages_left = self.ages_left.saturating_sub(usize::from(!exact));
                open.appended_at(view.first_unacked).await?
            }
            None => None,
        };
        let Some(at) = at else {
            return Ok(Duration::ZERO);
        };
        if let Some(seen) = self.seen.get_mut(&open.id()) {
            seen.oldest
                .insert(view.subscription, (view.first_unacked, at));
        }
        Ok(Duration::from_millis(u64::try_from(now - at).unwrap_or(0)))
    }

    /// Moves the cursors of those that keep too much over their oldest records. Beside the watch, since a move waits until it is
    /// durable.
    async fn evict(
        &mut self,
        open: &PartitionHandle,
        measured: &[Measured],
        limits: BacklogLimits,
        now: TimestampMs,
    ) -> Result<(), Fault> {
        let Some(seen) = self.seen.get_mut(&open.id()) else {
            return Ok(());
        };
        seen.evicting.retain(|evicting| !evicting.is_finished());
        if !seen.evicting.is_empty() {
            return Ok(());
        }
        for (view, kept) in measured {
            if !view.hold || !kept.exceeds(&limits) {
                continue;
            }
            let to = open.first_kept(view.first_unacked, &limits, now).await?;
            let eviction = Eviction {
                open: open.clone(),
                subscription: view.subscription,
                name: view.name.clone(),
                gone: OffsetRange {
                    first: view.first_unacked,
                    end: to,
                },
                metrics: self.metrics.clone(),
                complaints: self.complaints.clone(),
            };
            seen.evicting.push(tokio::spawn(eviction.run()));
        }
        Ok(())
    }
}

/// One subscription loses records.
struct Eviction {
    open: PartitionHandle,
    subscription: SubscriptionId,
    name: Arc<str>,
    gone: OffsetRange,
    metrics: Arc<Metrics>,
    complaints: Arc<Complaints>,
}

impl Eviction {
    async fn run(self) {
        match self.evict().await {
            Ok(0) => {}
            Ok(records) => {
                self.metrics.subscriptions().evicted(&self.name, records);
                if let Some(others) = self.complaints.speak() {
                    tracing::warn!(
                        subscription = %self.name, partition = %self.open.id(), records, to = %self.gone.end, others,
                        "backlog quota: a subscription loses its oldest records"
                    );
                }
            }
            Err(fault) => {
                tracing::debug!(partition = %self.open.id(), %fault, "an eviction waits");
            }
        }
    }

    /// Answers how many records it had not processed, once that is durable.
    async fn evict(&self) -> Result<u64, Fault> {
        let views = self.open.cursors(Some(self.subscription), usize::MAX);
        // One that was deleted meanwhile keeps nothing.
        let Some(view) = views.await?.into_iter().next() else {
            return Ok(0);
        };
        let acked: OffsetRanges = view.ranges.iter().copied().collect();
        let gone = OffsetRange {
            first: view.first_unacked.max(self.gone.first),
            end: self.gone.end,
        };
        let lost = acked.missing(gone).iter().map(|range| range.len()).sum();
        if lost > 0 {
            self.open.evict(self.subscription, gone.end).await?;
        }
        Ok(lost)
    }
}

/// A subscription has come to be over its limit, or none is any more.
fn tell(open: &PartitionHandle, over: bool, worst: Option<&Measured>, limits: &BacklogLimits) {
    let partition = open.id();
    match worst {
        Some((view, kept)) if over => {
            tracing::warn!(
                subscription = %view.name, %partition, bytes = kept.bytes, age = ?kept.age, action = ?limits.action,
                "a subscription keeps more than the backlog quota of its topic"
            );
        }
        _ => tracing::info!(%partition, "every subscription is within the backlog quota again"),
    }
}
