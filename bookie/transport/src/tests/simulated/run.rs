//! One run, from its seed.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::caller::{Caller, Ends};
use super::net::SimConnect;
use super::peer::{Log, Peer, host};
use super::weather::Weather;
use crate::remote::RemoteConfig;
use crate::serve::ServeLimits;

pub(super) const BOOKIES: usize = 2;
pub(super) const CALLERS: u32 = 2;
/// Connections of one caller to one bookie.
const LANES: usize = 2;
/// Virtual time in which things go wrong.
pub(super) const FIRE: Duration = Duration::from_secs(15);
/// Until everything that was broken is found to be so, by both ends.
pub(super) const SETTLE: Duration = Duration::from_secs(25);
/// One step.
pub(super) const TICK: Duration = Duration::from_millis(5);
/// A run that takes longer hangs.
const RUN_MAX: Duration = Duration::from_secs(120);

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) wrong: Vec<String>,
    pub(super) answered: u64,
    pub(super) unknown: u64,
    pub(super) busy: u64,
    pub(super) troubles: u64,
    /// Dials beyond the first of each lane.
    pub(super) redials: u64,
    fingerprint: u64,
}

impl Outcome {
    pub(super) fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.unknown += other.unknown;
        self.busy += other.busy;
        self.troubles += other.troubles;
        self.redials += other.redials;
    }
}

pub(super) fn caller_host(number: u32) -> String {
    format!("caller-{number}")
}

fn remote_config(rng: &mut ChaCha12Rng) -> RemoteConfig {
    RemoteConfig {
        add_bytes_max: 60_000,
        read_bytes_max: 200_000,
        one_read_bytes_max: 64 << 10,
        calls_max: *[30, 200].choose(rng).expect("two rooms"),
        answer_timeout: Duration::from_secs(4),
        ..RemoteConfig::default()
    }
}

fn limits(rng: &mut ChaCha12Rng) -> ServeLimits {
    let small = [(8, 1 << 20), (4_096, 20_000), (4_096, 32 << 20)];
    let (calls_max, bytes_max) = *small.choose(rng).expect("three limits");
    ServeLimits {
        calls_max,
        bytes_max,
    }
}

/// One seed.
pub(super) fn run(seed: u64) -> Outcome {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let latency_max = Duration::from_millis(rng.random_range(2..80));
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .tick_duration(TICK)
        .simulation_duration(RUN_MAX)
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(latency_max)
        .build();
    let log = Arc::new(Log::default());
    let peers: Vec<Arc<Peer>> = (0..BOOKIES)
        .map(|number| {
            Arc::new(Peer {
                number,
                log: Arc::clone(&log),
                limits: limits(&mut rng),
                open: Arc::default(),
                leaving: Arc::default(),
            })
        })
        .collect();
    for peer in &peers {
        let peer = Arc::clone(peer);
        sim.host(host(peer.number), move || Arc::clone(&peer).live());
    }
    let (ends, connect) = (Rc::new(Ends::default()), SimConnect::default());
    for number in 0..CALLERS {
        let caller = Caller {
            number,
            log: Arc::clone(&log),
            config: remote_config(&mut rng),
            connect: connect.clone(),
            ends: Rc::clone(&ends),
            burst_max: *[3, 15, 80].choose(&mut rng).expect("three sizes"),
            pause_max_ms: *[20, 200, 1_000].choose(&mut rng).expect("three paces"),
            rng: ChaCha12Rng::from_rng(&mut rng),
        };
        sim.client(caller_host(number), caller.live());
    }
    let leaving = peers.iter().map(|peer| Arc::clone(&peer.leaving)).collect();
    let mut weather = Weather::draw(ChaCha12Rng::from_rng(&mut rng), latency_max, leaving);
    loop {
        weather.blow(&mut sim);
        match sim.step() {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => {
                log.wrong(format!("the run ends with {error}"));
                break;
            }
        }
    }
    for peer in &peers {
        let open = peer.open.load(Ordering::Relaxed);
        log.settled(peer.number, open, CALLERS as usize * LANES);
    }
    let (wrong, fingerprint) = log.found();
    let dials = connect.0.load(Ordering::Relaxed) as u64;
    Outcome {
        wrong,
        answered: ends.answered.get(),
        unknown: ends.unknown.get(),
        busy: ends.busy.get(),
        troubles: weather.made,
        redials: dials.saturating_sub(u64::from(CALLERS) * (BOOKIES * LANES) as u64),
        fingerprint,
    }
}
