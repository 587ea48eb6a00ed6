//! The writer's state and its entrance: appends, sends, time.
//!
//! # Invariants
//! 1. Entries are sent only to the committed ensemble, and nothing is sent once the writer is ending or frozen (W6, W13).
//! 2. The confirmed end grows by one entry at a time, each with Qa counted acks (W4); `acks` does it.
//! 3. Every append is answered exactly once, in entry order (W5).
//! 4. What is kept is bounded: unconfirmed entries by the permits of the handle (W2), late ones by time and bytes (W12).

use std::time::Duration;

use hulse_proto::bookie::{AddRequest, Address, Origin};
use hulse_proto::entry::{NewEntry, Totals};
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{ClosedTotals, Member};

use super::change::Change;
use super::event::{AddCall, WriterConfig, WriterEffect, WriterEvent};
use super::full::Fullness;
use super::pending::{Pending, Slot, Window};
use super::position::{Health, Position};
use super::sequence::Sequence;
use crate::error::{AppendError, WriterEnd};
use crate::quorum::write_set;

/// Where the writer's life stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// Appends and sends.
    Open,
    /// Appends no more, still sends: draining before a close.
    Stopping {
        /// [`WriterEffect::Drained`] was said.
        drained: bool,
    },
    /// The close is on its way: nothing counts any more.
    Frozen,
    /// Dead, but acks of what was sent may still count (W6).
    Ending(WriterEnd),
    /// Dead; every append is answered.
    Ended(WriterEnd),
}

/// The writer of one ledger as a state machine: no I/O, no clock. `now` is the time since it was made.
#[derive(Debug)]
pub struct WriterCore {
    pub(super) config: WriterConfig,
    pub(super) sequence: Sequence,
    /// Totals of everything sealed.
    pub(super) sealed: Totals,
    /// Totals of everything confirmed.
    pub(super) confirmed: ClosedTotals,
    pub(super) window: Window,
    pub(super) positions: Vec<Position>,
    pub(super) phase: Phase,
    /// When all copies are looked at for missing answers.
    pub(super) scan_at: Option<Duration>,
    pub(super) change: Change,
    /// Draining is over whatever is confirmed, once no proposal is unresolved.
    pub(super) drain_over: bool,
    pub(super) full: Fullness,
}

impl WriterCore {
    /// The writer of an empty ledger that metadata shows as open.
    ///
    /// # Panics
    /// If the ensemble has not E members.
    pub fn new(config: WriterConfig) -> Self {
        assert_eq!(
            config.ensemble.len(),
            config.quorums.ensemble as usize,
            "decoded metadata has E members per fragment"
        );
        Self {
            sequence: Sequence::new(config.kind, config.base_offset),
            sealed: Totals::default(),
            confirmed: ClosedTotals {
                end: EntryId(0),
                offset_span: 0,
                record_count: 0,
                bytes: 0,
                digest: 0,
            },
            window: Window::new(),
            positions: config.ensemble.iter().cloned().map(Position::new).collect(),
            phase: Phase::Open,
            scan_at: None,
            change: Change::new(config.writer_nonce, config.retry_initial),
            drain_over: false,
            full: Fullness::default(),
            config,
        }
    }

    /// Exclusive end of what is confirmed.
    pub fn confirmed_end(&self) -> EntryId {
        self.window.confirmed_end()
    }

    /// Exclusive end of what was appended.
    pub fn appended_end(&self) -> EntryId {
        self.sequence.end()
    }

