//! The fate of one message: cut, scripted, or drawn.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha12Rng;

use super::links::{Link, Links};
use super::{Delivery, Message, NetworkRates};

type Script = Box<dyn FnMut(&Message<'_>) -> Option<Delivery> + Send>;

/// What is planned.
pub(super) struct Plan {
    rng: ChaCha12Rng,
    pub(super) rates: NetworkRates,
    pub(super) links: Links,
    pub(super) script: Option<Script>,
    /// (from, to) pairs between which nothing passes.
    pub(super) cuts: BTreeSet<(String, String)>,
}

impl Plan {
    /// Calm.
    pub(super) fn new(rng: ChaCha12Rng) -> Self {
        Self {
            rng,
            rates: NetworkRates::CALM,
            links: Links::default(),
            script: None,
            cuts: BTreeSet::new(),
        }
    }

    pub(super) fn deliver(&mut self, message: &Message<'_>) -> Delivery {
        let (from, to) = match message.answer {
            false => (message.client, message.bookie),
            true => (message.bookie, message.client),
        };
        let cut = self
            .cuts
            .iter()
            .any(|(away, towards)| (away.as_str(), towards.as_str()) == (from, to));
        if cut {
            return Delivery::Drop;
        }
        let scripted = self.script.as_mut().and_then(|script| script(message));
        scripted.unwrap_or_else(|| {
            let link = self.links.of(from, to);
            self.draw(link)
        })
    }

    fn draw(&mut self, link: Link) -> Delivery {
        let rates = self.rates;
        if self.rng.random_bool(link.starved) {
            return Delivery::After(self.delay(link.late_max));
        }
        let point: f64 = self.rng.random();
        if point < rates.drop {
            return Delivery::Drop;
        }
        if point < rates.drop + rates.late {
            return Delivery::After(self.delay(rates.late_max));
        }
        let usual = self.delay(rates.delay_max * link.slowness);
        if point < rates.drop + rates.late + rates.twice {
            return Delivery::Twice(usual, self.delay(rates.late_max.max(rates.delay_max)));
        }
        Delivery::After(usual)
    }

    fn delay(&mut self, max: Duration) -> Duration {
        let ms = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.rng.random_range(0..=ms))
    }
}
