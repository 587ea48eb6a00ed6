//! How fast copies are made: a bound on bytes a second, shared by all repairs (storage.md X7).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// So much of unspent time is kept.
const BURST: Duration = Duration::from_millis(100);

/// A rate. Who spends waits until what was spent before has had its time.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: u64,
    free_at: Mutex<Option<Instant>>,
}

impl Pace {
    /// So many bytes a second, at least one.
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            free_at: Mutex::new(None),
        }
    }

    /// Waits for the turn of so many bytes. Cancel-safe: bytes of a dropped call count as spent.
    pub async fn spend(&self, bytes: u64) {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let now = Instant::now();
        let turn = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            let earliest = now.checked_sub(BURST).unwrap_or(now);
            let turn = free_at.map_or(earliest, |at| at.max(earliest));
            *free_at = Some(turn + takes);
            turn
        };
        if turn > now {
            sleep_until(turn).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_take_the_time_that_the_rate_gives_them() {
        let pace = Pace::new(1_000_000);
        let began = Instant::now();
        for _ in 0..100 {
            pace.spend(50_000).await;
        }
        let took = began.elapsed();
        let expected = Duration::from_millis(4_850);
        assert!(
            took >= expected && took < expected + Duration::from_millis(100),
            "{took:?}"
        );
    }
}
