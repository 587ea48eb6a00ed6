//! One rate for all that the node does to its own files in the background (storage.md G14). No clock.

use std::time::Duration;

/// So much may be behind hand before it is made up for by speed: after a pause nothing bursts.
const BURST: Duration = Duration::from_millis(100);

/// Tells how long to wait after each piece of work.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    bytes_per_second: u64,
    /// When all work so far is paid for.
    paid: Duration,
}

impl Pace {
    /// At most so many bytes per second; at least 1.
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            paid: Duration::ZERO,
        }
    }

    /// After `bytes` were read or written, at `now`: the wait until the next piece.
    pub fn spend(&mut self, bytes: u64, now: Duration) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.paid = self.paid.max(now.saturating_sub(BURST));
        self.paid = self.paid.saturating_add(cost);
        self.paid.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_holds_the_rate_and_does_not_burst_after_a_pause() {
        let mut pace = Pace::new(1_000);
        let mut now = Duration::from_secs(50);
        let begun = now;
        for _ in 0..100 {
            now += pace.spend(100, now);
        }
        let took = now - begun;
        assert!(took >= Duration::from_millis(9_900), "{took:?}");
        assert!(took <= Duration::from_millis(10_000), "{took:?}");
        now += Duration::from_secs(1_000);
        let waits: Duration = (0..10).map(|_| pace.spend(100, now)).sum();
        assert!(waits > Duration::from_secs(3), "{waits:?}");
    }
}
