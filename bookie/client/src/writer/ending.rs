//! How a writer ends: drained and closed by its owner (W13, W14), or stopped by others (W6).

use hulse_proto::ledger::Degraded;

use super::core::{Phase, WriterCore};
use super::event::{Sealing, WriterEffect};
use super::pending::{Pending, Slot};
use super::position::Health;
use crate::error::{AppendError, NotWritten, WriterEnd};
use crate::quorum::write_set;

impl WriterCore {
    pub(super) fn stop(&mut self, effects: &mut Vec<WriterEffect>) {
        if self.phase == Phase::Open {
            self.phase = Phase::Stopping { drained: false };
            self.check_drained(effects);
        }
    }

    /// Says once that a drain is over: everything is confirmed, and every member that answers has its copies.
    pub(super) fn check_drained(&mut self, effects: &mut Vec<WriterEffect>) {
        if self.phase != (Phase::Stopping { drained: false }) || self.change.is_proposed() {
            return;
        }
        if self.drain_over {
            return self.say_drained(effects);
        }
        if self.window.head().is_some() {
            return;
        }
        let quorums = self.config.quorums;
        let coming = self.window.iter().any(|pending| {
            write_set(quorums, pending.header.entry).any(|position| {
                let sent = matches!(pending.slot(quorums, position), Some(Slot::Sent { .. }));
                sent && self.positions[position].health == Health::Up
            })
        });
        if !coming {
            self.say_drained(effects);
        }
    }

    fn say_drained(&mut self, effects: &mut Vec<WriterEffect>) {
        self.phase = Phase::Stopping { drained: true };
        effects.push(WriterEffect::Drained);
    }

    /// Fixes the end at LAC + 1: from here on no ack counts (W13).
    pub(super) fn freeze(&mut self, effects: &mut Vec<WriterEffect>) {
        if !self.sending() {
            return;
        }
        self.phase = Phase::Frozen;
        let quorums = self.config.quorums;
        let late: Vec<(usize, hulse_proto::id::EntryId)> = self
            .window
            .iter()
            .filter(|pending| pending.confirmed_at.is_some() && pending.entry.is_some())
            .flat_map(|pending| {
                write_set(quorums, pending.header.entry)
                    .filter(|position| {
                        let slot = pending.slot(quorums, *position);
                        matches!(slot, Some(Slot::Unsent | Slot::Sent { .. }))
                    })
                    .map(|position| (position, pending.header.entry))
            })
            .collect();
        for (position, entry) in late {
            self.positions[position].note_lacking(entry);
        }
        let positions = self.positions.iter();
        let degraded = positions
            .filter_map(|position| {
                let (first, end) = position.lacking?;
                Some(Degraded {
                    first,
                    end,
                    bookies: vec![position.member.bookie.clone()],
                })
            })
            .chain(self.change.lacking().iter().cloned())
            .collect();
        effects.push(WriterEffect::Frozen(Sealing {
            totals: self.confirmed,
            degraded,
        }));
    }

    /// The ledger ends at the frozen end: what is above is definitely not in the log (W13).
    pub(super) fn close_committed(&mut self, effects: &mut Vec<WriterEffect>) {
        if self.phase != Phase::Frozen {
            return;
        }
        let ledger = self.config.ledger;
        let end = self.confirmed.end;
        for pending in self.window.take_unconfirmed() {
            effects.push(WriterEffect::Failed {
                entry: pending.header.entry,
                error: AppendError::NotWritten {
                    why: NotWritten::Closed { ledger, end },
                },
            });
        }
        self.finish(WriterEnd::Closed { ledger }, effects);
    }

    pub(super) fn close_failed(&mut self, end: WriterEnd, effects: &mut Vec<WriterEffect>) {
        match &self.phase {
            Phase::Ending(_) | Phase::Ended(_) => {}
            _ => {
                self.fail_unconfirmed(&end, effects);
                self.finish(end, effects);
            }
        }
    }

    /// Stops sending for ever (W6). Acks of what was sent may still count.
    pub(super) fn begin_end(&mut self, end: WriterEnd, effects: &mut Vec<WriterEffect>) {
        match self.phase {
            Phase::Open | Phase::Stopping { .. } => {
                self.phase = Phase::Ending(end.clone());
                effects.push(WriterEffect::Ended(end));
                self.settle_ending(effects);
            }
            // A close is on its way and decides alone; a second end changes nothing.
            Phase::Frozen | Phase::Ending(_) | Phase::Ended(_) => {}
        }
    }

    /// Nothing can be confirmed any more by waiting: ends the writer, or goes on to the close when it drains.
    pub(super) fn give_up(&mut self, why: String, effects: &mut Vec<WriterEffect>) {
        match self.phase {
            // The close fixes the end at LAC + 1 and makes the rest certain: better than "unknown".
            Phase::Stopping { drained: false } => {
                self.drain_over = true;
                self.check_drained(effects);
            }
            Phase::Open | Phase::Ending(_) => {
                let ledger = self.config.ledger;
                let announced = self.end().cloned();
                let end = announced.unwrap_or(WriterEnd::OutcomeUnknown { ledger, why });
                self.fail_unconfirmed(&end, effects);
                self.finish(end, effects);
            }
            Phase::Stopping { drained: true } | Phase::Frozen | Phase::Ended(_) => {}
        }
    }

    /// Ends for good once no outstanding answer can confirm the head.
    pub(super) fn settle_ending(&mut self, effects: &mut Vec<WriterEffect>) {
        let Phase::Ending(end) = &self.phase else {
            return;
        };
        let hopeful = self.window.head().is_some_and(|head| {
            let hoped_for = head.hoped_for(self.config.quorums, |at| self.counts(at));
            hoped_for >= self.config.quorums.ack as usize
        });
        if !hopeful {
            let end = end.clone();
            self.fail_unconfirmed(&end, effects);
            self.finish(end, effects);
        }
    }

    pub(super) fn finish(&mut self, end: WriterEnd, effects: &mut Vec<WriterEffect>) {
        let announced = matches!(self.phase, Phase::Ending(_));
        self.phase = Phase::Ended(end.clone());
        if !announced {
            effects.push(WriterEffect::Ended(end));
        }
        while self.window.late_front().is_some() {
            self.window.release_front();
        }
        for position in 0..self.positions.len() {
            effects.push(WriterEffect::Forget { position });
        }
    }

    /// Answers every unconfirmed append. One of which nothing was ever sent is certainly nowhere.
    pub(super) fn fail_unconfirmed(&mut self, end: &WriterEnd, effects: &mut Vec<WriterEffect>) {
        for pending in self.window.take_unconfirmed() {
            effects.push(WriterEffect::Failed {
                entry: pending.header.entry,
                error: self.failure(&pending, end),
            });
        }
    }

    fn failure(&self, pending: &Pending, end: &WriterEnd) -> AppendError {
        let ledger = self.config.ledger;
        let entry = pending.header.entry;
        match end {
            _ if !pending.ever_sent => AppendError::Ended(end.clone()),
            WriterEnd::Fenced { token, .. } => AppendError::Fenced {
                ledger,
                entry,
                token: *token,
            },
            _ => AppendError::OutcomeUnknown {
                ledger,
                entry,
                why: end.clone(),
            },
        }
    }
}
