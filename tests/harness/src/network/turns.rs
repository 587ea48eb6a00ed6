//! Priorities among links: a call waits while a call of a link before it is on its way.
//!
//! As in PCT: each link has a random priority, and at a few random calls the link that is served goes behind all others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::links::name;

/// Nothing waits longer than this for its turn.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Changes of the order in one run.
const CHANGES: usize = 4;
/// They happen within this many calls.
const CALLS_UNTIL_CHANGE: u64 = 1_500;

/// A place in the order: of the link, then of the call.
type Place = (u64, u64);

/// The order. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    seed: Option<u64>,
    calls: u64,
    changes: BTreeSet<u64>,
    /// Links that were put behind all others.
    demoted: BTreeMap<u64, u64>,
    running: BTreeSet<Place>,
    waiting: BTreeMap<Place, oneshot::Sender<()>>,
}

/// A call that is on its way. Dropping it ends that.
pub struct Turn {
    turns: Turns,
    place: Option<Place>,
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Priorities count from now on.
    pub(super) fn begin(&self, seed: u64) {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut state = self.state();
        state.seed = Some(seed);
        let draw = |_| rng.random_range(0..CALLS_UNTIL_CHANGE);
        state.changes = (0..CHANGES).map(draw).collect();
    }

    /// Everything goes.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.seed = None;
        state.waiting.clear();
    }

    pub(super) async fn enter(&self, client: &str, bookie: &str) -> Turn {
        let (place, waits) = self.state().arrive(name(client, bookie));
        let turn = Turn {
            turns: self.clone(),
            place,
        };
        if let Some(waits) = waits {
            // Called, or let go by the end of priorities, or tired of waiting: it goes.
            let _ = timeout(WAIT_MAX, waits).await;
            if let Some(place) = place {
                self.state().go(place);
            }
        }
        turn
    }
}

impl State {
    /// The place of a call, and what it waits for, if it must.
    fn arrive(&mut self, link: u64) -> (Option<Place>, Option<oneshot::Receiver<()>>) {
        let Some(seed) = self.seed else {
            return (None, None);
        };
        self.calls += 1;
        if self.changes.contains(&self.calls) {
            self.demoted.insert(link, self.calls);
        }
        let rank = match self.demoted.get(&link) {
            // Behind all that were never put back.
            Some(call) => (1 << 63) + call,
            None => ChaCha12Rng::seed_from_u64(seed ^ link).random_range(0..1 << 63),
        };
        let place = (rank, self.calls);
        let before = self.running.first().is_some_and(|(first, _)| *first < rank);
        if before {
            let (call, called) = oneshot::channel();
            self.waiting.insert(place, call);
            return (Some(place), Some(called));
        }
        self.running.insert(place);
        (Some(place), None)
    }

    fn go(&mut self, place: Place) {
        self.waiting.remove(&place);
        self.running.insert(place);
    }

    /// A call is over: whatever is not behind another one goes.
    fn leave(&mut self, place: Place) {
        self.running.remove(&place);
        self.waiting.remove(&place);
        while let Some(entry) = self.waiting.first_entry() {
            let place = *entry.key();
            if self
                .running
                .first()
                .is_some_and(|(first, _)| *first < place.0)
            {
                return;
            }
            let call = entry.remove();
            self.running.insert(place);
            // Who waited may be gone; then its turn is dropped at once.
            let _ = call.send(());
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.turns.state().leave(place);
        }
    }
}
