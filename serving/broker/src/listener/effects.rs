//! What the rules of a topic would let go if they were these: for people, before they say so.
//!
//! An estimate of what the rules mean for what is stored now. Retention removes whole ledgers, so its part may go later than at once;
//! eviction goes down to nine tenths of the quota.

use std::cmp::Reverse;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, PartitionId};
use hulse_proto::time::TimestampMs;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::partition_work::Work;
use tokio::time::{Instant, timeout_at};

use super::front::Front;
use super::peers::work_on;
use crate::backlogs::{Aged, BacklogLimits, QuotaAction};
use crate::retention::Limits;
use crate::state::{OffsetRange, OffsetRanges};
use crate::{CursorView, PartitionHandle, Topic};

/// Partitions that are looked at together.
const PARTITIONS_AT_ONCE: usize = 16;
/// Losses that one answer lists, shared by its partitions: with the longest names they fit into a message.
const LOSSES_MAX: usize = 8_000;
/// For so long one answer looks; what it did not come to has a fault, and nothing of it is begun.
const LOOK_MAX: Duration = Duration::from_secs(8);
/// Ranges of what was acknowledged out of order that are looked at of one partition, shared by its subscriptions: 4 MiB. Of one that
/// has more, some records count as lost that are acknowledged.
const RANGES_MAX: usize = 1 << 18;

/// What a topic would go by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) retention: Limits,
    pub(super) backlog: BacklogLimits,
}

impl Rules {
    /// As a peer hears of it.
    fn to_wire(self) -> v1::RulesWork {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        v1::RulesWork {
            retention_ms: self.retention.time.map(ms),
            retention_bytes: self.retention.bytes,
            backlog_bytes: self.backlog.bytes,
            backlog_ms: self.backlog.time.map(ms),
            action: self.backlog.action.number(),
        }
    }

    pub(super) fn from_wire(wire: &v1::RulesWork) -> Self {
        Self {
            retention: Limits {
                time: wire.retention_ms.map(Duration::from_millis),
                bytes: wire.retention_bytes,
            },
            backlog: BacklogLimits {
                bytes: wire.backlog_bytes,
                time: wire.backlog_ms.map(Duration::from_millis),
                action: match wire.action() {
                    v1::BacklogAction::Evict => QuotaAction::Evict,
                    v1::BacklogAction::Reject => QuotaAction::Reject,
                    v1::BacklogAction::Hold | v1::BacklogAction::Unspecified => QuotaAction::Hold,
                },
            },
        }
    }

    /// Nothing ever goes.
    fn keep_all(&self) -> bool {
        self.retention.is_unlimited() && !self.evict()
    }

    fn evict(&self) -> bool {
        self.backlog.action == QuotaAction::Evict
    }
}

impl Front {
    /// What goes of each partition of a topic. One that cannot be looked at, or not in time, has its fault.
    pub(super) async fn effects(&self, topic: &Topic, rules: Rules) -> Vec<v1::UpdateEffect> {
        if rules.keep_all() {
            return Vec::new();
        }
        let until = Instant::now() + LOOK_MAX;
        let listed_max = (LOSSES_MAX / topic.partitions.max(1) as usize).max(1);
        let effects = stream::iter(topic.partition_ids()).map(|partition| async move {
            // A partition that is opened goes on opening, whoever waits for it: so none is when nobody will.
            let effect = match Instant::now() < until {
                true => timeout_at(until, self.effect(partition, rules))
                    .await
                    .unwrap_or_else(|_| Err(too_late())),
                false => Err(too_late()),
            };
            let effect = effect.map(|effect| shortened(effect, listed_max));
            let effect = effect.unwrap_or_else(|fault| v1::UpdateEffect {
                fault: Some(fault.to_wire()),
                ..Default::default()
            });
            v1::UpdateEffect {
                partition: partition.index,
                ..effect
            }
        });
        effects.buffered(PARTITIONS_AT_ONCE).collect().await
    }

    async fn effect(
        &self,
        partition: PartitionId,
        rules: Rules,
    ) -> Result<v1::UpdateEffect, Fault> {
        if self.elsewhere(partition).is_none() {
            return self.effect_here(partition, rules).await;
        }
        let done = self.anywhere(work_on(partition, Work::Effect(rules.to_wire())));
        Ok(done.await?.effect.unwrap_or_default())
    }

