//! When a plan is acted on: hysteresis over looks, and what is remembered of moves. No I/O and no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use hulse_proto::id::PartitionId;

use super::model::{BalanceLimits, LOOKS, Move, Scene};
use super::plan::{Planned, plan};

/// For so long after a move a partition counts as it did before, until its new owner has measured it.
const SETTLES: Duration = Duration::from_secs(20);

/// Why moves are made or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Fewer than two brokers are ready.
    TooFew,
    /// Nobody is far from the mean.
    Even,
    /// Brokers were uneven in so many looks in a row; it takes [`LOOKS`].
    Wait(u32),
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

/// What is remembered from look to look.
#[derive(Debug, Clone, Default)]
pub(super) struct Judge {
    /// Looks in a row in which brokers were uneven.
    streak: u32,
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
        self.streak = match uneven {
            true => (self.streak + 1).min(LOOKS),
            false => 0,
        };
        let few = scene.values().filter(|broker| broker.ready).count() < 2;
        let verdict = match (few, uneven, planned.moves.is_empty()) {
            (true, ..) => Verdict::TooFew,
            (_, false, _) => Verdict::Even,
            (_, _, true) => Verdict::NothingHelps,
            _ if self.streak < LOOKS && !at_once => Verdict::Wait(self.streak),
            _ => Verdict::Act,
        };
        Look { verdict, planned }
    }

    /// A move is tried at `now`.
    pub(super) fn tried(&mut self, moved: &Move, now: Duration) {
        self.tried.insert(moved.partition, (now, moved.bytes));
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
