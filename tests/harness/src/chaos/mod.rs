//! What goes wrong in a run, and when. Which kinds of trouble a run has is drawn per seed, so that each kind is also seen alone.
//!
//! `swarm` draws the kinds and their rates, `trouble` makes one.

mod swarm;
mod trouble;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;
use tokio::time::{Instant, sleep, sleep_until};

use crate::crash_point::{
    BOOKIE_POINTS, CrashPoint, FILE_POINTS, RECOVERY_POINTS, REPAIR_POINTS, WRITER_POINTS,
};
use crate::network::{NetworkRates, Schedule};
use crate::process::Process;
use crate::trace;
use crate::world::{MetadataRates, World};
use swarm::Swarm;
use trouble::Trouble;

/// How likely each crash point of a bookie's files is armed in a run that has crash points.
const FILE_POINT_CHANCE: f64 = 0.3;

/// Processes that may be paused or killed. Clones share the list.
pub type Victims = Arc<Mutex<Vec<Process>>>;

/// The plan of one run.
#[derive(Debug, Clone)]
pub struct Chaos {
    rng: ChaCha12Rng,
    troubles: Vec<Trouble>,
    network: NetworkRates,
    metadata: MetadataRates,
    schedule: Schedule,
    /// How long metadata is silent at the end, if it is.
    long_silence: Option<Duration>,
    /// Crash points to arm.
    points: u32,
    /// Virtual time between two troubles, at most.
    pause_max_ms: u64,
    /// Place of the first bookie whose disk may lose what was synced.
    scarred: usize,
}

impl Chaos {
    /// Draws what this run is to suffer.
    pub fn draw(mut rng: ChaCha12Rng) -> Self {
        let swarm = Swarm::draw(&mut rng);
        Self {
            network: swarm.network(&mut rng),
            metadata: swarm.metadata(&mut rng),
            schedule: *[Schedule::Uniform, Schedule::Late, Schedule::Priority]
                .choose(&mut rng)
                .expect("three schedules"),
            long_silence: swarm
                .has_long_silence()
                .then(|| Duration::from_millis(rng.random_range(5_000..180_000))),
            points: swarm.crash_points(&mut rng),
            troubles: swarm.troubles(),
            pause_max_ms: rng.random_range(200..1_500),
            scarred: rng.random_range(0..64),
            rng,
        }
    }

    /// Arms a few crash points.
    pub fn arm(&mut self, world: &World) {
        let mut points: Vec<CrashPoint> = Vec::new();
        points.extend(BOOKIE_POINTS);
        points.extend(WRITER_POINTS);
        points.extend(RECOVERY_POINTS);
        points.extend(REPAIR_POINTS);
        for _ in 0..self.points {
            let point = *points.choose(&mut self.rng).expect("there are points");
            // Some are passed at every step, others a few times in a run.
            let passes = match point.0 {
                1 | 2 | 3 | 17 => 12,
                4 | 5 | 8 | 22 => 4,
                // A writer closes once, if at all.
                18 => 1,
                _ => 2,
            };
            world.crashes.arm(point, passes);
        }
        if self.points > 0 {
            let mut own = world.seeds.stream("crash points of files");
            for point in FILE_POINTS {
                if own.random_bool(FILE_POINT_CHANCE) {
                    world.crashes.arm(point, 3);
                }
            }
        }
    }

    /// The bad rates begin.
    pub fn begin(&mut self, world: &World) {
        trace!(world.trace, "{:?} schedule", self.schedule);
        world.network.set_schedule(self.schedule, self.rng.random());
        world.network.set_rates(self.network);
        world.set_metadata_rates(self.metadata);
    }

    /// Makes trouble for this long; longer when metadata are to be silent for long.
    pub async fn run(mut self, world: &Arc<World>, victims: &Victims, time: Duration) {
        let end = Instant::now() + time;
        self.trouble_until(world, victims, end, 1).await;
        let Some(silence) = self.long_silence else {
            return;
        };
        trace!(world.trace, "metadata is silent for {silence:?}");
        world.counts.add("silences of metadata for long");
        world.silence();
        let end = Instant::now() + silence;
        self.trouble_until(world, victims, end, 8).await;
        world.speak();
        sleep(Duration::from_secs(1)).await;
    }

    async fn trouble_until(
        &mut self,
        world: &Arc<World>,
        victims: &Victims,
        end: Instant,
        slower: u64,
    ) {
        loop {
            let wait = self.rng.random_range(20..=self.pause_max_ms) * slower;
            let wait = Duration::from_millis(wait);
            if Instant::now() + wait >= end || self.troubles.is_empty() {
                return sleep_until(end).await;
            }
            sleep(wait).await;
            let trouble = *self.troubles.choose(&mut self.rng).expect("not empty");
            self.make(world, victims, trouble);
        }
    }
}
