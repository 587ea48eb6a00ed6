//! Writing back what was found, so that every entry below the end has Qa copies in the recorded ensemble (R8, R9).

use std::time::Duration;

use hulse_proto::bookie::{AddRequest, BookieError, Origin};
use hulse_proto::entry::Entry;
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{Degraded, Member, Quorums};
use hulse_proto::mutant::Mutant;

use super::asked::{Asked, Pace};
use super::core::RecoveryCore;
use super::event::{BookieAsk, Policy, RecoveryEffect};
use super::reading::Promise;
use crate::quorum::write_set;

/// A member that does not answer a write-back is waited for this long once Qa others hold the entry.
const GRACE: Duration = Duration::from_millis(500);
/// A member that has not taken a write-back after this long is one to replace (R9).
const REPLACE_AFTER: Duration = Duration::from_millis(250);

/// One entry on its way back.
#[derive(Debug)]
pub(super) struct WriteBack {
    entry: Entry,
    /// By position; `None` outside the write set.
    pub(super) copies: Vec<Option<Asked<()>>>,
    since: Duration,
}

impl WriteBack {
    /// A member whose read was positive holds the entry already: its recovery add would only say so again (B7). `reads` are
    /// those of members that the entry is written back to.
    pub(super) fn new(
        now: Duration,
        entry: Entry,
        reads: &[Option<Asked<Promise>>],
        quorums: Quorums,
        pace: Pace,
    ) -> Self {
        let digest = entry.header().digest();
        let mut copies = vec![None; quorums.ensemble as usize];
        for position in write_set(quorums, entry.header().entry) {
            let held = matches!(
                reads.get(position).and_then(Option::as_ref).and_then(|asked| asked.answer.as_ref()),
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
        asked.chain([self.since + REPLACE_AFTER, self.since + GRACE])
    }

    /// Positions whose members fail to take it.
    pub(super) fn failing(&self, now: Duration) -> Vec<usize> {
        let late = now >= self.since + REPLACE_AFTER;
        let copies = self.copies.iter().enumerate();
        copies
            .filter(|(_, copy)| {
                copy.as_ref()
                    .is_some_and(|copy| copy.answer.is_none() && (late || copy.hopeless()))
            })
            .map(|(position, _)| position)
            .collect()
    }

    /// Begins anew at a position that has another member now.
    pub(super) fn restart(&mut self, now: Duration, position: usize, pace: Pace) {
        self.copies[position] = Some(Asked::new(now, pace));
        self.since = now;
    }

    fn held(&self) -> usize {
        self.copies
            .iter()
            .flatten()
            .filter(|copy| copy.answer.is_some())
            .count()
    }

    /// Qa copies, and nothing more to hope for soon.
    fn is_done(&self, now: Duration, needed: usize, quorums: Quorums, alone: bool) -> bool {
        let held = self.held();
        let heard = || alone && self.copies.iter().flatten().all(Asked::heard);
        held == quorums.write as usize || held >= needed && (now >= self.since + GRACE || heard())
    }
}

impl RecoveryCore {
    /// Takes the answer of a member that the entry is still written back to; what it refused with.
    pub(super) fn added(
        &mut self,
        now: Duration,
        position: usize,
        entry: EntryId,
        from: &Member,
        result: Result<(), BookieError>,
    ) -> Option<BookieError> {
        let pace = self.pace();
        if self.local.fragments.is_empty()
            || self.local.ensemble_of(entry).get(position) != Some(from)
        {
            return None;
        }
        let write = self.writes.get_mut(&entry)?;
        let copy = write.copies.get_mut(position)?.as_mut()?;
        match result {
            Ok(()) => {
                copy.succeed(());
                None
            }
            Err(error) => {
                copy.fail(now, pace, error.clone());
                Some(error)
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
        self.look_for_bookies(now, effects);
        let confirmed_end = self.carried_end();
        for (entry, write) in &mut self.writes {
            for (position, copy) in write.copies.iter_mut().enumerate() {
                if !copy.as_mut().is_some_and(|copy| copy.ask(now, pace)) {
                    continue;
                }
                let member = self.local.ensemble_of(*entry)[position].clone();
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
        }
        let alone = quorums.ensemble == 1 || self.local.is_alone();
        // In order: a local change begins at the first that is left, so none above it may be over (R9).
        while let Some(head) = self.writes.first_entry()
            && head.get().is_done(now, needed, quorums, alone)
        {
            let (entry, write) = head.remove_entry();
            for (position, copy) in write.copies.into_iter().enumerate() {
                if copy.is_some_and(|copy| copy.answer.is_none()) {
                    let bookie = self.local.ensemble_of(entry)[position].bookie.clone();
                    self.note_lacking(entry, &bookie);
                }
            }
        }
    }

    /// The confirmed end that recovery adds carry: frozen at the base (R8). `None`, by mutation only: the entry's own number.
    fn carried_end(&self) -> Option<EntryId> {
        if self.config.mutation.is(Mutant::RecoveryRaisesConfirmedEnd) {
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
