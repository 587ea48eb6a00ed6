//! What a lane says: where it stands, a unit, and why nothing flows.

use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::wire::v1::{self, consume_down};
use tokio::time::{Instant, sleep_until};

use super::delivery::Unit;
use super::lane::{End, Lane};
use crate::state::OffsetRange;
use crate::{Cause, LaneView, Stand};

/// A stop of the flow is told when it has lasted this long.
const BLOCKED_AFTER: Duration = Duration::from_millis(500);

impl Lane {
    /// What is said of a stand.
    pub(super) fn stand_item(&mut self, view: &LaneView) -> Option<consume_down::Item> {
        let lane = self.number;
        let begin = self.progress.begin.as_ref();
        let acked = begin.map_or_else(Vec::new, |begin| begin.acked.iter().map(to_wire).collect());
        let base = begin.map_or(0, |begin| begin.base.0);
        let state_epoch = begin.map_or(0, |begin| begin.state_epoch);
        let acks_to = begin.map_or(0, |begin| begin.acks_to.0);
        if !self.progress.attached {
            let partition = self.tie.partition();
            return Some(consume_down::Item::Attached(v1::Attached {
                lane,
                subscription_uuid: self.tie.subscription().to_bytes(),
                leader_epoch: partition.leader_epoch().0,
                base,
                acked,
                high_watermark: partition.offsets().high_watermark.0,
                state_epoch,
                active: begin.is_some(),
                acks_to,
                lock_ms: 0,
            }));
        }
        let cause = begin.map_or(Cause::Activated, |begin| begin.cause);
        if cause != Cause::Activated && self.progress.told_active {
            let seek_id = begin.map_or(0, |begin| begin.seek_id);
            let before = std::mem::replace(&mut self.progress.seek_id, seek_id);
            return Some(consume_down::Item::SeekDone(v1::SeekDone {
                lane,
                seek_id: if seek_id == before { 0 } else { seek_id },
                state_epoch,
                base,
                fault: None,
                evicted: cause == Cause::Evicted,
            }));
        }
        if begin.is_none() && !self.progress.told_active {
            return None;
        }
        let grace_ms = match view.stand {
            Stand::Yielding(grace) => grace.as_millis() as u32,
            _ => 0,
        };
        Some(consume_down::Item::ActiveChanged(v1::ActiveChanged {
            lane,
            active: begin.is_some(),
            base,
            acked,
            state_epoch,
            grace_ms,
            acks_to,
        }))
    }

    /// A unit for the wire.
    pub(super) fn delivery(&self, unit: Unit) -> v1::Delivery {
        let begin = self.progress.begin.as_ref();
        let acquired = unit.acquired.iter().map(|range| v1::AcquiredRange {
            first: range.first.0,
            end: range.end.0,
            delivery_count: 0,
        });
        v1::Delivery {
            lane: self.number,
            // Numbered where it leaves.
            delivery_seq: 0,
            prev_end_offset: unit.prev_end.0,
            end_offset: unit.end.0,
            batch: unit.batch,
            acquired: acquired.collect(),
            skipped: unit.skipped,
            high_watermark: self.tie.partition().offsets().high_watermark.0,
            state_epoch: begin.map_or(0, |begin| begin.state_epoch),
            append_time: unit.append_time,
        }
    }

    /// Nothing flows for a reason that the client should know if it lasts.
    pub(super) async fn stopped(&mut self, why: v1::BlockedReason) -> Result<(), End> {
        match self.progress.stopped {
            Some((_, known, true)) if known == why => self.changed().await,
            Some((since, known, false)) if known == why => {
                if since.elapsed() < BLOCKED_AFTER {
                    return self.changed_or(sleep_until(since + BLOCKED_AFTER)).await;
                }
                self.progress.stopped = Some((since, why, true));
                self.tell_blocked(why, false, None).await
            }
            _ => {
                self.flows().await?;
                self.progress.stopped = Some((Instant::now(), why, false));
                Ok(())
            }
        }
    }

    /// The flow is not stopped, or not any more.
    pub(super) async fn flows(&mut self) -> Result<(), End> {
        match self.progress.stopped.take() {
            Some((_, why, true)) => self.tell_blocked(why, true, None).await,
            _ => Ok(()),
        }
    }

    /// Acks wait, or do not any more.
    pub(super) async fn tell_acks_wait(&mut self, why: Option<&Fault>) -> Result<(), End> {
        if !self.progress.attached || why.is_some() == self.progress.acks_wait {
            return Ok(());
        }
        self.progress.acks_wait = why.is_some();
        self.tell_blocked(v1::BlockedReason::AcksWait, why.is_none(), why)
            .await
    }

    async fn tell_blocked(
        &mut self,
        reason: v1::BlockedReason,
        over: bool,
        fault: Option<&Fault>,
    ) -> Result<(), End> {
        let max = self.shared.front.config.unacked_records_max;
        let message = match reason {
            _ if over => String::new(),
            v1::BlockedReason::AckRanges => {
                "the cursor has too many acked ranges; ack the records between them".to_owned()
            }
            v1::BlockedReason::AcksWait => {
                "acks cannot be made durable now; they wait, deliveries go on".to_owned()
            }
            _ => format!("{max} records are delivered and not acked; ack some"),
        };
        let item = consume_down::Item::Blocked(v1::Blocked {
            lane: self.number,
            reason: reason as i32,
            over,
            message,
            fault: fault.map(Fault::to_wire),
        });
        Ok(self.send(item, None).await?)
    }
}

fn to_wire(range: OffsetRange) -> v1::OffsetRange {
    v1::OffsetRange {
        first: range.first.0,
        end: range.end.0,
    }
}