    /// How it ended, once it has.
    pub fn end(&self) -> Option<&WriterEnd> {
        match &self.phase {
            Phase::Ending(end) | Phase::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// True when it is dead and every append is answered.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Takes one event; what must be done is added to `effects`, in order. (Passed in so that a busy shell allocates once.)
    pub fn on_event(&mut self, now: Duration, event: WriterEvent, effects: &mut Vec<WriterEffect>) {
        match event {
            WriterEvent::Append(entry) => self.append(now, entry, effects),
            WriterEvent::Answer { tag, result } => self.answer(now, &tag, result, effects),
            WriterEvent::Tick => self.tick(now, effects),
            WriterEvent::Stop => self.stop(effects),
            WriterEvent::Freeze => self.freeze(effects),
            WriterEvent::CloseCommitted => self.close_committed(effects),
            WriterEvent::CloseFailed(end) => self.close_failed(end, effects),
            WriterEvent::MetadataChanged => self.metadata_lost(effects),
            WriterEvent::Staying(staying) => self.staying(&staying),
            WriterEvent::Surveyed(result) => self.surveyed(now, result, effects),
            WriterEvent::MetadataAnswer(answer) => self.metadata_answer(now, answer, effects),
            WriterEvent::MetadataRead(answer) => self.metadata_read(now, answer, effects),
        }
        self.watch_room(now, effects);
        self.pump_change(now, effects);
    }

    /// Gives the room back that a busy time took. Changes nothing else.
    pub fn rest(&mut self) {
        self.window.rest();
    }

    /// When [`WriterEvent::Tick`] is due; `None` while nothing waits.
    pub fn next_wakeup(&self) -> Option<Duration> {
        if matches!(self.phase, Phase::Frozen | Phase::Ended(_)) {
            return None;
        }
        let sending = self.sending();
        let retries = self
            .positions
            .iter()
            .filter_map(|position| match position.health {
                Health::Backoff { until, .. } if sending => Some(until),
                _ => None,
            });
        let head = self
            .window
            .head()
            .filter(|_| self.phase != Phase::Stopping { drained: true } && !self.drain_over)
            .map(|head| head.appended_at + self.config.add_timeout);
        let late = self.window.late_front().and_then(|front| {
            front
                .confirmed_at
                .map(|confirmed| confirmed + self.config.late_time_max)
        });
        retries
            .chain(head)
            .chain(late)
            .chain(self.scan_at)
            .chain(self.change_wakeup())
            .chain(self.full_at())
            .min()
    }

    /// True while entries may be sent.
    pub(super) fn sending(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Stopping { .. })
    }

    fn append(&mut self, now: Duration, entry: NewEntry, effects: &mut Vec<WriterEffect>) {
        let number = match self.sequence.admit(&entry) {
            Ok(number) => number,
            Err(error) => {
                // The handle admits by the same rule before it enqueues, so only another driver can come here.
                let entry = self.sequence.end();
                effects.push(WriterEffect::Failed { entry, error });
                return;
            }
        };
        if let Phase::Ended(end) = &self.phase {
            let error = AppendError::Ended(end.clone());
            effects.push(WriterEffect::Failed {
                entry: number,
                error,
            });
            return;
        }
        let entry = entry.seal(self.config.ledger, number, self.sealed);
        self.sealed = entry.header().totals();
        self.window
            .push(Pending::new(entry, now, self.config.quorums));
        if self.phase != Phase::Open {
            return;
        }
        for position in write_set(self.config.quorums, number) {
            if self.positions[position].health == Health::Up {
                self.send(now, number, position, effects);
            }
        }
    }

    /// Members that are to leave are replaced; one that stays after all is not.
    fn staying(&mut self, staying: &[Member]) {
        for position in &mut self.positions {
            position.leaving = !staying.contains(&position.member);
        }
    }

    /// Some member is to leave, or was to.
    pub(super) fn has_leaving(&self, staying: &[Member]) -> bool {
        let leaves = |position: &Position| position.leaving || !staying.contains(&position.member);
        self.positions.iter().any(leaves)
    }

    /// Sends one copy (W2): the confirmed end it carries never lies above the entry.
    pub(super) fn send(
        &mut self,
        now: Duration,
        number: EntryId,
        position: usize,
        effects: &mut Vec<WriterEffect>,
    ) {
        let confirmed_end = self.window.confirmed_end().min(number);
        let attempt = self.positions[position].attempt;
        let member = self.positions[position].member.clone();
        let quorums = self.config.quorums;
        let Some(pending) = self.window.get_mut(number) else {
            return;
        };
        let Some(entry) = pending.entry.clone() else {
            return;
        };
        pending.ever_sent = true;
        pending.set(quorums, position, Slot::Sent { attempt, at: now });
        let to = Address {
            cell: self.config.cell,
            incarnation: member.incarnation,
            ledger: self.config.ledger,
        };
        effects.push(WriterEffect::Send(AddCall {
            position,
            attempt,
            member,
            request: AddRequest {
                to,
                origin: Origin::Normal,
                confirmed_end,
                entry,
                timeout: self.config.answer_timeout,
            },
        }));
        self.scan_at
            .get_or_insert(now + self.config.answer_timeout / 4);
    }

    fn tick(&mut self, now: Duration, effects: &mut Vec<WriterEffect>) {
        if self.scan_at.is_some_and(|at| at <= now) {
            self.scan(now, effects);
        }
        if self.sending() {
            self.retry_positions(now, effects);
        }
        self.release_late(now, effects);
        self.check_deadline(now, effects);
        self.check_drained(effects);
    }

    /// Treats copies that were not answered in time as not answered at all.
    fn scan(&mut self, now: Duration, effects: &mut Vec<WriterEffect>) {
        let limit = self.config.answer_timeout;
        let mut silent = vec![false; self.positions.len()];
        let mut outstanding = false;
        let quorums = self.config.quorums;
        for pending in self.window.iter_mut() {
            for position in write_set(quorums, pending.header.entry) {
                if let Some(Slot::Sent { at, .. }) = pending.slot(quorums, position) {
                    if at + limit <= now {
                        silent[position] = true;
                        pending.set(quorums, position, Slot::Unsent);
                    } else {
                        outstanding = true;
                    }
                }
            }
        }
        self.scan_at = outstanding.then_some(now + limit / 4);
        for position in (0..silent.len()).filter(|at| silent[*at]) {
            self.positions[position].back_off(
                now,
                self.config.retry_initial,
                self.config.retry_max,
            );
            effects.push(WriterEffect::Forget { position });
        }
        if matches!(self.phase, Phase::Ending(_)) {
            self.settle_ending(effects);
        }
    }

    /// Tries one entry at each position whose wait is over.
    fn retry_positions(&mut self, now: Duration, effects: &mut Vec<WriterEffect>) {
        for position in 0..self.positions.len() {
            let Health::Backoff { until, wait } = self.positions[position].health else {
                continue;
            };
            if until > now {
                continue;
            }
            match self.oldest_lacking(position) {
                Some(entry) => {
                    self.positions[position].health = Health::Probing { wait };
                    self.send(now, entry, position, effects);
                }
                None => self.positions[position].recover(),
            }
        }
    }

    fn oldest_lacking(&self, position: usize) -> Option<EntryId> {
        let quorums = self.config.quorums;
        self.window
            .iter()
            .filter(|pending| pending.entry.is_some())
            .find(|pending| {
                let slot = pending.slot(quorums, position);
                matches!(slot, Some(Slot::Unsent | Slot::Sent { .. }))
            })
            .map(|pending| pending.header.entry)
    }

    /// Sends everything a position lacks, in order, after it took adds again.
    pub(super) fn flush(
        &mut self,
        now: Duration,
        position: usize,
        effects: &mut Vec<WriterEffect>,
    ) {
        let quorums = self.config.quorums;
        let current = self.positions[position].attempt;
        let lacking: Vec<EntryId> = self
            .window
            .iter()
            .filter(|pending| match pending.slot(quorums, position) {
                Some(Slot::Unsent) => true,
                Some(Slot::Sent { attempt, .. }) => attempt < current,
                Some(Slot::Acked | Slot::Gone) | None => false,
            })
            .map(|pending| pending.header.entry)
            .collect();
        for entry in lacking {
            self.send(now, entry, position, effects);
        }
    }

    /// Gives up copies of late entries beyond the budget of W12.
    pub(super) fn release_late(&mut self, now: Duration, effects: &mut Vec<WriterEffect>) {
        while let Some(front) = self.window.late_front() {
            let late = front
                .confirmed_at
                .is_some_and(|at| at + self.config.late_time_max <= now);
            if !late && self.window.late_bytes() <= self.config.late_bytes_max {
                break;
            }
            self.release_front(effects);
        }
    }

    /// Gives up the missing copies of the oldest late entry and notes who lacks them.
    pub(super) fn release_front(&mut self, effects: &mut Vec<WriterEffect>) {
        let quorums = self.config.quorums;
        let Some(front) = self.window.late_front() else {
            return;
        };
        let entry = front.header.entry;
        let lacking: Vec<usize> = write_set(quorums, entry)
            .filter(|position| {
                let slot = front.slot(quorums, *position);
                matches!(slot, Some(Slot::Unsent | Slot::Sent { .. }))
            })
            .collect();
        self.change.note_released(entry);
        for position in lacking {
            // Its replacement is due, be it only slow (W12).
            self.positions[position].fall_behind(entry);
            let member = self.positions[position].member.clone();
            effects.push(WriterEffect::Released { member, entry });
        }
        self.window.release_front();
    }

    /// What each member that refuses says, for a person.
    pub(super) fn refusals(&self) -> String {
        let positions = self.positions.iter();
        positions
            .filter_map(|position| {
                let error = position.last_error.as_ref()?;
                Some(format!("{}: {error}", position.member.bookie))
            })
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Ends the writer when its oldest unconfirmed entry waited too long.
    fn check_deadline(&mut self, now: Duration, effects: &mut Vec<WriterEffect>) {
        let Some(head) = self.window.head() else {
            return;
        };
        if head.appended_at + self.config.add_timeout > now {
            return;
        }
        let entry = head.header.entry;
        let refusals = self.refusals();
        let why = format!(
            "entry {entry} was not confirmed within {:?} [{refusals}]",
            self.config.add_timeout
        );
        self.give_up(why, effects);
    }
}
