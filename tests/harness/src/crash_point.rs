//! The places of storage.md §10 at which a run kills a process, and how often each was hit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::Rng;
use rand_chacha::ChaCha12Rng;

/// A crash point of storage.md §10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CrashPoint(pub u32);

/// A bookie's: append to the page cache, sync, ack, fence, first contact, first group of a file, tail recovery, identity.
pub const BOOKIE_POINTS: [CrashPoint; 8] = [
    CrashPoint(1),
    CrashPoint(2),
    CrashPoint(3),
    CrashPoint(4),
    CrashPoint(5),
    CrashPoint(8),
    CrashPoint(9),
    CrashPoint(13),
];
/// Of a bookie's files: next one made, footer, reclaim, tombstone. They are armed besides the others, by a draw of their own, so that
/// no other history became rarer when they came.
pub const FILE_POINTS: [CrashPoint; 4] =
    [CrashPoint(6), CrashPoint(7), CrashPoint(10), CrashPoint(11)];
/// A writer's: creating, changing the ensemble, confirming, closing, rolling (close and create at once).
pub const WRITER_POINTS: [CrashPoint; 5] = [
    CrashPoint(15),
    CrashPoint(16),
    CrashPoint(17),
    CrashPoint(18),
    CrashPoint(19),
];
/// A recoverer's: token taken, between fences, between write-backs, closing.
pub const RECOVERY_POINTS: [CrashPoint; 4] = [
    CrashPoint(20),
    CrashPoint(21),
    CrashPoint(22),
    CrashPoint(23),
];

/// Repair's: between copies and swap, or after it.
pub const REPAIR_POINTS: [CrashPoint; 1] = [CrashPoint(24)];

/// On which side of the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The step does not happen.
    Before,
    /// The step happens and is the last effect.
    After,
}

/// How often each point was hit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hits(pub BTreeMap<CrashPoint, u64>);

impl Hits {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        for (point, hits) in &other.0 {
            *self.0.entry(*point).or_default() += hits;
        }
    }
}

/// Which points are armed in one run. Clones share it.
#[derive(Debug, Clone)]
pub struct CrashPlan(Arc<Mutex<Plan>>);

#[derive(Debug)]
struct Plan {
    rng: ChaCha12Rng,
    /// Point, passes left before it strikes, side.
    armed: Vec<(CrashPoint, u32, Side)>,
    hits: Hits,
}

impl CrashPlan {
    /// Nothing armed.
    pub fn new(rng: ChaCha12Rng) -> Self {
        Self(Arc::new(Mutex::new(Plan {
            rng,
            armed: Vec::new(),
            hits: Hits::default(),
        })))
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Arms a point: it strikes at one of its next few passes.
    pub fn arm(&self, point: CrashPoint, passes_max: u32) {
        let mut plan = self.plan();
        let passes = plan.rng.random_range(0..passes_max.max(1));
        let side = match plan.rng.random_bool(0.5) {
            true => Side::Before,
            false => Side::After,
        };
        plan.armed.push((point, passes, side));
    }

    /// Disarms everything: the world heals.
    pub fn disarm(&self) {
        self.plan().armed.clear();
    }

    /// True when the point is armed.
    pub fn is_armed(&self, point: CrashPoint) -> bool {
        self.plan()
            .armed
            .iter()
            .any(|(armed, _, _)| *armed == point)
    }

    /// A process passes the point. `Some`: it dies here, on that side of the step; counted.
    pub fn pass(&self, point: CrashPoint) -> Option<Side> {
        let mut plan = self.plan();
        let index = plan
            .armed
            .iter()
            .position(|(armed, _, _)| *armed == point)?;
        if plan.armed[index].1 > 0 {
            plan.armed[index].1 -= 1;
            return None;
        }
        let (_, _, side) = plan.armed.remove(index);
        *plan.hits.0.entry(point).or_default() += 1;
        Some(side)
    }

    /// Counts a hit that the caller brought about itself.
    pub fn count(&self, point: CrashPoint) {
        *self.plan().hits.0.entry(point).or_default() += 1;
    }

    /// The hits so far.
    pub fn hits(&self) -> Hits {
        self.plan().hits.clone()
    }
}
