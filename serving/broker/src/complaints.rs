//! One warning for what concerns thousands of partitions at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// One kind of trouble is told at most this often.
const EVERY: Duration = Duration::from_secs(10);

/// Who has one kind of trouble.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    told: Option<Instant>,
    since: u64,
}

impl Complaints {
    /// Somebody has trouble. `Some`: it is to be told, of so many others that were not since the last time.
    pub(crate) fn speak(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.told.is_some_and(|told| told.elapsed() < EVERY) {
            state.since += 1;
            return None;
        }
        state.told = Some(Instant::now());
        Some(std::mem::take(&mut state.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn trouble_of_thousands_is_told_once_with_their_number() {
        let complaints = Complaints::default();
        let told = (0..10_000).filter_map(|_| complaints.speak()).count();
        assert_eq!(told, 1);
        tokio::time::advance(EVERY).await;
        assert_eq!(complaints.speak(), Some(9_999));
    }
}
