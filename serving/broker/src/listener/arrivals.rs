//! Partitions that another broker is about to hand over to this one.
//!
//! Their clients are sent here as soon as the other broker lets go, which may be before its word that they can be taken. Whoever asks for
//! one meanwhile waits for it, instead of being sent back.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use hulse_proto::id::PartitionId;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// What was announced and does not come for so long is expected no more: its owner died, or could not let go of it.
const EXPECTED_MAX: Duration = Duration::from_secs(5);
/// Partitions that are expected at once; of more, clients are sent to and fro for a moment.
const ARRIVALS_MAX: usize = 10_000;

/// Until when it is expected. Its end wakes those that wait.
struct Arrival(watch::Sender<Instant>);

impl Arrival {
    fn until(&self) -> Instant {
        *self.0.borrow()
    }
}

/// The expected ones.
#[derive(Default)]
pub(super) struct Arrivals(Mutex<BTreeMap<PartitionId, Arrival>>);

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PartitionId, Arrival>> {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
    }

    /// It will come soon. Announced again, those that wait for it already wait on.
    pub(super) fn expect(&self, partition: PartitionId) {
        let now = Instant::now();
        let until = now + EXPECTED_MAX;
        let mut all = self.lock();
        all.retain(|_, arrival| arrival.until() > now);
        match all.get(&partition) {
            Some(arrival) => {
                arrival.0.send_replace(until);
            }
            None if all.len() < ARRIVALS_MAX => {
                all.insert(partition, Arrival(watch::Sender::new(until)));
            }
            None => {}
        }
    }

    /// It has come, or will not.
    pub(super) fn over(&self, partition: PartitionId) {
        drop(self.lock().remove(&partition));
    }

    /// Waits until it is here, or expected no more. Returns at once where it was not announced.
    pub(super) async fn wait(&self, partition: PartitionId) {
        let found = {
            let all = self.lock();
            all.get(&partition).map(|arrival| arrival.0.subscribe())
        };
        let Some(mut arrival) = found else {
            return;
        };
        loop {
            let until = *arrival.borrow_and_update();
            // Another time: it was announced again. No sender any more: it is over.
            match timeout_at(until, arrival.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::TopicId;
    use uuid::Uuid;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_what_is_expected_waits_until_it_is_here_or_does_not_come() {
        let partition = PartitionId {
            topic: TopicId(Uuid::from_u128(7)),
            index: 0,
        };
        let arrivals = Arrivals::default();
        let began = Instant::now();
        arrivals.wait(partition).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        arrivals.expect(partition);
        let comes = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            arrivals.over(partition);
        };
        tokio::join!(comes, arrivals.wait(partition), arrivals.wait(partition));
        assert_eq!(began.elapsed(), Duration::from_millis(300));
        arrivals.expect(partition);
        arrivals.wait(partition).await;
        assert_eq!(began.elapsed(), Duration::from_millis(5_300));
        arrivals.wait(partition).await;
        assert_eq!(began.elapsed(), Duration::from_millis(5_300));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_what_is_announced_again_waits_on() {
        let partition = PartitionId {
            topic: TopicId(Uuid::from_u128(7)),
            index: 0,
        };
        let arrivals = Arrivals::default();
        let began = Instant::now();
        arrivals.expect(partition);
        let comes = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            arrivals.expect(partition);
            tokio::time::sleep(Duration::from_secs(4)).await;
            arrivals.over(partition);
        };
        tokio::join!(comes, arrivals.wait(partition));
        assert_eq!(began.elapsed(), Duration::from_secs(7));
    }
}
