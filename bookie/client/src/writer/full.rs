//! Full disks (storage.md, amended D1): when the head can find no ack quorum here any more, the owner is told.
//!
//! A member that answers READONLY is replaced at once (W7). Only when that leaves too few members for the head's ack quorum, and a
//! fresh survey found nobody to take their places, is the ledger said to be full; closing it makes the fate of the rest certain.
//! Silence is never taken for a full disk: a silent member may hold the entry, so its fate is a matter of waiting, or of recovery.

use std::time::Duration;

use hulse_proto::entry::EntryClass;

use super::core::{Phase, WriterCore};
use super::event::WriterEffect;
use super::pending::{Pending, Slot};
use super::position::Health;
use crate::quorum::write_set;

/// What is known of the room at the members.
#[derive(Debug, Default)]
pub(super) struct Fullness {
    /// The head can find no ack quorum since then.
    since: Option<Duration>,
    /// A survey that was asked for at that time found nobody to replace a member.
    pub(super) nobody_at: Option<Duration>,
    /// [`WriterEffect::Full`] was said.
    said: bool,
}

impl WriterCore {
    /// Looks whether the ledger is full, after every event.
    pub(super) fn watch_room(&mut self, now: Duration, effects: &mut Vec<WriterEffect>) {
        if !self.is_blocked() {
            self.full.since = None;
            return;
        }
        if self.full.since.is_none() {
            self.full.since = Some(now);
            // However long ago the last survey found nobody: producers wait.
            self.change.not_before = self.change.not_before.min(now);
        }
        if self.full_at().is_none_or(|at| at > now) {
            return;
        }
        if self.phase == Phase::Open {
            self.full.said = true;
            let why = self.refusals();
            effects.push(WriterEffect::Full { why });
        } else {
            // Nothing that is drained for can come.
            self.drain_over = true;
            self.check_drained(effects);
        }
    }

    /// When the ledger is full for certain, if nothing happens before.
    pub(super) fn full_at(&self) -> Option<Duration> {
        let since = self.full.since?;
        let waits = match self.phase {
            Phase::Open => !self.full.said,
            Phase::Stopping { drained } => !drained && !self.drain_over,
            Phase::Frozen | Phase::Ending(_) | Phase::Ended(_) => false,
        };
        // An ensemble of one is never changed, so nobody can take its place.
        let alone = self.config.quorums.ensemble == 1;
        let surveyed = alone || self.full.nobody_at.is_some_and(|at| at >= since);
        (waits && surveyed && !self.change.is_proposed())
            .then_some(since + self.config.full_patience)
    }

    /// True when the head is DATA and so many members explicitly refuse it, or are useless, that the others are no ack quorum. What
    /// passes read-only bookies is not meant: META, CONTROL, and so state ledgers as a whole.
    fn is_blocked(&self) -> bool {
        let refusing = self.positions.iter().any(|position| position.read_only);
        if !refusing || !self.sending() {
            return false;
        }
        let data = |head: &&Pending| head.header.class == EntryClass::Data;
        let Some(head) = self.window.head().filter(data) else {
            return false;
        };
        let quorums = self.config.quorums;
        let mut refused = false;
        let hopeful = write_set(quorums, head.header.entry).filter(|at| {
            let position = &self.positions[*at];
            let acked = head.slot(quorums, *at) == Some(Slot::Acked);
            refused |= position.read_only && !acked;
            acked || !(position.read_only || position.health == Health::Useless)
        });
        hopeful.count() < quorums.ack as usize && refused
    }
}
