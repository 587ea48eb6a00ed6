//! The owner's clock: the only time that `apply()`, retention and expiry know (ARCHITECTURE D2).
//!
//! Read from the wall once, then carried on by passing time; slewed towards the wall by at most 1 %, never backwards. The slew is
//! reckoned over at least [`SLEW_OVER_MS`], since a hundredth of less is no whole millisecond.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::time::{TimestampMs, WallClock};
use tokio::time::Instant;

/// Time that must have passed before the clock is slewed: a busy owner asks every few microseconds.
const SLEW_OVER_MS: i64 = 100;

/// A monotone clock of one partition.
pub(crate) struct OwnerClock {
    wall: Arc<dyn WallClock>,
    /// The last answer.
    now: TimestampMs,
    /// What the clock showed at `slewed_at`.
    base: TimestampMs,
    slewed_at: Instant,
}

impl OwnerClock {
    /// Starts at the wall's date, or at `not_before` (the last entry's append time) when that is later.
    pub(crate) fn new(wall: Arc<dyn WallClock>, not_before: TimestampMs) -> Self {
        let now = wall.now_ms().max(not_before);
        Self {
            wall,
            now,
            base: now,
            slewed_at: Instant::now(),
        }
    }

    /// Now, ms since 1970; never below an earlier answer.
    pub(crate) fn now_ms(&mut self) -> TimestampMs {
        let elapsed = self.slewed_at.elapsed().as_millis() as i64;
        let mut now = self.base + elapsed;
        if elapsed >= SLEW_OVER_MS {
            let slew = elapsed / 100;
            now += (self.wall.now_ms() - now).clamp(-slew, slew);
            self.base = now;
            self.slewed_at += Duration::from_millis(elapsed as u64);
        }
        self.now = self.now.max(now);
        self.now
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

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

    #[tokio::test(start_paused = true)]
    async fn clock_that_is_asked_every_millisecond_is_slewed_no_faster() {
        for far_off in [0, 9_000_000] {
            let wall = Arc::new(Wall(AtomicI64::new(1_000_000)));
            let mut clock = OwnerClock::new(wall.clone(), 0);
            let begin = clock.now_ms();
            wall.0.store(far_off, Ordering::Relaxed);
            for _ in 0..10_000 {
                tokio::time::advance(Duration::from_millis(1)).await;
                clock.now_ms();
            }
            let passed = clock.now_ms() - begin;
            assert!((9_900..=10_100).contains(&passed), "{passed} ms in 10 s");
        }
    }
}
