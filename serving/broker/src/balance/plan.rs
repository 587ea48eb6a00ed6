//! Which moves would even brokers out. No I/O and no clock.
//!
//! # Invariants
//! 1. Each move takes a partition from a broker above the mean to the one that has least, and only one that weighs clearly less than the
//!    two differ: the sum of the squares of all loads falls with each move, so constant loads never bring a partition back.
//! 2. Nothing goes to a broker that is not ready, nor from one; pinned partitions and those that were moved lately stay.
//! 3. What begins a plan is further from the mean than where the plan ends, and a plan that gains hardly anything is none: loads that
//!    go up and down a little move nothing.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::id::{NodeName, PartitionId};

use super::model::{
    BalanceLimits, BrokerLoad, GAP_MIN, Move, PARTITION_COST, PartitionLoad, Scene,
};

/// Moves that are thought through; more partitions than that wait for the next plan.
const MOVES_THOUGHT_MAX: usize = 20_000;

/// How far brokers are apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Spread {
    /// Of the broker that is furthest from the mean, in percent of the mean.
    pub(super) percent: u32,
    /// Between the one that has most and the one that has least.
    pub(super) gap: u64,
}

impl Spread {
    fn of(loads: impl Iterator<Item = u64> + Clone) -> Self {
        let (most, least) = (loads.clone().max(), loads.clone().min());
        let (Some(most), Some(least)) = (most, least) else {
            return Self::default();
        };
        let mean = mean(loads);
        let furthest = most.saturating_sub(mean).max(mean.saturating_sub(least));
        let percent = u128::from(furthest) * 100 / u128::from(mean.max(1));
        Self {
            percent: u32::try_from(percent).unwrap_or(u32::MAX),
            gap: most - least,
        }
    }

    /// Nothing is to be done about it.
    pub(super) fn is_even(self, limits: &BalanceLimits) -> bool {
        self.percent <= limits.spread_percent || self.gap < GAP_MIN
    }
}

/// What could be done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Planned {
    pub(super) before: Spread,
    /// When all of `moves` are made.
    pub(super) after: Spread,
    /// In the order in which they are to be made. None where they would hardly help.
    pub(super) moves: Vec<Move>,
    /// Partitions of brokers above the mean that stay as they are pinned …
    pub(super) pinned: usize,
    /// … and as they were moved lately.
    pub(super) resting: usize,
}

/// How far the brokers that are ready are apart.
pub(super) fn spread(scene: &Scene) -> Spread {
    Spread::of(ready(scene).map(|(_, broker)| broker.weight()))
}

/// The moves that bring each broker near to the mean.
pub(super) fn plan(scene: &Scene, limits: &BalanceLimits) -> Planned {
    let (pinned, resting) = held_back(scene, limits);
    let before = spread(scene);
    let planned = Planned {
        before,
        after: before,
        moves: Vec::new(),
        pinned,
        resting,
    };
    let mut sides = Sides::of(scene, limits);
    if before.is_even(limits) || sides.spread().is_even(limits) {
        return planned;
    }
    let (mut moves, mut gained) = (Vec::new(), 0_u64);
    while moves.len() < MOVES_THOUGHT_MAX
        && let Some(step) = sides.next_step()
    {
        gained = gained.saturating_add(step.gain);
        moves.extend(sides.carry(step));
    }
    match gained < sides.mean * sides.goal_percent / 100 {
        true => planned,
        false => Planned {
            after: Spread::of(sides.all.iter().map(Side::real)),
            moves,
            ..planned
        },
    }
}

fn ready(scene: &Scene) -> impl Iterator<Item = (&NodeName, &BrokerLoad)> + Clone {
    scene.iter().filter(|(_, broker)| broker.ready)
}

fn mean(loads: impl Iterator<Item = u64> + Clone) -> u64 {
    let count = loads.clone().count() as u64;
    loads.fold(0, u64::saturating_add) / count.max(1)
}

/// Partitions of brokers above the mean that may not move: those that are pinned, and those that were moved lately.
fn held_back(scene: &Scene, limits: &BalanceLimits) -> (usize, usize) {
    let mean = mean(ready(scene).map(|(_, broker)| broker.weight()));
    let above = ready(scene).filter(|(_, broker)| broker.weight() > mean);
    let held = above.flat_map(|(_, broker)| broker.partitions.values());
    let held = held.filter(|load| !load.may_move(limits));
    let (pinned, resting): (Vec<&PartitionLoad>, Vec<_>) = held.partition(|load| load.pinned);
    (pinned.len(), resting.len())
}

/// What of a broker can be evened out, when this is what each should have.
struct Share {
    /// Pinned, or a partition that is more than any broker should have: it would be too much wherever it was.
    fixed: u64,
    /// Everything else.
    other: u64,
    /// Such a partition.
    giant: Option<PartitionId>,
}

impl Share {
    fn of(broker: &BrokerLoad, mean: u64) -> Self {
        let pinned = broker.partitions.values().filter(|load| load.pinned);
        let pinned = pinned.map(PartitionLoad::weight).sum::<u64>();
        let free = broker.partitions.iter().filter(|(_, load)| !load.pinned);
        let heaviest = free.max_by_key(|(_, load)| load.weight());
        let giant = heaviest.filter(|(_, load)| load.weight() > mean);
        let fixed = pinned + giant.map_or(0, |(_, load)| load.weight());
        Self {
            fixed,
            other: broker.weight().saturating_sub(fixed),
            giant: giant.map(|(id, _)| *id),
        }
    }
}

