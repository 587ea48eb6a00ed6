//! What was seen of backlogs last, for people.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hulse_proto::id::PartitionId;

use super::kept::Kept;

/// A subscription on a partition that has a quota.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Standing {
    /// "tenant/namespace/name".
    pub(crate) subscription: Arc<str>,
    pub(crate) kept: Kept,
    /// Of the quota; above 1.0: over it.
    pub(crate) used: f64,
    /// The same in whole percent.
    pub(crate) used_percent: u32,
    /// Producers are refused because of it.
    pub(crate) refusing: bool,
}

/// What is known of one partition.
#[derive(Debug, Default)]
struct Place {
    /// The one that is nearest to its quota.
    worst: Option<Standing>,
}

/// Cheap to clone; all see the same. Bounded by the partitions that are open with subscriptions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board(Arc<Mutex<BTreeMap<PartitionId, Place>>>);

impl Board {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PartitionId, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The subscription of a partition that is nearest to its quota, or most over it.
    pub(crate) fn worst(&self, partition: PartitionId) -> Option<Standing> {
        self.lock().get(&partition)?.worst.clone()
    }

    pub(super) fn set_worst(&self, partition: PartitionId, worst: Option<Standing>) {
        let mut places = self.lock();
        match worst {
            Some(_) => places.entry(partition).or_default().worst = worst,
            None => {
                if let Some(place) = places.get_mut(&partition) {
                    place.worst = None;
                }
            }
        }
    }

    /// Partitions that are not among these are forgotten.
    pub(super) fn retain(&self, known: impl Fn(&PartitionId) -> bool) {
        self.lock().retain(|partition, _| known(partition));
    }
}
