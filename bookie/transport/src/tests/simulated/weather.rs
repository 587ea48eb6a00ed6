//! What goes wrong in a run, and when. A run has some kinds of trouble only, so that each is also seen without the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha12Rng;
use tokio_util::sync::CancellationToken;
use turmoil::Sim;

use super::peer::host;
use super::run::{BOOKIES, CALLERS, FIRE, caller_host};

/// One kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Everything between two hosts is lost, what is on its way too: streams have holes for ever.
    Cut,
    /// The same, one way.
    CutOneWay,
    /// Everything between two hosts is held, and delivered later.
    Hold,
    /// The same of a bookie and all its callers, as if it were frozen.
    Freeze,
    /// A link gets slow.
    Slow,
    /// A bookie is killed, and started later.
    Kill,
    /// A bookie leaves in good order, and is started later.
    Leave,
}

const ALL: [Trouble; 7] = [
    Trouble::Cut,
    Trouble::CutOneWay,
    Trouble::Hold,
    Trouble::Freeze,
    Trouble::Slow,
    Trouble::Kill,
    Trouble::Leave,
];

/// What ends a trouble.
#[derive(Debug, Clone)]
enum Undo {
    Repair(String, String),
    RepairOneWay(String, String),
    Release(String, String),
    Fast(String, String),
    Start(usize),
}

/// The plan of a run.
pub(super) struct Weather {
    rng: ChaCha12Rng,
    kinds: Vec<Trouble>,
    next: Duration,
    pause_max_ms: u64,
    /// By time, in the order in which they were made.
    undo: BTreeMap<(Duration, u64), Undo>,
    latency_max: Duration,
    leaving: Vec<Arc<Mutex<CancellationToken>>>,
    healed: bool,
    /// Troubles so far.
    pub(super) made: u64,
}

impl Weather {
    pub(super) fn draw(
        mut rng: ChaCha12Rng,
        latency_max: Duration,
        leaving: Vec<Arc<Mutex<CancellationToken>>>,
    ) -> Self {
        let mut kinds = ALL.to_vec();
        kinds.shuffle(&mut rng);
        kinds.truncate(rng.random_range(1..=ALL.len()));
        Self {
            kinds,
            next: Duration::from_millis(rng.random_range(100..3_000)),
            pause_max_ms: *[300, 1_500, 5_000].choose(&mut rng).expect("three paces"),
            undo: BTreeMap::new(),
            latency_max,
            leaving,
            healed: false,
            made: 0,
            rng,
        }
    }

    /// To be called before each step.
    pub(super) fn blow(&mut self, sim: &mut Sim<'_>) {
        let now = sim.elapsed();
        while let Some(first) = self.undo.first_entry()
            && (first.key().0 <= now || now >= FIRE)
        {
            let undo = first.remove();
            self.undo(sim, &undo);
        }
        if now >= FIRE {
            if !std::mem::replace(&mut self.healed, true) {
                heal(sim);
            }
            return;
        }
        if now >= self.next {
            let pause = self.rng.random_range(50..self.pause_max_ms);
            self.next = now + Duration::from_millis(pause);
            self.trouble(sim, now);
        }
    }

    fn later(&mut self, now: Duration, undo: Undo) {
        let long = self.rng.random_bool(0.3);
        let ms = match long {
            true => self.rng.random_range(2_000..9_000),
            false => self.rng.random_range(20..1_500),
        };
        let at = now + Duration::from_millis(ms);
        self.undo.insert((at, self.made), undo);
    }

    fn trouble(&mut self, sim: &mut Sim<'_>, now: Duration) {
        let trouble = *self.kinds.choose(&mut self.rng).expect("at least one");
        let bookie = self.rng.random_range(0..BOOKIES);
        let caller = caller_host(self.rng.random_range(0..CALLERS));
        let name = host(bookie);
        self.made += 1;
        match trouble {
            Trouble::Cut => {
                sim.partition(caller.as_str(), name.as_str());
                self.later(now, Undo::Repair(caller, name));
            }
            Trouble::CutOneWay => {
                let (from, to) = match self.rng.random_bool(0.5) {
                    true => (caller, name),
                    false => (name, caller),
                };
                sim.partition_oneway(from.as_str(), to.as_str());
                self.later(now, Undo::RepairOneWay(from, to));
            }
            Trouble::Hold => {
                sim.hold(caller.as_str(), name.as_str());
                self.later(now, Undo::Release(caller, name));
            }
            Trouble::Freeze => {
                for caller in 0..CALLERS {
                    let caller = caller_host(caller);
                    sim.hold(caller.as_str(), name.as_str());
                    self.made += 1;
                    self.later(now, Undo::Release(caller, name.clone()));
                }
            }
            Trouble::Slow => {
                let latency = Duration::from_millis(self.rng.random_range(200..4_000));
                sim.set_link_max_message_latency(caller.as_str(), name.as_str(), latency);
                self.later(now, Undo::Fast(caller, name));
            }
            Trouble::Kill => {
                sim.crash(name.as_str());
                self.later(now, Undo::Start(bookie));
            }
            Trouble::Leave => {
                self.leaving[bookie].lock().unwrap().cancel();
                self.later(now, Undo::Start(bookie));
            }
        }
    }

    fn undo(&self, sim: &mut Sim<'_>, undo: &Undo) {
        match undo {
            Undo::Repair(one, other) => sim.repair(one.as_str(), other.as_str()),
            Undo::RepairOneWay(from, to) => sim.repair_oneway(from.as_str(), to.as_str()),
            Undo::Release(one, other) => sim.release(one.as_str(), other.as_str()),
            Undo::Fast(one, other) => {
                let most = self.latency_max;
                sim.set_link_max_message_latency(one.as_str(), other.as_str(), most);
            }
            Undo::Start(bookie) => sim.bounce(host(*bookie)),
        }
    }
}

/// Two troubles of one link may have ended in the wrong order.
fn heal(sim: &Sim<'_>) {
    for bookie in 0..BOOKIES {
        for caller in 0..CALLERS {
            let (caller, bookie) = (caller_host(caller), host(bookie));
            sim.release(caller.as_str(), bookie.as_str());
        }
    }
}
