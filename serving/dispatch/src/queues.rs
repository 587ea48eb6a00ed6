//! Where available runs wait, by their first offsets. The runs of a consumer of its own wait at its session.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::time::TimestampMs;

/// All but those of consumers.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Of any consumer.
    pub(crate) shared: BTreeSet<u64>,
    /// Of any that holds nothing.
    pub(crate) suspects: BTreeSet<u64>,
    /// By the slot that is blocked; none is empty.
    pub(crate) stalled: BTreeMap<u16, BTreeSet<u64>>,
    /// Runs of which only a stamp is known: blocked …
    pub(crate) stalled_stamps: BTreeSet<u64>,
    /// … or to be read with hashes.
    pub(crate) hashless: BTreeSet<u64>,
    /// Until when.
    pub(crate) delayed: BTreeMap<u64, TimestampMs>,
    due: BTreeSet<(TimestampMs, u64)>,
    /// To be numbered as dead letters.
    pub(crate) dying: BTreeSet<u64>,
}

impl Queues {
    pub(crate) fn delay(&mut self, first: u64, until: TimestampMs) {
        self.delayed.insert(first, until);
        self.due.insert((until, first));
    }

    pub(crate) fn undelay(&mut self, first: u64) {
        if let Some(until) = self.delayed.remove(&first) {
            self.due.remove(&(until, first));
        }
    }

    /// One whose time has come; it stays until it is taken out.
    pub(crate) fn first_due(&self, now: TimestampMs) -> Option<u64> {
        let (until, first) = self.due.first()?;
        (*until <= now).then_some(*first)
    }

    pub(crate) fn next_due(&self) -> Option<TimestampMs> {
        self.due.first().map(|(until, _)| *until)
    }

    pub(crate) fn stall(&mut self, slot: u16, first: u64) {
        self.stalled.entry(slot).or_default().insert(first);
    }

    pub(crate) fn unstall(&mut self, slot: u16, first: u64) {
        if let Some(firsts) = self.stalled.get_mut(&slot) {
            firsts.remove(&first);
            if firsts.is_empty() {
                self.stalled.remove(&slot);
            }
        }
    }
}
