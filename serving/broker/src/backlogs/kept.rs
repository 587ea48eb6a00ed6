//! What one subscription keeps of one partition.

use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, PartitionId};
use hulse_proto::size;
use hulse_proto::time::TimestampMs;

use super::policy::BacklogLimits;
use crate::{CursorView, PartitionHandle};

/// A subscription that was over its limit is let go down to this part of it, so that it is not cut again at once.
const KEPT_SHARE: (u32, u32) = (9, 10);
/// A producer that was refused tries again after this.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a limit of time means on a partition at a moment, for every subscription on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Aged {
    /// Whoever keeps a record below keeps it for longer than the limit.
    pub(crate) over: Offset,
    /// And is let go up to here.
    pub(crate) kept: Offset,
}

/// How much. All zero: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kept {
    /// From the first record that is not processed to the end of the log: what storage must keep for it.
    pub(crate) bytes: u64,
    /// Since that record was appended; zero where nobody asked.
    pub(crate) age: Duration,
}

impl Kept {
    /// Of the limit that is nearest: 1.0 is all of it.
    pub(crate) fn used(&self, limits: &BacklogLimits) -> f64 {
        let bytes = limits
            .bytes
            .map_or(0.0, |limit| self.bytes as f64 / limit.max(1) as f64);
        let time = limits.time.map_or(0.0, |limit| {
            self.age.as_secs_f64() / limit.as_secs_f64().max(0.001)
        });
        bytes.max(time)
    }

    /// The same in whole percent; `None`: there is no limit.
    pub(crate) fn used_percent(&self, limits: &BacklogLimits) -> Option<u32> {
        // A limit of nothing is exceeded by anything.
        let percent = (self.used(limits) * 100.0).min(f64::from(u32::MAX));
        (!limits.is_off()).then_some(percent as u32)
    }

    /// More than is allowed.
    pub(crate) fn exceeds(&self, limits: &BacklogLimits) -> bool {
        limits.bytes.is_some_and(|limit| self.bytes > limit)
            || limits.time.is_some_and(|limit| self.age > limit)
    }

    /// What producers hear while `subscription` keeps so much.
    pub(super) fn refusal(
        &self,
        subscription: &str,
        partition: PartitionId,
        limits: &BacklogLimits,
    ) -> Fault {
        let mut over = Vec::new();
        if let Some(limit) = limits.bytes.filter(|limit| self.bytes > *limit) {
            over.push(format!(
                "{}, of {} that are allowed",
                size::about(self.bytes),
                size::exact(limit)
            ));
        }
        if let Some(limit) = limits.time.filter(|limit| self.age > *limit) {
            let (age, limit) = (self.age.as_secs(), limit.as_secs_f64());
            over.push(format!(
                "records that are {age} s old, of {limit} s that are allowed"
            ));
        }
        let words = format!(
            "subscription {subscription} keeps {} of partition {}, and the topic's backlog policy is to reject producers; nothing was stored: let it consume, skip or delete it, or raise the limit with `hulse topics update`",
            over.join(" and "),
            partition.index
        );
        Fault::new(Reason::BacklogExceeded, words)
            .with("subscription", subscription)
            .with("backlog_bytes", self.bytes)
            .with("backlog_age_ms", self.age.as_millis())
            .retry_after(RETRY_AFTER)
    }
}

fn kept_bytes(limit: u64) -> u64 {
    let (part, whole) = KEPT_SHARE;
    (u128::from(limit) * u128::from(part) / u128::from(whole)) as u64
}

fn kept_time(limit: Duration) -> Duration {
    let (part, whole) = KEPT_SHARE;
    limit * part / whole
}

fn before(now: TimestampMs, age: Duration) -> TimestampMs {
    let age = TimestampMs::try_from(age.as_millis());
    now.saturating_sub(age.unwrap_or(TimestampMs::MAX))
}

