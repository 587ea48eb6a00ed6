//! What operators say of a bookie, as it hears of it (storage.md C7).

use std::sync::Arc;
use std::time::Duration;

use bookie_node::core::{Event, Withdrawn};
use hulse_proto::wire::metadata::bookie::State;
use rand::Rng;
use tokio::time::sleep;

use super::sim_bookie::{PowerLoss, SimBookie};
use crate::trace;

/// It hears of its registration within so long, ms.
const HEARS_MS: u64 = 3_000;

impl SimBookie {
    /// True once it is retired: its disk never serves again after it was stopped.
    pub fn is_retired(&self) -> bool {
        self.state().retired
    }

    /// Its registration says this now; it hears so in a while.
    pub fn told(self: &Arc<Self>, registered: State) {
        let word = match registered {
            State::Active | State::Unspecified => Withdrawn::No,
            State::ReadOnly => Withdrawn::ReadOnly,
            State::Draining | State::Retired | State::Lost => Withdrawn::Leaving,
        };
        let wait = {
            let mut state = self.state();
            state.retired |= registered == State::Retired;
            if state.withdrawn == word {
                return;
            }
            let stream = format!("{} hears {word:?}", self.name);
            let mut rng = self.setup.seeds.stream(&stream);
            Duration::from_millis(rng.random_range(0..HEARS_MS))
        };
        let this = self.clone();
        tokio::spawn(async move {
            sleep(wait).await;
            this.hears(word);
        });
    }

    fn hears(&self, word: Withdrawn) {
        trace!(self.setup.trace, "{} hears {word:?}", self.name);
        let mut state = self.state();
        state.withdrawn = word;
        if let Some(life) = state.life.as_mut() {
            life.node.event(Event::Withdrawn(word));
            life.wake.notify_one();
        }
    }

    /// It is taken away for good.
    pub fn take_away(self: &Arc<Self>) {
        self.hold_down(PowerLoss::Yes);
    }
}
