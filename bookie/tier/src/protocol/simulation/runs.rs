//! One seed from begin to end.

use hulse_proto::id::LedgerId;
use hulse_proto::ledger::LedgerState;
use rand::Rng;
use rand::seq::IndexedRandom as _;

use super::actors::Actor;
use super::world::World;
use crate::protocol::{TierEnd, TierLimits, TierMutation};

/// Ledgers of each of two partitions.
const LEDGERS: u64 = 5;
const STEPS: usize = 400;
const ACTORS_MAX: usize = 5;

/// What happens in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    /// Everything, and in the end a sweep.
    Storm,
    /// No faults and one actor at a time: nothing may be left for a sweep.
    Calm,
}

/// What happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) committed: u64,
    pub(super) packed: u64,
    pub(super) withdrawn: u64,
    pub(super) swept: u64,
    pub(super) removed: u64,
    pub(super) dropped: u64,
    pub(super) died: u64,
    pub(super) late: u64,
}

impl Facts {
    pub(super) fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.packed += other.packed;
        self.withdrawn += other.withdrawn;
        self.swept += other.swept;
        self.removed += other.removed;
        self.dropped += other.dropped;
        self.died += other.died;
        self.late += other.late;
    }
}

struct Run {
    world: World,
    actors: Vec<Actor>,
    limits: TierLimits,
    calm: bool,
}

/// Runs a seed; what happened, or the promise that was broken.
pub(super) fn run(seed: u64, profile: Profile, mutation: TierMutation) -> Result<Facts, String> {
    let calm = profile == Profile::Calm;
    let limits = TierLimits {
        mutation,
        ..TierLimits::default()
    };
    let mut run = Run {
        world: World::new(seed, LEDGERS, !calm),
        actors: Vec::new(),
        limits,
        calm,
    };
    for _ in 0..STEPS {
        run.step();
        run.world.judge()?;
    }
    run.quiet()?;
    run.world.judge_end()?;
    Ok(run.world.facts)
}

impl Run {
    fn step(&mut self) {
        let busy = self.actors.len();
        let most = if self.calm { 1 } else { ACTORS_MAX };
        match self.world.rng.random_range(0..100) {
            0..20 if busy < most => self.spawn(),
            20..23 if !self.calm => self.meddle(),
            23..26 => self.world.land(),
            26 if busy > 0 && !self.calm => {
                let at = self.world.rng.random_range(0..busy);
                self.actors.swap_remove(at).die(&mut self.world);
            }
            _ if busy > 0 => {
                // Some are much slower than others.
                let at = match self.world.rng.random_range(0..3) {
                    0 => self.world.rng.random_range(0..busy),
                    _ => busy - 1,
                };
                self.actors[at].go(&mut self.world);
                self.actors.retain(|actor| actor.end.is_none());
            }
            _ => {}
        }
    }

    fn pick(&mut self, wanted: impl Fn(LedgerState) -> bool) -> Option<LedgerId> {
        let ledgers = self.world.ledgers.iter();
        let found = ledgers.filter(|(_, (metadata, _))| wanted(metadata.state));
        let found: Vec<LedgerId> = found.map(|(ledger, _)| *ledger).collect();
        found.choose(&mut self.world.rng).copied()
    }

    fn spawn(&mut self) {
        let limits = self.limits;
        let closed = |state| state == LedgerState::Closed;
        let unmarked = limits.mutation != TierMutation::default();
        let actor = match self.world.rng.random_range(0..12) {
            0..5 => self.pick(closed).map(|first| {
                let more = self.world.rng.random_range(0..4_u64);
                let ledgers = (0..=more).map(|step| LedgerId(first.0 + step * 2));
                Actor::attempt(ledgers.collect(), limits)
            }),
            5..9 => {
                let ledger = self.pick(closed);
                ledger.map(|ledger| Actor::dropping(ledger, limits))
            }
            9 => {
                let ledger = self.pick(|state| state == LedgerState::Deleting || unmarked);
                ledger.map(|ledger| Actor::removal(ledger, limits))
            }
            10 => {
                // Its owner trims the log.
                if let Some(ledger) = self.pick(closed).filter(|_| self.world.rng.random()) {
                    self.delete(ledger);
                }
                None
            }
            _ if self.calm => None,
            _ => Some(Actor::sweep(LedgerId(LEDGERS * 2), limits)),
        };
        self.actors.extend(actor);
    }

    fn delete(&mut self, ledger: LedgerId) {
        self.world
            .touch(ledger, |metadata| metadata.state = LedgerState::Deleting);
    }

    /// Repair changes the key; its content is not tiering's.
    fn meddle(&mut self) {
        if let Some(ledger) = self.pick(|_| true) {
            let nonce = self.world.rng.random();
            self.world
                .touch(ledger, |metadata| metadata.repair_nonce = nonce);
        }
    }

    fn finish(&mut self, mut actor: Actor) -> Result<TierEnd, String> {
        for _ in 0..1000 {
            if let Some(end) = actor.end {
                return Ok(end);
            }
            actor.go(&mut self.world);
            self.world.judge()?;
        }
        Err(format!("an actor does not end: {:?}", actor.pending))
    }

    /// All faults are over: everybody goes round until nothing is left to do.
    fn quiet(&mut self) -> Result<(), String> {
        self.world.faulty = false;
        for actor in std::mem::take(&mut self.actors) {
            match self.calm {
                true => drop(self.finish(actor)?),
                false => actor.die(&mut self.world),
            }
        }
        self.world.land_all();
        self.world.judge()?;
        self.round()?;
        // A log is trimmed whole ledgers at a time, also those that share an object.
        let some: Vec<LedgerId> = self.world.ledgers.keys().copied().collect();
        for ledger in some.into_iter().filter(|ledger| ledger.0 % 3 == 0) {
            self.delete(ledger);
        }
        self.round()?;
        if !self.calm {
            let sweep = Actor::sweep(LedgerId(LEDGERS * 2), self.limits);
            match self.finish(sweep)? {
                TierEnd::Swept(_) => {}
                other => return Err(format!("the sweep ended with {other:?}")),
            }
        }
        Ok(())
    }

    fn round(&mut self) -> Result<(), String> {
        let limits = self.limits;
        for _ in 0..3 {
            let ledgers: Vec<LedgerId> = self.world.ledgers.keys().copied().collect();
            for ledger in ledgers {
                let found = self.world.ledgers.get(&ledger);
                let state = found.map(|(metadata, _)| metadata.state);
                match state {
                    Some(LedgerState::Deleting) => {
                        self.finish(Actor::removal(ledger, limits))?;
                    }
                    Some(_) => {
                        self.finish(Actor::dropping(ledger, limits))?;
                        self.finish(Actor::attempt(vec![ledger], limits))?;
                        self.finish(Actor::dropping(ledger, limits))?;
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }
}
