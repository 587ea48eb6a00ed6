//! This broker's own lease, as its keeper knows it: may others have taken partitions over by now?
//!
//! Safety never rests on it (ARCHITECTURE D6): bookies refuse what a former owner appends. But where a log ends is told without asking
//! them, and that may be told only by an owner. While the lease vouches, nobody can have become one: whoever wins an epoch compares, in
//! the same transaction, that the life which had the partition before is not registered (`Owners::of_the_dead`). While it does not, a
//! partition looks (`partition::tenure`).
//!
//! # Invariants
//! 1. It vouches no longer than the store keeps a lease that was renewed when the keeper *asked* for that, less a margin; by the clock
//!    that passes and by the wall alike, as one of them may have stood still.
//! 2. Each registration begins another term: what was owned under an earlier one may have been taken in between. So does a renewal
//!    that is answered after the time had run out: a leader of the store that was frozen, or cut off, and has not heard of its successor
//!    renews what that one has ended long since.
//!
//! Both rest on a store that renews no lease which it lets others see ended. A leader of etcd that hangs and was replaced may do so before
//! 3.4.31 and 3.5.13 (etcd-io/etcd issue 15247): for that long a broker that it answers goes on telling ends (`bookie/metadata/README.md`).

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hulse_proto::time::{TimestampMs, WallClock};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// A part of the lease's time that is not relied on: the store's clock may be a little faster.
const MARGIN: u32 = 6;
/// How often it is looked whether the lease still vouches, for those who wait at the end of a log.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A number of the registration; 0: there was none.
pub(crate) type Term = u64;

/// The lease of a broker. Cheap to clone.
#[derive(Clone, Default)]
pub struct Lease(Option<Arc<Kept>>);

struct Kept {
    clock: Arc<dyn WallClock>,
    time: Duration,
    state: Mutex<State>,
    /// The term that is vouched for, 0: none. For those who wait.
    vouched: watch::Sender<Term>,
}

#[derive(Default)]
struct State {
    term: Term,
    /// When the store was asked for what it has not answered yet.
    asked: Option<Moment>,
    /// When it was asked for what it gave last.
    renewed: Option<Moment>,
}

/// A moment by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    at: Instant,
    wall: TimestampMs,
}

impl Moment {
    /// How long ago `earlier` was, by the clock that says more; zero when it was later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        let wall = self.wall.saturating_sub(earlier.wall);
        let wall = Duration::from_millis(u64::try_from(wall).unwrap_or(0));
        self.at.saturating_duration_since(earlier.at).max(wall)
    }
}

impl Lease {
    /// A broker that has no lease, as no other broker can be in its cell: it vouches for ever.
    pub fn none() -> Self {
        Self(None)
    }

    /// A lease that the store keeps for `time` without a renewal; not registered yet.
    pub fn of(clock: Arc<dyn WallClock>, time: Duration) -> Self {
        Self(Some(Arc::new(Kept {
            clock,
            time: time - time / MARGIN,
            state: Mutex::default(),
            vouched: watch::Sender::new(0),
        })))
    }

    /// The store is about to be asked for a lease, or to renew it.
    pub fn asks(&self) {
        if let Some(kept) = &self.0 {
            let now = kept.now();
            kept.lock().asked = Some(now);
        }
    }

    /// It renewed the lease.
    pub fn renewed(&self) {
        self.answered(false);
    }

    /// It gave another lease, and this broker is registered by that.
    pub fn began(&self) {
        self.answered(true);
    }

    fn answered(&self, anew: bool) {
        let Some(kept) = &self.0 else {
            return;
        };
        {
            let now = kept.now();
            let mut state = kept.lock();
            let ran_out = state
                .renewed
                .is_some_and(|renewed| !kept.lasts(renewed, now));
            state.term += Term::from(anew || ran_out);
            state.renewed = state.asked.take();
        }
        kept.publish();
    }

    /// The term of the last registration.
    pub(crate) fn term(&self) -> Term {
        self.0.as_ref().map_or(0, |kept| kept.lock().term)
    }

    /// Nobody can have taken over what was this broker's at any time of this term.
    pub(crate) fn vouches_for(&self, term: Term) -> bool {
        self.0.as_ref().is_none_or(|kept| {
            let vouched = kept.vouched();
            vouched > 0 && vouched == term
        })
    }

    /// Some term is vouched for: metadata answered a moment ago.
    pub(crate) fn stands(&self) -> bool {
        self.0.as_ref().is_none_or(|kept| kept.vouched() > 0)
    }

    /// Now, for [`Moment::since`].
    pub(crate) fn now(&self) -> Moment {
        match &self.0 {
            Some(kept) => kept.now(),
            None => Moment {
                at: Instant::now(),
                wall: 0,
            },
        }
    }

