//! Seek, skip, clear and redrive.

use futures::StreamExt;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::Offset;
use hulse_proto::wire::v1;

use super::describing::{PARTITIONS_AT_ONCE, Place};
use crate::listener::front::Front;
use crate::listener::wire::topic_name;
use crate::state::{OffsetRange, OffsetRanges};
use crate::subscriptions::{StartPoint, Subscription, SubscriptionKind, not_shared};
use crate::{CursorMove, CursorView, LogOffsets, PartitionHandle};

/// Where cursors go.
#[derive(Debug, Clone, Copy)]
pub(super) enum Goal {
    Seek(StartPoint),
    /// Over so many records that are not acked.
    Skip(u64),
    /// Over all that is stored.
    Clear,
    /// Nowhere: parked records are tried anew.
    Redrive,
}

/// Which cursors move, and whether they do.
pub(super) struct Order<'a> {
    pub(super) subscription: &'a str,
    pub(super) topic: &'a str,
    pub(super) partition: Option<u32>,
    pub(super) goal: Goal,
    pub(super) dry_run: bool,
}

impl Front {
    /// Moves them. One that cannot be moved has its fault in the answer.
    pub(super) async fn move_cursors(
        &self,
        order: Order<'_>,
    ) -> Result<v1::SeekSubscriptionResponse, Fault> {
        let topic = match order.topic {
            "" => None,
            topic => Some(self.topics.get(&topic_name(topic)?).await?),
        };
        let of_topic = topic.as_ref().map(|topic| &topic.name);
        let name = self.subscription_name(order.subscription, of_topic)?;
        let subscription = self.subscriptions.get(&name).await?;
        if subscription.deleting {
            let words = format!("subscription {name} is being deleted");
            return Err(Fault::new(Reason::SubscriptionDeleting, words));
        }
        if subscription.kind == SubscriptionKind::Stream {
            let cursors = self.move_group(&name, topic.as_ref(), &order).await?;
            return Ok(v1::SeekSubscriptionResponse { cursors });
        }
        let mut places = self.places(&subscription, topic.as_ref()).await?;
        if let Some(partition) = order.partition {
            places.retain(|place| place.partition.index == partition);
            if places.is_empty() {
                let words = format!("there is no partition {partition}");
                return Err(Fault::new(Reason::PartitionNotFound, words));
            }
        }
        let moved = futures::stream::iter(places).map(|place| {
            let (subscription, order) = (&subscription, &order);
            async move {
                let moved = self.move_one(subscription, &place, order).await;
                let mut moved = moved.unwrap_or_else(|fault| v1::MovedCursor {
                    fault: Some(fault.to_wire()),
                    ..Default::default()
                });
                moved.topic = place.topic.as_str().to_owned();
                moved.partition = place.partition.index;
                moved
            }
        });
        let cursors = moved.buffered(PARTITIONS_AT_ONCE).collect().await;
        Ok(v1::SeekSubscriptionResponse { cursors })
    }

    pub(super) async fn move_here(
        &self,
        subscription: &Subscription,
        place: &Place,
        order: &Order<'_>,
    ) -> Result<v1::MovedCursor, Fault> {
        let ranges_max = match order.goal {
            Goal::Skip(_) => usize::MAX,
            _ => 0,
        };
        let (open, view) = self.cursor_at(subscription, place, ranges_max).await?;
        let offsets = open.told_offsets().await?;
        let (to, keep_acked) = match order.goal {
            Goal::Seek(point) => (self.resolve(&open, point).await?, false),
            Goal::Skip(records) => (behind(&view, records, offsets), true),
            Goal::Clear => (offsets.high_watermark, true),
            Goal::Redrive => {
                let here = (&open, &view);
                return self.redrive_here(subscription, here, order.dry_run).await;
            }
        };
        let left = OffsetRange {
            first: to,
            end: offsets.high_watermark,
        };
        let acked = match keep_acked {
            true => view.ranges.iter().copied().collect(),
            false => OffsetRanges::default(),
        };
        let acked: u64 = acked.within(left).map(|range| range.len()).sum();
        let mut answer = v1::MovedCursor {
            old_base: view.base.0,
            new_base: to.0,
            old_backlog_records: view.backlog,
            new_backlog_records: left.len() - acked,
            state_epoch: view.state_epoch,
            ..Default::default()
        };
        if !order.dry_run {
            let moved = open.move_cursor(place.cursor, CursorMove { to, keep_acked });
            answer.state_epoch = moved.await?.state_epoch;
        }
        Ok(answer)
    }
}

impl Front {
    async fn redrive_here(
        &self,
        subscription: &Subscription,
        (open, view): (&PartitionHandle, &CursorView),
        dry_run: bool,
    ) -> Result<v1::MovedCursor, Fault> {
        let plan = subscription.plan(view.subscription, &self.config);
        let plan = plan.ok_or_else(|| not_shared(subscription, "redriven"))?;
        Ok(v1::MovedCursor {
            old_base: view.base.0,
            new_base: view.base.0,
            old_backlog_records: view.backlog,
            new_backlog_records: view.backlog,
            state_epoch: view.state_epoch,
            redriven_records: open.redrive(plan, dry_run).await?,
            ..Default::default()
        })
    }
}

/// The offset behind the next `records` that are not acked.
fn behind(view: &CursorView, records: u64, offsets: LogOffsets) -> Offset {
    let acked: OffsetRanges = view.ranges.iter().copied().collect();
    let within = OffsetRange {
        first: view.base.max(offsets.log_start),
        end: offsets.high_watermark,
    };
    let mut left = records;
    for range in acked.missing(within) {
        if left <= range.len() {
            return Offset(range.first.0 + left);
        }
        left -= range.len();
    }
    offsets.high_watermark.max(view.base)
}
