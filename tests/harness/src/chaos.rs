//! What goes wrong in a run, and when. Which kinds of trouble a run has is drawn per seed, so that each kind is also seen alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;
use tokio::time::{Instant, sleep};

use crate::bookie::PowerLoss;
use crate::crash_point::{BOOKIE_POINTS, CrashPoint, RECOVERY_POINTS, WRITER_POINTS};
use crate::network::NetworkRates;
use crate::process::Process;
use crate::trace;
use crate::world::{MetadataRates, World};

/// Processes that may be paused or killed. Clones share the list.
pub type Victims = Arc<Mutex<Vec<Process>>>;

/// One kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    PowerLoss,
    AllPowerLoss,
    BookieKill,
    SyncFailure,
    Cut,
    Silence,
    Pause,
    Kill,
    ClockStep,
}

const ALL: [Trouble; 9] = [
    Trouble::PowerLoss,
    Trouble::AllPowerLoss,
    Trouble::BookieKill,
    Trouble::SyncFailure,
    Trouble::Cut,
    Trouble::Silence,
    Trouble::Pause,
    Trouble::Kill,
    Trouble::ClockStep,
];

/// The plan of one run.
#[derive(Debug, Clone)]
pub struct Chaos {
    rng: ChaCha12Rng,
    troubles: Vec<Trouble>,
    network: NetworkRates,
    metadata: MetadataRates,
    /// Virtual time between two troubles, at most.
    pause_max_ms: u64,
}

impl Chaos {
    /// Draws what this run is to suffer.
    pub fn draw(mut rng: ChaCha12Rng) -> Self {
        let share = *[0.15, 0.4, 0.8].choose(&mut rng).expect("three shares");
        let troubles = ALL.into_iter().filter(|_| rng.random_bool(share)).collect();
        let mut rate = |most: f64| match rng.random_bool(0.5) {
            true => rng.random_range(0.0..most),
            false => 0.0,
        };
        let network = NetworkRates {
            drop: rate(0.08),
            late: rate(0.15),
            twice: rate(0.1),
            delay_max: Duration::from_millis(3),
            late_max: Duration::from_millis(5_000),
        };
        let metadata = MetadataRates {
            unavailable: rate(0.1),
            unknown: rate(0.3),
            delay_max_ms: 4,
            late_max_ms: 3_000,
        };
        Self {
            troubles,
            network,
            metadata,
            pause_max_ms: rng.random_range(200..1_500),
            rng,
        }
    }

    /// Arms a few crash points.
    pub fn arm(&mut self, world: &World) {
        let mut points: Vec<CrashPoint> = Vec::new();
        points.extend(BOOKIE_POINTS);
        points.extend(WRITER_POINTS);
        points.extend(RECOVERY_POINTS);
        for _ in 0..self.rng.random_range(0..6) {
            let point = *points.choose(&mut self.rng).expect("there are points");
            // Some are passed at every step, others a few times in a run.
            let passes = match point.0 {
                1 | 2 | 3 | 17 => 12,
                4 | 5 | 8 | 22 => 4,
                _ => 2,
            };
            world.crashes.arm(point, passes);
        }
    }

    /// The bad rates begin.
    pub fn begin(&self, world: &World) {
        world.network.set_rates(self.network);
        world.set_metadata_rates(self.metadata);
    }

    /// Makes trouble for this long.
    pub async fn run(mut self, world: &Arc<World>, victims: &Victims, time: Duration) {
        let end = Instant::now() + time;
        loop {
            let wait = Duration::from_millis(self.rng.random_range(20..=self.pause_max_ms));
            if Instant::now() + wait >= end || self.troubles.is_empty() {
                tokio::time::sleep_until(end).await;
                return;
            }
            sleep(wait).await;
            let trouble = *self.troubles.choose(&mut self.rng).expect("not empty");
            self.make(world, victims, trouble);
        }
    }

    fn make(&mut self, world: &Arc<World>, victims: &Victims, trouble: Trouble) {
        let rng = &mut self.rng;
        let bookie = world
            .bookies
            .choose(rng)
            .expect("a world has bookies")
            .clone();
        let time = Duration::from_millis(rng.random_range(50..3_000));
        match trouble {
            Trouble::PowerLoss => bookie.crash(PowerLoss::Yes),
            Trouble::AllPowerLoss => {
                world
                    .bookies
                    .iter()
                    .for_each(|bookie| bookie.crash(PowerLoss::Yes));
            }
            Trouble::BookieKill => bookie.crash(PowerLoss::No),
            Trouble::SyncFailure => bookie.disk().fail_syncs(1),
            Trouble::ClockStep => world.clock.step(rng.random_range(-90_000..90_000)),
            Trouble::Silence => silence(world, time),
            Trouble::Cut | Trouble::Pause | Trouble::Kill => {
                let living: Vec<Process> = victims
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .iter()
                    .filter(|process| !process.is_dead())
                    .cloned()
                    .collect();
                let Some(process) = living.choose(rng) else {
                    return;
                };
                trace!(world.trace, "{trouble:?} of {}", process.name());
                match trouble {
                    Trouble::Kill => process.kill(),
                    Trouble::Pause => pause(process.clone(), time),
                    _ if rng.random_bool(0.5) => cut(world, process.name(), bookie.name(), time),
                    _ => cut(world, bookie.name(), process.name(), time),
                }
            }
        }
    }
}

fn silence(world: &Arc<World>, time: Duration) {
    let world = world.clone();
    trace!(world.trace, "metadata is silent for {time:?}");
    world.faults.silence();
    tokio::spawn(async move {
        sleep(time).await;
        world.faults.speak();
    });
}

fn pause(process: Process, time: Duration) {
    process.pause();
    tokio::spawn(async move {
        sleep(time).await;
        process.resume();
    });
}

fn cut(world: &Arc<World>, from: &str, to: &str, time: Duration) {
    let world = world.clone();
    world.network.cut(from, to);
    tokio::spawn(async move {
        sleep(time).await;
        world.network.mend();
    });
}
