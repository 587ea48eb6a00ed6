//! When a plan is acted on: hysteresis over looks, and what is remembered of moves. No I/O and no clock.
//!
//! # Hysteresis
//! Loads are measured and go up and down, so that any bound of a plan is crossed now and then by brokers that are near it. A plan must
//! therefore be found in [`LOOKS`] looks in a row; and brokers among which nothing was moved for long ([`Calm`]) are left alone unless it is
//! found in [`LOOKS_AT_REST`] in a row: what those looks would have crossed by chance was crossed in the many before. Where loads really
//! change, or brokers come and go, nothing is at rest any more.

use std::collections::BTreeMap;
use std::time::Duration;

use hulse_proto::id::{NodeName, PartitionId};

use super::model::{BalanceLimits, GAP_MIN, LOOKS, Move, Scene};
use super::plan::{Planned, plan};

/// For so long after a move a partition counts as it did before, until its new owner has measured it.
const SETTLES: Duration = Duration::from_secs(20);
/// Looks in a row that must find a plan where brokers are at rest: six balance periods.
const LOOKS_AT_REST: u32 = 6 * LOOKS;
/// Looks without a move until brokers are at rest, and cool-downs: in the second of them whatever was moved may move again.
const REST_AFTER: (u32, u32) = (40 * LOOKS, 2);
/// A broker that has so much more or less to do, as a part of its load or of the mean, is at rest no more.
const CHANGE_PART: u64 = 4;

/// Why moves are made or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Fewer than two brokers are ready.
    TooFew,
    /// Nobody is far from the mean.
    Even,
    /// There was a plan in so many looks in a row; it takes `of`.
    Wait { seen: u32, of: u32 },
    /// No move helps: partitions are pinned, rest after a move, or are bigger than brokers differ.
    NothingHelps,
    /// The moves of the plan are made.
    Act,
}

/// What a look came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) verdict: Verdict,
    pub(super) planned: Planned,
}

/// How long nothing was moved and no broker came, went or changed its load.
#[derive(Debug, Clone, Default)]
struct Calm {
    looks: u32,
    began: Duration,
    /// What the brokers that were ready had to do when they came to rest.
    rest: Option<BTreeMap<NodeName, u64>>,
}

impl Calm {
    /// Takes a look at `now`, and tells whether brokers are at rest.
    fn look(&mut self, scene: &Scene, limits: &BalanceLimits, now: Duration) -> bool {
        let ready = scene.iter().filter(|(_, broker)| broker.ready);
        let loads: BTreeMap<_, _> = ready
            .map(|(name, broker)| (name.clone(), broker.weight()))
            .collect();
        if self.rest.as_ref().is_some_and(|rest| changed(rest, &loads)) {
            *self = Self::default();
        }
        if self.looks == 0 {
            self.began = now;
        }
        self.looks = self.looks.saturating_add(1);
        let (looks, cooldowns) = REST_AFTER;
        let long = now.saturating_sub(self.began) >= limits.cooldown.saturating_mul(cooldowns);
        if self.rest.is_none() && long && self.looks > looks {
            self.rest = Some(loads);
        }
        self.rest.is_some()
    }
}

/// Other brokers, or one that has clearly more or less to do: more than rates that go up and down make of it.
fn changed(rest: &BTreeMap<NodeName, u64>, loads: &BTreeMap<NodeName, u64>) -> bool {
    let all = loads.values().copied().fold(0, u64::saturating_add);
    let mean = all / (loads.len() as u64).max(1);
    !rest.keys().eq(loads.keys())
        || rest.values().zip(loads.values()).any(|(then, load)| {
            let part = mean.max(*then) / CHANGE_PART;
            load.abs_diff(*then) > part.max(GAP_MIN)
        })
}

/// What is remembered from look to look.
#[derive(Debug, Clone, Default)]
pub(super) struct Judge {
    /// Looks in a row in which there was a plan.
    streak: u32,
    calm: Calm,
    /// When a move was tried last, also one that failed, and what the partition had to do then.
    tried: BTreeMap<PartitionId, (Duration, u64)>,
}

impl Judge {
    /// A look at `now` (since any moment, always the same). `at_once`: by an operator's word, which does not wait.
    pub(super) fn look(
        &mut self,
        scene: &mut Scene,
        limits: &BalanceLimits,
        (now, at_once): (Duration, bool),
    ) -> Look {
        self.remind(scene, limits, now);
        let planned = plan(scene, limits);
        let uneven = !planned.before.is_even(limits);
        let of = match self.calm.look(scene, limits, now) {
            true => LOOKS_AT_REST,
            false => LOOKS,
        };
        self.streak = match planned.moves.is_empty() {
            true => 0,
            false => self.streak.saturating_add(1),
        };
        let few = scene.values().filter(|broker| broker.ready).count() < 2;
        let verdict = match (few, uneven, planned.moves.is_empty()) {
            (true, ..) => Verdict::TooFew,
            (_, false, _) => Verdict::Even,
            (_, _, true) => Verdict::NothingHelps,
            _ if self.streak < of && !at_once => {
                let seen = self.streak;
                Verdict::Wait { seen, of }
            }
            _ => Verdict::Act,
        };
        Look { verdict, planned }
    }

    /// A move is tried at `now`.
    pub(super) fn tried(&mut self, moved: &Move, now: Duration) {
        self.tried.insert(moved.partition, (now, moved.bytes));
        self.calm = Calm::default();
    }

    /// What was planned is made, or all of it that is made for now: in the next look brokers are judged anew, unless `more` of the plan
    /// is left.
    pub(super) fn acted(&mut self, more: bool) {
        if !more {
            self.streak = 0;
        }
    }

    /// Adds what is remembered here to what owners tell, and forgets what is over.
    fn remind(&mut self, scene: &mut Scene, limits: &BalanceLimits, now: Duration) {
        self.tried
            .retain(|_, (at, _)| now.saturating_sub(*at) < limits.cooldown.max(SETTLES));
        for broker in scene.values_mut() {
            for (id, load) in &mut broker.partitions {
                if let Some((at, bytes)) = self.tried.get(id) {
                    let ago = now.saturating_sub(*at);
                    load.moved = Some(load.moved.map_or(ago, |moved| moved.min(ago)));
                    if ago < SETTLES {
                        load.bytes = load.bytes.max(*bytes);
                    }
                }
            }
        }
    }
}
