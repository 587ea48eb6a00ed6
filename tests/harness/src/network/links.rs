//! How slow each link is: one way of one pair. Drawn from the link's name, so that the order in which links are used does not matter.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use crate::seed::{extend, fingerprint};

/// Longest delay of a message on a starved link.
const STARVED_MAX: Duration = Duration::from_secs(60);

/// In which order messages arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// All links are alike.
    #[default]
    Uniform,
    /// Links differ in speed, and some are starved for long (needed to find T1).
    Late,
    /// Calls of one link pass only while no call of a link before it is on its way; the order changes a few times (PCT).
    Priority,
}

/// One way between a client and a bookie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Link {
    /// Its usual delay is so many times the usual one.
    pub(super) slowness: u32,
    /// Share of its messages that arrive much later.
    pub(super) starved: f64,
    /// How much later, at most.
    pub(super) late_max: Duration,
}

/// All links.
#[derive(Debug, Default)]
pub(super) struct Links {
    schedule: Schedule,
    seed: u64,
}

impl Links {
    pub(super) fn set(&mut self, schedule: Schedule, seed: u64) {
        self.schedule = schedule;
        self.seed = seed;
    }

    pub(super) fn of(&self, from: &str, to: &str) -> Link {
        let mut link = Link {
            slowness: 1,
            starved: 0.0,
            late_max: STARVED_MAX,
        };
        if self.schedule != Schedule::Late {
            return link;
        }
        let mut rng = ChaCha12Rng::seed_from_u64(self.seed ^ name(from, to));
        link.slowness = [1, 1, 5, 60][rng.random_range(0..4)];
        if rng.random_range(0..6) == 0 {
            link.starved = [0.5, 0.9, 1.0][rng.random_range(0..3)];
            link.late_max = Duration::from_millis(rng.random_range(1_000..60_000));
        }
        link
    }
}

/// The number of a link.
pub(super) fn name(from: &str, to: &str) -> u64 {
    extend(extend(fingerprint(from.as_bytes()), b">"), to.as_bytes())
}