    /// Waits until this term is not vouched for any more, as far as [`Lease::follow`] has seen. Cancel-safe.
    pub(crate) async fn doubted(&self, term: Term) {
        let Some(kept) = &self.0 else {
            return std::future::pending().await;
        };
        let mut vouched = kept.vouched.subscribe();
        // Its sender is ours.
        drop(vouched.wait_for(|vouched| *vouched != term).await);
    }

    /// Sees to it that those who wait hear of a lease that nobody renews. For a task of the broker; never ends.
    pub(crate) async fn follow(&self) {
        loop {
            sleep(LOOK_EVERY).await;
            if let Some(kept) = &self.0 {
                kept.publish();
            }
        }
    }
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no code panics while it holds this lock")
    }

    fn now(&self) -> Moment {
        Moment {
            at: Instant::now(),
            wall: self.clock.now_ms(),
        }
    }

    fn vouched(&self) -> Term {
        let now = self.now();
        let state = self.lock();
        let fresh = state
            .renewed
            .is_some_and(|renewed| self.lasts(renewed, now));
        if fresh { state.term } else { 0 }
    }

    fn lasts(&self, renewed: Moment, now: Moment) -> bool {
        now.since(renewed) < self.time
    }

    fn publish(&self) {
        let vouched = self.vouched();
        let changes = |before: &mut Term| std::mem::replace(before, vouched) != vouched;
        self.vouched.send_if_modified(changes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use tokio::time::advance;

    use super::*;

    const TIME: Duration = Duration::from_secs(3);

    struct Wall(AtomicI64);

    impl WallClock for Wall {
        fn now_ms(&self) -> TimestampMs {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn lease() -> (Arc<Wall>, Lease) {
        let wall = Arc::new(Wall(AtomicI64::new(1_000_000)));
        (wall.clone(), Lease::of(wall, TIME))
    }

    #[tokio::test(start_paused = true)]
    async fn lease_vouches_from_the_question_on_and_not_to_the_end_of_its_time() {
        let (_, lease) = lease();
        assert!(!lease.vouches_for(0) && !lease.vouches_for(1));
        lease.asks();
        advance(Duration::from_secs(1)).await;
        lease.began();
        assert_eq!(lease.term(), 1);
        assert!(lease.vouches_for(1));
        advance(Duration::from_millis(1_499)).await;
        assert!(lease.vouches_for(1));
        advance(Duration::from_millis(1)).await;
        assert!(!lease.vouches_for(1) && !lease.stands());
        // A question alone is no renewal.
        lease.asks();
        assert!(!lease.vouches_for(1));
        lease.renewed();
        assert!(lease.stands());
    }

    #[tokio::test(start_paused = true)]
    async fn renewal_that_comes_after_the_time_ran_out_vouches_for_nothing_of_before() {
        let (_, lease) = lease();
        lease.asks();
        lease.began();
        for term in 1..4 {
            // In time, from question to answer and from answer to answer.
            for _ in 0..3 {
                lease.asks();
                advance(TIME / 3).await;
                lease.renewed();
                assert!(lease.vouches_for(term));
            }
            advance(TIME).await;
            lease.asks();
            // A leader that woke says yes, whoever else may have the lease's partitions by now.
            lease.renewed();
            assert!(lease.stands() && !lease.vouches_for(term));
            assert_eq!(lease.term(), term + 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_registration_vouches_for_nothing_of_before() {
        let (_, lease) = lease();
        for _ in 0..2 {
            lease.asks();
            lease.began();
        }
        assert!(lease.vouches_for(2) && !lease.vouches_for(1));
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_only_the_wall_saw_pass_counts_and_a_step_back_does_not() {
        let (wall, lease) = lease();
        lease.asks();
        lease.began();
        wall.0.fetch_sub(60_000, Ordering::Relaxed);
        assert!(lease.vouches_for(1));
        advance(TIME).await;
        assert!(!lease.vouches_for(1));
        lease.asks();
        lease.renewed();
        // The machine slept, and its other clock with it.
        wall.0.fetch_add(60_000, Ordering::Relaxed);
        assert!(!lease.vouches_for(1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_hears_of_a_lease_that_nobody_renews() {
        let (_, lease) = lease();
        lease.asks();
        lease.began();
        let following = tokio::spawn({
            let lease = lease.clone();
            async move { lease.follow().await }
        });
        let began = Instant::now();
        lease.doubted(1).await;
        let waited = began.elapsed();
        assert!((TIME * 5 / 6..=TIME).contains(&waited), "{waited:?}");
        lease.asks();
        lease.began();
        // Of an earlier term it is in doubt for good.
        lease.doubted(1).await;
        following.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn broker_without_a_lease_is_never_in_doubt() {
        let lease = Lease::none();
        advance(Duration::from_secs(3_600)).await;
        assert!(lease.vouches_for(lease.term()) && lease.stands());
    }
}
