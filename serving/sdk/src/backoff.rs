//! Waiting between attempts: exponential from 10 to 200 ms, jittered, so that many clients of a broker that comes back do not
//! arrive in one wave and none waits long.

use std::time::Duration;

use rand::Rng;

/// Shortest wait before a redial or a resend.
pub(crate) const WAIT_MIN: Duration = Duration::from_millis(10);
/// Longest one.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(200);

/// The state of one series of attempts. No clock, no randomness of its own.
#[derive(Debug)]
pub(crate) struct Backoff {
    ceiling: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { ceiling: WAIT_MIN }
    }

    /// The next wait: between half the ceiling and the ceiling, which doubles each time; never below `advised`.
    pub(crate) fn next(&mut self, rng: &mut impl Rng, advised: Option<Duration>) -> Duration {
        let ceiling = self.ceiling.as_micros() as u64;
        self.ceiling = (self.ceiling * 2).min(WAIT_MAX);
        let floor = (ceiling / 2).max(WAIT_MIN.as_micros() as u64);
        let wait = Duration::from_micros(rng.random_range(floor..=ceiling.max(floor)));
        wait.max(advised.unwrap_or_default())
    }

    /// After a success.
    pub(crate) fn reset(&mut self) {
        self.ceiling = WAIT_MIN;
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn waits_grow_stay_in_bounds_and_start_again_after_reset() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut backoff = Backoff::new();
        let waits: Vec<_> = (0..20).map(|_| backoff.next(&mut rng, None)).collect();
        assert!(
            waits
                .iter()
                .all(|wait| (WAIT_MIN..=WAIT_MAX).contains(wait))
        );
        assert!(waits[19] >= WAIT_MAX / 2);
        backoff.reset();
        assert_eq!(backoff.next(&mut rng, None), WAIT_MIN);
        let advised = Duration::from_secs(1);
        assert_eq!(backoff.next(&mut rng, Some(advised)), advised);
    }
}
