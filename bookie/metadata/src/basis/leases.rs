//! Leases and the keys bound to them, in memory.
//!
//! # Invariants
//! 1. A lease is alive until its deadline passes or it is ended; from then on it never lives again.
//! 2. An ended lease stays here until its keys are removed for good, so that a failed removal is tried again.
//! 3. Each key is bound to at most one lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::basis::history::Change;
use crate::store::{LeaseId, MetadataError, WatchEvent};

/// Most leases at once: nodes and a few sessions, with room to spare.
const LEASES_MAX: usize = 100_000;

#[derive(Debug)]
struct Lease {
    ttl: Duration,
    deadline: Instant,
    ended: bool,
    keys: BTreeSet<String>,
}

/// All leases of a store.
#[derive(Debug)]
pub(crate) struct Leases {
    next: u64,
    held: BTreeMap<LeaseId, Lease>,
    by_deadline: BTreeSet<(Instant, LeaseId)>,
}

impl Leases {
    /// None; the first granted one is `first`.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            next: first,
            held: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
        }
    }

    /// Makes one.
    pub(crate) fn grant(&mut self, ttl: Duration, now: Instant) -> Result<LeaseId, MetadataError> {
        let deadline = match now.checked_add(ttl) {
            Some(deadline) if !ttl.is_zero() => deadline,
            _ => {
                return Err(MetadataError::Invalid {
                    why: format!("a lease cannot live for {ttl:?}"),
                });
            }
        };
        if self.held.len() >= LEASES_MAX {
            return Err(MetadataError::Unavailable {
                why: format!("{LEASES_MAX} leases are held already"),
            });
        }
        let id = LeaseId(self.next);
        self.next += 1;
        self.by_deadline.insert((deadline, id));
        self.held.insert(
            id,
            Lease {
                ttl,
                deadline,
                ended: false,
                keys: BTreeSet::new(),
            },
        );
        Ok(id)
    }

    /// It has neither ended nor passed its deadline.
    pub(crate) fn alive(&self, id: LeaseId, now: Instant) -> bool {
        self.held
            .get(&id)
            .is_some_and(|lease| !lease.ended && lease.deadline > now)
    }

    /// Starts its time anew.
    pub(crate) fn renew(&mut self, id: LeaseId, now: Instant) -> Result<(), MetadataError> {
        if !self.alive(id, now) {
            return Err(MetadataError::LeaseEnded(id.0));
        }
        if let Some(lease) = self.held.get_mut(&id) {
            self.by_deadline.remove(&(lease.deadline, id));
            lease.deadline = now.checked_add(lease.ttl).unwrap_or(lease.deadline);
            self.by_deadline.insert((lease.deadline, id));
        }
        Ok(())
    }

    /// Makes it due at once.
    pub(crate) fn end(&mut self, id: LeaseId, now: Instant) {
        if let Some(lease) = self.held.get_mut(&id) {
            self.by_deadline.remove(&(lease.deadline, id));
            lease.ended = true;
            lease.deadline = lease.deadline.min(now);
            self.by_deadline.insert((lease.deadline, id));
        }
    }

    /// When the next one is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    /// Something is due.
    pub(crate) fn any_due(&self, now: Instant) -> bool {
        self.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Ends all that are due and tells their keys; [`Leases::forget`] them once the keys are gone.
    pub(crate) fn end_due(&mut self, now: Instant) -> Vec<(LeaseId, BTreeSet<String>)> {
        let due: Vec<LeaseId> = self
            .by_deadline
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .map(|(_, id)| *id)
            .collect();
        let mut ended = Vec::with_capacity(due.len());
        for id in due {
            if let Some(lease) = self.held.get_mut(&id) {
                lease.ended = true;
                ended.push((id, lease.keys.clone()));
            }
        }
        ended
    }

    /// Drops an ended lease whose keys are gone.
    pub(crate) fn forget(&mut self, id: LeaseId) {
        if let Some(lease) = self.held.remove(&id) {
            self.by_deadline.remove(&(lease.deadline, id));
        }
    }

    /// Follows a change that took effect.
    pub(crate) fn observe(&mut self, change: &Change) {
        if let Some(old) = change.before.as_ref().and_then(|row| row.lease)
            && let Some(lease) = self.held.get_mut(&old)
        {
            lease.keys.remove(change.key());
        }
        if let WatchEvent::Put(row) = &change.event
            && let Some(lease) = row.lease.and_then(|new| self.held.get_mut(&new))
        {
            lease.keys.insert(row.key.clone());
        }
    }
}
