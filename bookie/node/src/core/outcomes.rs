//! What becomes of groups: they are stored, or the log fails.

use hulse_proto::bookie::BookieError;

use super::event::{Answer, Effect};
use super::fences;
use super::groups::{PlacedAdd, TakenGroup, Waiter};
use super::node_core::{NodeCore, Queued};
use crate::index::{Location, Slot};
use crate::ledger::GroupNumber;
use crate::log::LogPosition;

impl NodeCore {
    pub(super) fn stored(
        &mut self,
        group: GroupNumber,
        placed: &[(GroupNumber, LogPosition)],
        effects: &mut Vec<Effect>,
    ) {
        if self.failed.is_some() {
            return;
        }
        while let Some(taken) = self.groups.pop_stored(group) {
            let placed = placed.iter().find(|(number, _)| *number == taken.number);
            let (_, at) = placed.expect("the writer names the place of every group that it stored");
            self.group_stored(taken, *at, effects);
        }
    }

    fn group_stored(&mut self, group: TakenGroup, at: LogPosition, effects: &mut Vec<Effect>) {
        for item in group.items {
            let Some(add) = item.add else {
                continue;
            };
            let location = Location {
                file: at.file as u32,
                offset: at.offset as u32 + item.place.at,
                bytes: item.place.bytes,
            };
            self.index(&add, location);
            effects.push(self.answer_add(add.ticket, Ok(())));
        }
        for waiter in group.waiters {
            self.wake(waiter, effects);
        }
    }

    fn index(&mut self, add: &PlacedAdd, location: Location) {
        if let Some(state) = self.state.ledgers.get_mut(&add.ledger) {
            state.pending.remove(&add.entry);
            let digest = add.digest;
            state.store(add.entry, Slot { location, digest });
        }
        // It may have come into the same file again.
        let at = (add.ledger, add.entry);
        if self.state.found_damaged.remove(&at).is_some() {
            self.reclaiming.doubtful.remove(&at);
        }
    }

    fn wake(&mut self, waiter: Waiter, effects: &mut Vec<Effect>) {
        match waiter {
            Waiter::Add {
                ticket,
                ledger,
                entry,
            } => {
                let held = self.state.ledgers.get(&ledger);
                let held = held.is_some_and(|s| s.deleted || s.entries.contains(entry));
                // The first copy expired before it was appended: nothing was written.
                let result = if held { Ok(()) } else { Err(self.busy()) };
                effects.push(self.answer_add(ticket, result));
            }
            Waiter::Fence {
                ticket,
                ledger,
                token,
            } => {
                effects.push(self.fence_answer(ticket, ledger, token));
            }
            Waiter::RecoveryRead { ticket, request } => {
                self.recovery_read(ticket, request, effects);
            }
            Waiter::Delete { ticket } => effects.push(Effect::Answer {
                ticket,
                answer: Answer::Delete(Ok(())),
            }),
            Waiter::DeadBelow { below } => self.forget_below(below),
            Waiter::Unlink { files } => effects.push(Effect::Unlink { files }),
        }
    }

    pub(super) fn log_failed(&mut self, why: String, effects: &mut Vec<Effect>) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(why.clone());
        let error = BookieError::Failed { why };
        for (items, waiters) in self.groups.drain() {
            for add in items.into_iter().filter_map(|item| item.add) {
                effects.push(self.answer_add(add.ticket, Err(error.clone())));
            }
            let failed = waiters
                .into_iter()
                .filter_map(|w| fences::fail(w, error.clone()));
            effects.extend(failed);
        }
        for (_, queue) in std::mem::take(&mut self.verifying) {
            for item in queue {
                match item {
                    Queued::Add { ticket, .. } => {
                        effects.push(self.answer_add(ticket, Err(error.clone())));
                    }
                    Queued::Other(event) => {
                        effects.extend(fences::refuse(event, error.clone()));
                    }
                }
            }
        }
        self.verifying_bytes = 0;
    }
}