impl PartitionHandle {
    /// Bytes that a cursor keeps, zero where it has no backlog; within the ledger that it stands in, in proportion to offsets.
    pub(crate) fn kept_bytes(&self, view: &CursorView) -> u64 {
        match view.backlog {
            0 => 0,
            _ => self.bytes_from(view.first_unacked),
        }
    }

    /// Bytes of the log from `from` on.
    pub(crate) fn bytes_from(&self, from: Offset) -> u64 {
        self.0.log.with_view(|log| log.bytes_from(from))
    }

    /// When the first record at or behind `from` was appended; `None`: there is none, or it was trimmed meanwhile.
    ///
    /// # Errors
    /// As of a read.
    pub(crate) async fn appended_at(&self, from: Offset) -> Result<Option<TimestampMs>, Fault> {
        let mut from = from;
        loop {
            let chunk = match self.read(from, 1).await {
                Err(fault) if fault.reason == Reason::OffsetOutOfRange => return Ok(None),
                chunk => chunk?,
            };
            if let Some(batch) = chunk.batches.first() {
                return Ok(Some(batch.append_time));
            }
            if chunk.end <= from {
                return Ok(None);
            }
            from = chunk.end;
        }
    }

    /// The first record that a subscription which is over its limits may keep. `first` is its first one that is not processed, `now`
    /// the wall's time.
    ///
    /// # Errors
    /// As of a read.
    pub(crate) async fn first_kept(
        &self,
        first: Offset,
        limits: &BacklogLimits,
        now: TimestampMs,
    ) -> Result<Offset, Fault> {
        let end = self.offsets().high_watermark;
        let mut kept = first;
        if let Some(limit) = limits.bytes {
            kept = kept.max(self.first_within_quota(first, limit));
        }
        if let Some(limit) = limits.time {
            kept = self
                .first_since(kept, end, before(now, kept_time(limit)))
                .await?;
        }
        Ok(kept)
    }

    /// What the limit of time means here; `None`: there is none. Two searches, however many subscriptions there are.
    ///
    /// # Errors
    /// As of a read.
    pub(crate) async fn aged(
        &self,
        limits: &BacklogLimits,
        now: TimestampMs,
    ) -> Result<Option<Aged>, Fault> {
        let Some(limit) = limits.time else {
            return Ok(None);
        };
        let offsets = self.offsets();
        let (start, end) = (offsets.log_start, offsets.high_watermark);
        let over = self.first_since(start, end, before(now, limit)).await?;
        let kept = before(now, kept_time(limit));
        Ok(Some(Aged {
            over,
            kept: self.first_since(over, end, kept).await?,
        }))
    }

    /// The first offset behind `first` from where on a subscription that was over a limit of bytes keeps what it may.
    pub(crate) fn first_within_quota(&self, first: Offset, limit: u64) -> Offset {
        let end = self.offsets().high_watermark;
        self.first_within(first, end, kept_bytes(limit))
    }

    /// The first offset of `first..end` behind which at most so many bytes lie.
    pub(crate) fn first_within(&self, first: Offset, end: Offset, bytes: u64) -> Offset {
        let (mut low, mut high) = (first.0, end.0);
        self.0.log.with_view(|log| {
            while low < high {
                let middle = low + (high - low) / 2;
                match log.bytes_from(Offset(middle)) <= bytes {
                    true => high = middle,
                    false => low = middle + 1,
                }
            }
        });
        Offset(low)
    }

    /// The first offset of `first..end` whose record was appended at `oldest` or later; times of appends never go back.
    ///
    /// # Errors
    /// As of a read.
    pub(crate) async fn first_since(
        &self,
        first: Offset,
        end: Offset,
        oldest: TimestampMs,
    ) -> Result<Offset, Fault> {
        let (mut low, mut high) = (first.0, end.0);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.appended_at(Offset(middle)).await? {
                Some(at) if at < oldest => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(Offset(low))
    }
}
