//! Event time: how far each input partition has come, and how far the task (compute.md B7).
//!
//! # Invariants
//! 1. The watermark of a partition is the largest event time it showed, less the delay; it never goes back.
//! 2. The watermark of the task is the least over partitions that are not idle; it never goes back, whatever wakes up.
//! 3. Idle is only who was read to the end of its log for the whole of the timeout. A slow reader is not idle.
//! 4. A time beyond the owner's clock by more than `max_future` moves nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use hulse_proto::time::TimestampMs;

use crate::id::InputPartition;
use crate::mutant::{Mutant, Mutation};
use crate::record::Fetched;

/// Below every event time: no watermark yet.
pub const NO_WATERMARK: TimestampMs = TimestampMs::MIN;

/// How event time is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimePolicy {
    /// Records may come out of order by this much.
    pub delay: Duration,
    /// A partition read to its end for so long holds nothing back.
    pub idle_after: Duration,
    /// Times beyond the append time by more than this are not believed.
    pub max_future: Duration,
    /// Once all partitions are idle, the watermark goes on to the end of the last open window, so that its result comes out.
    pub idle_advance: bool,
}

impl Default for TimePolicy {
    /// No disorder, 10 s, 1 h, on.
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            idle_after: Duration::from_secs(10),
            max_future: Duration::from_secs(3600),
            idle_advance: true,
        }
    }
}

/// A duration as a difference of timestamps.
pub fn millis(duration: Duration) -> TimestampMs {
    TimestampMs::try_from(duration.as_millis()).unwrap_or(TimestampMs::MAX)
}

/// How far one partition has come; what is kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Largest believed event time less the delay; [`NO_WATERMARK`] before the first.
    pub watermark: TimestampMs,
    /// It holds nothing back now.
    pub idle: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            watermark: NO_WATERMARK,
            idle: false,
        }
    }
}

/// The watermarks of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermarks {
    /// Of the task; lateness is judged by it until the next epoch is committed.
    pub stage: TimestampMs,
    /// By partition.
    pub partitions: BTreeMap<InputPartition, Progress>,
}

impl Watermarks {
    /// Before the first record.
    pub fn new(partitions: impl IntoIterator<Item = InputPartition>) -> Self {
        Self {
            stage: NO_WATERMARK,
            partitions: partitions
                .into_iter()
                .map(|at| (at, Progress::default()))
                .collect(),
        }
    }

    /// Takes the event time of a record; false when it lies too far in the future to be believed.
    pub fn observe(
        &mut self,
        at: InputPartition,
        event_time: TimestampMs,
        append_time: TimestampMs,
        policy: &TimePolicy,
    ) -> bool {
        if event_time > append_time.saturating_add(millis(policy.max_future)) {
            return false;
        }
        let progress = self.partitions.entry(at).or_default();
        let watermark = event_time.saturating_sub(millis(policy.delay));
        progress.watermark = progress.watermark.max(watermark);
        true
    }

    /// Moves the task's watermark on and returns it. `open_until`: the watermark that would close every open window.
    pub fn advance(
        &mut self,
        open_until: Option<TimestampMs>,
        policy: &TimePolicy,
        mutation: Mutation,
    ) -> TimestampMs {
        let active = self.partitions.values().filter(|progress| !progress.idle);
        let marks = active.map(|progress| progress.watermark);
        let reached = match mutation.is(Mutant::WatermarkIsMaximum) {
            true => marks.max(),
            false => marks.min(),
        };
        let reached = match reached {
            Some(least) => least,
            // All idle: as far as any has come, and past what is open if the function wants its last windows.
            None => {
                let most = self
                    .partitions
                    .values()
                    .map(|progress| progress.watermark)
                    .max();
                let open = open_until.filter(|_| policy.idle_advance);
                most.max(open).unwrap_or(NO_WATERMARK)
            }
        };
        self.stage = self.stage.max(reached);
        self.stage
    }
}

/// Since when each partition has been read to its end. Not kept: after a restart idleness is found anew, later.
#[derive(Debug, Clone, Default)]
pub struct Idleness {
    at_end_since: BTreeMap<InputPartition, TimestampMs>,
}

impl Idleness {
    /// Takes what a fetch proved at `now` and marks who is idle.
    pub fn judge(
        &mut self,
        fetched: &[Fetched],
        now: TimestampMs,
        marks: &mut Watermarks,
        policy: &TimePolicy,
        mutation: Mutation,
    ) {
        for one in fetched {
            let quiet = one.records.is_empty();
            let proved = one.next == one.end || mutation.is(Mutant::SilenceIsIdle);
            let progress = marks.partitions.entry(one.partition).or_default();
            if !(quiet && proved) {
                self.at_end_since.remove(&one.partition);
                progress.idle = false;
                continue;
            }
            let since = *self.at_end_since.entry(one.partition).or_insert(now);
            progress.idle |= now.saturating_sub(since) >= millis(policy.idle_after);
        }
    }
}
