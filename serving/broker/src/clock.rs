//! The owner's clock: the only time that `apply()`, retention and expiry know (ARCHITECTURE D2).
//!
//! Read from the wall once, then carried on by passing time; slewed towards the wall by at most 1 %, never backwards.

use std::sync::Arc;

use hulse_proto::time::{TimestampMs, WallClock};
use tokio::time::Instant;

/// A monotone clock of one partition.
pub(crate) struct OwnerClock {
    wall: Arc<dyn WallClock>,
    now: TimestampMs,
    read_at: Instant,
}

impl OwnerClock {
    /// Starts at the wall's date, or at `not_before` (the last entry's append time) when that is later.
    pub(crate) fn new(wall: Arc<dyn WallClock>, not_before: TimestampMs) -> Self {
        let now = wall.now_ms().max(not_before);
        Self {
            wall,
            now,
            read_at: Instant::now(),
        }
    }

    /// Now, ms since 1970; never below an earlier answer.
    pub(crate) fn now_ms(&mut self) -> TimestampMs {
        let elapsed = self.read_at.elapsed().as_millis() as i64;
        if elapsed > 0 {
            let carried = self.now + elapsed;
            let slew = (elapsed / 100).max(1);
            let drift = (self.wall.now_ms() - carried).clamp(-slew, slew);
            self.now = self.now.max(carried + drift);
            self.read_at += std::time::Duration::from_millis(elapsed as u64);
        }
        self.now
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use super::*;

    struct Wall(AtomicI64);
    impl WallClock for Wall {
        fn now_ms(&self) -> TimestampMs {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clock_is_slewed_by_at_most_one_percent_and_never_goes_back() {
        let wall = Arc::new(Wall(AtomicI64::new(1_000_000)));
        let mut clock = OwnerClock::new(wall.clone(), 5);
        assert_eq!(clock.now_ms(), 1_000_000);
        wall.0.store(9_000_000, Ordering::Relaxed);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(clock.now_ms(), 1_010_100);
        wall.0.store(0, Ordering::Relaxed);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(clock.now_ms(), 1_020_000);
        assert_eq!(OwnerClock::new(wall, 77).now_ms(), 77);
    }
}
