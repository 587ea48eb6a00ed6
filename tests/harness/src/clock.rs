//! The wall of a simulation: a date carried on by virtual time, and steps in either direction.

use std::sync::atomic::{AtomicI64, Ordering};

use hulse_proto::time::{TimestampMs, WallClock};
use tokio::time::Instant;

/// Where every simulation begins, ms since 1970.
const BEGIN: TimestampMs = 1_700_000_000_000;

/// A wall clock over tokio's (paused) time.
#[derive(Debug)]
pub struct SimClock {
    started: Instant,
    offset: AtomicI64,
}

impl SimClock {
    /// Begins now; call it inside the runtime.
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            offset: AtomicI64::new(0),
        }
    }

    /// Somebody sets the clock: forwards, or backwards when negative.
    pub fn step(&self, ms: i64) {
        self.offset.fetch_add(ms, Ordering::Relaxed);
    }

    /// Virtual milliseconds since the beginning, without steps.
    pub fn elapsed_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

impl WallClock for SimClock {
    fn now_ms(&self) -> TimestampMs {
        BEGIN + self.elapsed_ms() as i64 + self.offset.load(Ordering::Relaxed)
    }
}