/// What each broker should have, and those that have more than that for good. These are set aside: they give all else that they have,
/// and the others are to be even among themselves.
fn set_aside(scene: &Scene) -> (u64, BTreeSet<&NodeName>) {
    let mut aside = BTreeSet::new();
    let mut each = mean(ready(scene).map(|(_, broker)| broker.weight()));
    loop {
        let rest = ready(scene).filter(|(name, _)| !aside.contains(name));
        let over = rest.filter(|(_, broker)| Share::of(broker, each).fixed > each);
        let over: Vec<_> = over.map(|(name, _)| name).collect();
        let left = ready(scene).count() - aside.len() - over.len();
        if over.is_empty() || left == 0 {
            return (each, aside);
        }
        aside.extend(over);
        let loads = ready(scene).map(|(name, broker)| match aside.contains(name) {
            true => Share::of(broker, each).other,
            false => broker.weight(),
        });
        each = loads.fold(0, u64::saturating_add) / left as u64;
    }
}

/// A broker while moves are thought through.
struct Side<'a> {
    name: &'a NodeName,
    /// Of one that was set aside: what it should have, and all that it can give.
    load: u64,
    /// What it has beside that.
    more: u64,
    /// Partitions that may go, by weight.
    movable: BTreeMap<u64, Vec<PartitionId>>,
}

impl Side<'_> {
    fn real(&self) -> u64 {
        self.load.saturating_add(self.more)
    }
}

/// From which side to which, and what it weighs.
#[derive(Clone, Copy)]
struct Step {
    from: usize,
    to: usize,
    weight: u64,
    /// Half of what the two are nearer to each other then.
    gain: u64,
}

struct Sides<'a> {
    all: Vec<Side<'a>>,
    mean: u64,
    /// So near to the mean nobody gives to somebody as near.
    goal_percent: u64,
}

impl<'a> Sides<'a> {
    fn of(scene: &'a Scene, limits: &BalanceLimits) -> Self {
        let (mean, aside) = set_aside(scene);
        let all = ready(scene).map(|(name, broker)| {
            let share = Share::of(broker, mean);
            let aside = aside.contains(name);
            let mut movable: BTreeMap<u64, Vec<PartitionId>> = BTreeMap::new();
            for (id, load) in &broker.partitions {
                let stays = aside && share.giant == Some(*id);
                if load.may_move(limits) && !stays {
                    movable.entry(load.weight()).or_default().push(*id);
                }
            }
            let load = match aside {
                true => mean.saturating_add(share.other),
                false => broker.weight(),
            };
            Side {
                name,
                load,
                more: broker.weight().saturating_sub(load),
                movable,
            }
        });
        Self {
            all: all.collect(),
            mean,
            // Half-way in, so that a little more or less does not begin it again.
            goal_percent: u64::from(limits.spread_percent / 2),
        }
    }

    fn spread(&self) -> Spread {
        Spread::of(self.all.iter().map(|side| side.load))
    }

    /// From the broker with most that can give anything, to the one with least.
    fn next_step(&self) -> Option<Step> {
        let loads = || self.all.iter().map(|side| side.load).enumerate();
        let (to, least) = loads().min_by_key(|(_, load)| *load)?;
        let above = self.mean.saturating_add(self.margin(least));
        let mut givers: Vec<_> = loads().filter(|(_, load)| *load > above).collect();
        givers.sort_by_key(|(_, load)| std::cmp::Reverse(*load));
        givers.into_iter().find_map(|(from, most)| {
            let gap = most - least;
            let far = self.is_far(most) || self.is_far(least);
            let weight = match far && gap >= GAP_MIN / 2 {
                true => nearest(&self.all[from].movable, gap)?,
                false => return None,
            };
            let gain = weight.min(gap - weight);
            Some(Step {
                from,
                to,
                weight,
                gain,
            })
        })
    }

    /// So much above the mean nobody gives, unless there is one that has hardly anything: many may have a little more than the mean
    /// then, all for that one.
    fn margin(&self, least: u64) -> u64 {
        match least < self.mean / 2 {
            true => 0,
            false => self.mean * self.goal_percent / 200,
        }
    }

    fn is_far(&self, load: u64) -> bool {
        let allowed = u128::from(self.mean) * u128::from(self.goal_percent);
        u128::from(load.abs_diff(self.mean)) * 100 > allowed
    }

    /// Where a partition goes it stays: it is not among those that may go from there.
    fn carry(&mut self, step: Step) -> Option<Move> {
        let Step {
            from, to, weight, ..
        } = step;
        let giver = &mut self.all[from];
        let same = giver.movable.get_mut(&weight)?;
        let partition = same.pop()?;
        if same.is_empty() {
            giver.movable.remove(&weight);
        }
        giver.load -= weight;
        let from = giver.name.clone();
        let taker = &mut self.all[to];
        taker.load += weight;
        Some(Move {
            partition,
            from,
            to: taker.name.clone(),
            bytes: weight - PARTITION_COST,
        })
    }
}

/// The weight that is nearest to half of the gap, and below four fifths of it: what is about as big as the gap would only change sides.
fn nearest(movable: &BTreeMap<u64, Vec<PartitionId>>, gap: u64) -> Option<u64> {
    let half = gap / 2;
    let below = movable.range(..=half).next_back();
    let above = movable.range(half + 1..(gap / 5 * 4).max(half + 1)).next();
    let both = below.into_iter().chain(above).map(|(weight, _)| *weight);
    both.min_by_key(|weight| weight.abs_diff(half))
}
