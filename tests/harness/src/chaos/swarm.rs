//! Which kinds of trouble a run has. Many runs have one or two: what many kinds at once hide, one alone shows (swarm testing).

use std::time::Duration;

use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha12Rng;

use super::trouble::Trouble;
use crate::network::NetworkRates;
use crate::world::MetadataRates;

/// Longest time until a late message arrives.
const LATE_MAX: Duration = Duration::from_secs(60);

/// Anything that a run may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Trouble(Trouble),
    Drop,
    Late,
    Twice,
    Unavailable,
    Unknown,
    LongSilence,
    Crashes,
}

const ALL: [Kind; 24] = [
    Kind::Trouble(Trouble::PowerLoss),
    Kind::Trouble(Trouble::AllPowerLoss),
    Kind::Trouble(Trouble::BookieKill),
    Kind::Trouble(Trouble::BookieDoom),
    Kind::Trouble(Trouble::SyncFailure),
    Kind::Trouble(Trouble::FullDisk),
    Kind::Trouble(Trouble::Flip),
    Kind::Trouble(Trouble::LostFile),
    Kind::Trouble(Trouble::OldCopy),
    Kind::Trouble(Trouble::Cut),
    Kind::Trouble(Trouble::Silence),
    Kind::Trouble(Trouble::Pause),
    Kind::Trouble(Trouble::Kill),
    Kind::Trouble(Trouble::Doom),
    Kind::Trouble(Trouble::ClockStep),
    Kind::Drop,
    Kind::Late,
    Kind::Twice,
    Kind::Unavailable,
    Kind::Unknown,
    Kind::LongSilence,
    // Twice, so that runs of few kinds have them often enough.
    Kind::Crashes,
    Kind::Crashes,
    Kind::Unknown,
];

/// Kinds that came later, each in this share of the runs. They are drawn from a stream of their own, so that kept seeds have all
/// else as they ever had it.
const LATER: [Kind; 2] = [
    Kind::Trouble(Trouble::AllFull),
    Kind::Trouble(Trouble::StalledDisk),
];
const LATER_SHARE: f64 = 0.2;

/// The kinds of one run.
pub(super) struct Swarm(Vec<Kind>);

impl Swarm {
    pub(super) fn draw(rng: &mut ChaCha12Rng) -> Self {
        let mut own = rng.clone();
        own.set_stream(rng.get_stream() + 1);
        let mut swarm = Self::draw_first(rng);
        swarm
            .0
            .extend(LATER.into_iter().filter(|_| own.random_bool(LATER_SHARE)));
        swarm
    }

    fn draw_first(rng: &mut ChaCha12Rng) -> Self {
        if rng.random_bool(0.3) {
            let mut kinds = ALL.to_vec();
            kinds.shuffle(rng);
            kinds.truncate(rng.random_range(1..3));
            return Self(kinds);
        }
        let share = *[0.15, 0.4, 0.8].choose(rng).expect("three shares");
        Self(ALL.into_iter().filter(|_| rng.random_bool(share)).collect())
    }

    fn has(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }

    pub(super) fn troubles(&self) -> Vec<Trouble> {
        let troubles = self.0.iter().filter_map(|kind| match kind {
            Kind::Trouble(trouble) => Some(*trouble),
            _ => None,
        });
        troubles.collect()
    }

    pub(super) fn has_long_silence(&self) -> bool {
        self.has(Kind::LongSilence)
    }

    pub(super) fn crash_points(&self, rng: &mut ChaCha12Rng) -> u32 {
        match self.has(Kind::Crashes) {
            true => rng.random_range(1..7),
            false => 0,
        }
    }

    fn rate(&self, kind: Kind, most: f64, rng: &mut ChaCha12Rng) -> f64 {
        match self.has(kind) {
            true => rng.random_range(0.0..most),
            false => 0.0,
        }
    }

    pub(super) fn network(&self, rng: &mut ChaCha12Rng) -> NetworkRates {
        let late_max = *[500, 5_000, 60_000].choose(rng).expect("three times");
        NetworkRates {
            drop: self.rate(Kind::Drop, 0.1, rng),
            late: self.rate(Kind::Late, 0.2, rng),
            twice: self.rate(Kind::Twice, 0.2, rng),
            delay_max: Duration::from_millis(3),
            late_max: Duration::from_millis(late_max).min(LATE_MAX),
        }
    }

    pub(super) fn metadata(&self, rng: &mut ChaCha12Rng) -> MetadataRates {
        MetadataRates {
            unavailable: self.rate(Kind::Unavailable, 0.1, rng),
            unknown: self.rate(Kind::Unknown, 0.4, rng),
            delay_max_ms: 4,
            late_max_ms: *[300, 3_000, 30_000].choose(rng).expect("three times"),
        }
    }
}
