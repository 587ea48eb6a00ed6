//! Deletions, and the watermark that lets old ones be forgotten (storage.md B12, G4).
//!
//! # Invariants
//! 1. A tombstone is forgotten only after a durable watermark above it: from then on metadata are asked about its ledger, even by
//!    a fence, a recovery read, a recovery add or a copy, and metadata never bring a ledger back.
//! 2. No tombstone is forgotten while an older answer of metadata about its ledger may be under way: that answer may say OPEN.

use hulse_proto::bookie::{Address, BookieError};
use hulse_proto::id::LedgerId;

use super::event::{Answer, Effect, Event, Ticket};
use super::groups::{STATE_RECORD_BYTES, Waiter};
use super::node_core::{NodeCore, Purpose, Queued};
use crate::ledger::GroupNumber;
use crate::log::Record;

impl NodeCore {
    /// True for a ledger of which only metadata know whether it is dead.
    pub(super) fn unknown_below_watermark(&self, to: &Address) -> bool {
        to.ledger < self.state.dead_below
            && !self.state.ledgers.contains_key(&to.ledger)
            && self.check(to).is_ok()
    }

    /// Lets a fence or a recovery read wait for metadata's word.
    pub(super) fn ask_first(&mut self, ledger: LedgerId, event: Event, effects: &mut Vec<Effect>) {
        let admitted = self
            .check_log()
            .and_then(|()| self.admit_bytes(STATE_RECORD_BYTES, Purpose::State));
        match admitted {
            Ok(()) => self.queue(ledger, Queued::Other(event), effects),
            Err(error) => effects.extend(super::fences::refuse(event, error)),
        }
    }

    pub(super) fn delete(&mut self, ticket: Ticket, to: Address, effects: &mut Vec<Effect>) {
        let answer = |result| Effect::Answer {
            ticket,
            answer: Answer::Delete(result),
        };
        match self.bury(&to) {
            Err(error) => effects.push(answer(Err(error))),
            Ok(group) if self.groups.is_stored(group) => effects.push(answer(Ok(()))),
            Ok(group) => self.groups.wait(group, Waiter::Delete { ticket }),
        }
    }

    /// Writes the tombstone, if there is none. The group whose durability makes the deletion durable.
    pub(super) fn bury(&mut self, to: &Address) -> Result<GroupNumber, BookieError> {
        self.check(to)?;
        self.check_log()?;
        let ledger = to.ledger;
        if let Some(state) = self.state.ledgers.get(&ledger).filter(|s| s.deleted) {
            return Ok(state.deleted_group);
        }
        // Whoever asks has marked it in metadata before, and no older answer about it is under way.
        if self.unknown_below_watermark(to) && !self.verifying.contains_key(&ledger) {
            return Ok(GroupNumber(0));
        }
        self.admit_bytes(STATE_RECORD_BYTES, Purpose::Tombstone)?;
        let group = self.groups.append(&Record::Tombstone { ledger });
        self.reclaiming.buried(ledger, &self.state);
        self.state.bury(ledger);
        if let Some(state) = self.state.ledgers.get_mut(&ledger) {
            state.deleted_group = group;
        }
        self.raise_watermark();
        Ok(group)
    }

    /// With too many tombstones in memory, writes a watermark above the lower half of them.
    fn raise_watermark(&mut self) {
        let most = self.limits.tombstones_max;
        if self.raising.is_some() || self.state.tombstones.len() <= most {
            return;
        }
        let Some(below) = self.state.watermark(most / 2) else {
            return;
        };
        // Without room now the next deletion tries again.
        let room = self.admit_bytes(STATE_RECORD_BYTES, Purpose::Tombstone);
        if room.is_ok() {
            let group = self.groups.append(&Record::DeadBelow { below });
            self.groups.wait(group, Waiter::DeadBelow { below });
            self.raising = Some(below);
        }
    }

    /// The watermark is durable.
    pub(super) fn forget_below(&mut self, below: LedgerId) {
        self.raising = None;
        self.state.dead_below = self.state.dead_below.max(below);
        let (groups, verifying) = (&self.groups, &self.verifying);
        self.state.forget_dead(|ledger, state| {
            groups.is_stored(state.deleted_group) && !verifying.contains_key(&ledger)
        });
    }
}
