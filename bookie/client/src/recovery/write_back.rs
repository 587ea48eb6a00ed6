//! Writing back what was found, so that every entry below the end has Qa copies in the recorded ensemble (R8).

use std::time::Duration;

use hulse_proto::bookie::{AddRequest, BookieError, Origin};
use hulse_proto::entry::Entry;
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{Degraded, Quorums};

use super::asked::{Asked, Pace};
use super::core::RecoveryCore;
use super::event::{BookieAsk, Policy, RecoveryEffect};
use super::reading::Promise;
use crate::quorum::write_set;

/// A member that does not answer a write-back is waited for this long once Qa others hold the entry.
const GRACE: Duration = Duration::from_millis(500);

/// One entry on its way back.
#[derive(Debug)]
pub(super) struct WriteBack {
    entry: Entry,
    /// By position; `None` outside the write set.
    pub(super) copies: Vec<Option<Asked<()>>>,
    since: Duration,
}

impl WriteBack {
    /// A member whose read was positive holds the entry already: its recovery add would only say so again (B7).
    pub(super) fn new(
        now: Duration,
        entry: Entry,
        mut reads: Vec<Option<Asked<Promise>>>,
        quorums: Quorums,
        pace: Pace,
    ) -> Self {
        reads.resize(quorums.ensemble as usize, None);
        let digest = entry.header().digest();
        let mut copies = vec![None; quorums.ensemble as usize];
        for position in write_set(quorums, entry.header().entry) {
            let held = matches!(
                reads[position].as_ref().and_then(|asked| asked.answer.as_ref()),
                Some(Promise::Positive(held)) if held.header().digest() == digest
            );
            copies[position] = Some(if held {
                Asked::answered(())
            } else {
                Asked::new(now, pace)
            });
        }
        Self {
            entry,
            copies,
            since: now,
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.entry.header().entry_len()
    }

    pub(super) fn wakeups(&self, pace: Pace) -> impl Iterator<Item = Duration> + '_ {
        let copies = self.copies.iter().flatten();
        let asked = copies.filter_map(move |copy| copy.wakeup(pace));
        asked.chain([self.since + GRACE])
    }

    fn held(&self) -> usize {
        self.copies
            .iter()
            .flatten()
            .filter(|copy| copy.answer.is_some())
            .count()
    }

    /// Qa copies, and nothing more to hope for soon.
    fn is_done(&self, now: Duration, needed: usize, quorums: Quorums) -> bool {
        let held = self.held();
        held == quorums.write as usize
            || held >= needed
                && (now >= self.since + GRACE || self.copies.iter().flatten().all(Asked::heard))
    }
}

impl RecoveryCore {
    pub(super) fn added(
        &mut self,
        now: Duration,
        position: usize,
        entry: EntryId,
        result: Result<(), BookieError>,
        effects: &mut Vec<RecoveryEffect>,
    ) {
        let pace = self.pace();
        let Some(Some(copy)) = self
            .writes
            .get_mut(&entry)
            .and_then(|write| write.copies.get_mut(position))
        else {
            return;
        };
        match result {
            Ok(()) => copy.succeed(()),
            Err(error) => {
                copy.fail(now, pace, error.clone());
                self.stale(&error, effects);
            }
        }
    }

    pub(super) fn pump_write_back(&mut self, now: Duration, effects: &mut Vec<RecoveryEffect>) {
        let (pace, quorums, token) = (self.pace(), self.quorums(), self.token());
        let needed = match self.config.policy {
            Policy::Strict => quorums.ack as usize,
            // An operator's word seals what is there, however few copies there are.
            Policy::AcceptLoss { .. } => 1,
        };
        let ensemble = self.ledger().last_fragment().ensemble.clone();
        let confirmed_end = self.carried_end();
        let mut done = Vec::new();
        for (entry, write) in &mut self.writes {
            for (position, copy) in write.copies.iter_mut().enumerate() {
                if !copy.as_mut().is_some_and(|copy| copy.ask(now, pace)) {
                    continue;
                }
                let member = ensemble[position].clone();
                let request = AddRequest {
                    to: hulse_proto::bookie::Address {
                        cell: self.config.cell,
                        incarnation: member.incarnation,
                        ledger: self.config.ledger,
                    },
                    origin: Origin::Recovery { token },
                    confirmed_end: confirmed_end.unwrap_or(*entry),
                    entry: write.entry.clone(),
                    timeout: self.config.answer_timeout,
                };
                effects.push(RecoveryEffect::Ask {
                    position,
                    member,
                    ask: BookieAsk::Add(request),
                });
            }
            if write.is_done(now, needed, quorums) {
                done.push(*entry);
            }
        }
        for entry in done {
            let write = self.writes.remove(&entry);
            for (position, copy) in write.into_iter().flat_map(|write| write.copies).enumerate() {
                if copy.is_some_and(|copy| copy.answer.is_none()) {
                    self.note_lacking(entry, &ensemble[position].bookie);
                }
            }
        }
    }

    /// The confirmed end that recovery adds carry: frozen at the base (R8). `None`, by mutation only: the entry's own number.
    fn carried_end(&self) -> Option<EntryId> {
        #[cfg(any(test, feature = "testing"))]
        if self.config.mutant == Some(crate::testing::Mutant::RecoveryRaisesConfirmedEnd) {
            return None;
        }
        Some(self.base)
    }

    /// One covering range per member, as a hint for repair.
    fn note_lacking(&mut self, entry: EntryId, bookie: &hulse_proto::id::NodeName) {
        let known = self
            .lacking
            .iter_mut()
            .find(|range| range.bookies.contains(bookie));
        match known {
            Some(range) => {
                range.first = range.first.min(entry);
                range.end = range.end.max(entry.next());
            }
            None => self.lacking.push(Degraded {
                first: entry,
                end: entry.next(),
                bookies: vec![bookie.clone()],
            }),
        }
    }
}