    pub(super) async fn effect_here(
        &self,
        partition: PartitionId,
        rules: Rules,
    ) -> Result<v1::UpdateEffect, Fault> {
        let open = self.open(partition).await?;
        let now = self.topics.now_ms();
        let start = open.offsets().log_start;
        let mut cut = expired(&open, rules.retention, now).await?;
        let mut losses = Vec::new();
        let count = open.cursors(None, 0).await?.len();
        let ranges_max = RANGES_MAX / count.max(1);
        let views = open.cursors(None, ranges_max).await?;
        let aged = match rules.evict() {
            true => open.aged(&rules.backlog, now).await?,
            false => None,
        };
        for view in views.iter().filter(|view| view.hold) {
            let kept = first_kept(&open, view, (rules, aged));
            losses.push((view, kept));
            cut = cut.min(kept);
        }
        let free = views.iter().filter(|view| !view.hold);
        losses.extend(free.map(|view| (view, cut)));
        let gone = OffsetRange {
            first: start,
            end: cut,
        };
        let bytes = match gone.is_empty() {
            true => 0,
            false => open.bytes_from(start).saturating_sub(open.bytes_from(cut)),
        };
        let losses = losses.into_iter().map(|(view, end)| v1::BacklogLoss {
            subscription: view.name.to_string(),
            records: unacked_below(view, end),
        });
        Ok(v1::UpdateEffect {
            removed_records: gone.len(),
            removed_bytes: bytes,
            loss: losses.collect(),
            ..Default::default()
        })
    }
}

fn too_late() -> Fault {
    let words = "the broker did not come to this partition in time; ask again";
    Fault::new(Reason::PartitionLoading, words)
}

/// Lists only so many losses: the greatest.
fn shortened(mut effect: v1::UpdateEffect, listed_max: usize) -> v1::UpdateEffect {
    if effect.loss.len() > listed_max {
        effect.loss.sort_by_key(|loss| Reverse(loss.records));
        let rest = effect.loss.split_off(listed_max);
        effect.unlisted = rest.len() as u64;
        effect.unlisted_records = rest.iter().map(|loss| loss.records).sum();
    }
    effect
}

/// The first offset that retention keeps.
async fn expired(
    open: &PartitionHandle,
    limits: Limits,
    now: TimestampMs,
) -> Result<Offset, Fault> {
    let offsets = open.offsets();
    let (mut cut, end) = (offsets.log_start, offsets.high_watermark);
    if let Some(bytes) = limits.bytes {
        cut = open.first_within(cut, end, bytes);
    }
    if let Some(time) = limits.time {
        let time = TimestampMs::try_from(time.as_millis()).unwrap_or(TimestampMs::MAX);
        let oldest = now.saturating_sub(time).saturating_add(1);
        cut = open.first_since(cut, end, oldest).await?;
    }
    Ok(cut)
}

/// The first offset that a subscription which holds keeps. What age means on this partition is known: nothing is read here, however
/// many subscriptions there are.
fn first_kept(
    open: &PartitionHandle,
    view: &CursorView,
    (rules, aged): (Rules, Option<Aged>),
) -> Offset {
    let first = view.first_unacked;
    if view.backlog == 0 || !rules.evict() {
        return first;
    }
    let bytes = rules.backlog.bytes;
    let too_much = bytes.is_some_and(|limit| open.kept_bytes(view) > limit);
    let too_old = aged.is_some_and(|aged| first < aged.over);
    if !too_much && !too_old {
        return first;
    }
    let by_bytes = bytes.map_or(first, |limit| open.first_within_quota(first, limit));
    by_bytes.max(aged.map_or(first, |aged| aged.kept))
}

/// Records below `end` that are not acked.
fn unacked_below(view: &CursorView, end: Offset) -> u64 {
    let below = OffsetRange {
        first: view.first_unacked,
        end,
    };
    let acked: OffsetRanges = view.ranges.iter().copied().collect();
    let acked: u64 = acked.within(below).map(|range| range.len()).sum();
    below.len() - acked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effect_of_very_many_subscriptions_lists_the_greatest_losses_and_counts_the_rest() {
        let loss = |records: u64| v1::BacklogLoss {
            subscription: format!("a/b/{records}"),
            records,
        };
        let effect = v1::UpdateEffect {
            partition: 3,
            loss: (0..10).map(loss).collect(),
            ..Default::default()
        };
        let whole = shortened(effect.clone(), 10);
        assert_eq!((whole.loss.len(), whole.unlisted), (10, 0));
        let short = shortened(effect, 2);
        assert_eq!(short.loss, [loss(9), loss(8)]);
        let rest = (0..8).sum();
        assert_eq!((short.unlisted, short.unlisted_records), (8, rest));
        assert_eq!(short.partition, 3);
    }
}
