//! The lane's state machine. Events in, effects out; no I/O, no clock of its own, no randomness.
//!
//! ```text
//! Down ──Opened──► Open ──Nack──► Draining ──all answered──► Waiting ──RetryDue──► Open
//!  ▲                │                  │                        │
//!  └── LinkLost, or Reopen (moved, new epoch) ◄─────────────────┘        Stopped: fenced or out of order; final
//! ```
//!
//! A refusal is judged only when everything sent has been answered, so no answer can be mistaken for that of a resend.
//!
//! Giving up: a batch whose delivery time is over is settled, but one that may be stored stays in the window, and is resent, as
//! long as a younger one behind it still has time: otherwise a hole in the sequence would doom those. When all are over, the window
//! is dropped and the epoch grows, which fences whatever of them is still under way (serving.md C2.6).

use std::collections::VecDeque;

use hulse_proto::batch::ProducerStamp;
use hulse_proto::error::{ErrorKind, Fate, Fault, Reason};
use hulse_proto::id::ProducerId;
use hulse_proto::limits::BATCHES_IN_FLIGHT_MAX;
use tokio::time::Instant;

use super::event::{Cause, Effect, Event, Failure, Payload, Room, Stored};

/// Owners of one lower epoch in a row that are taken for overtaken. With the waits between them that is longer than two leases.
const LOWER_MAX: u32 = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Down,
    Open,
    /// The lane seq from which the broker refuses.
    Draining(u64),
    Waiting(u64),
    Stopped,
}

struct Slot<P> {
    batch: P,
    deadline: Instant,
    /// Its number on this link, while an answer is due.
    due: Option<u64>,
    /// Why this link's broker refused it.
    refused: Option<Fault>,
    /// It may be stored: sent on a link that broke, or refused with unknown fate.
    uncertain: bool,
    /// Its delivery time was over: the tag is settled.
    settled: bool,
}

impl<P> Slot<P> {
    fn possibly_written(&self) -> bool {
        self.uncertain || self.due.is_some()
    }
}

pub(crate) struct LaneCore<P> {
    /// `None`: not idempotent.
    stamp: Option<(ProducerId, i16)>,
    /// Of the next batch that is stamped for the first time.
    next_sequence: i32,
    /// No sequence of this epoch was used: the first Opened tells where to go on.
    fresh: bool,
    window: VecDeque<Slot<P>>,
    window_max: usize,
    phase: Phase,
    /// Number of the next batch on this link.
    next_seq: u64,
    /// The highest under which a lane was opened: an owner of a lower one is none any more.
    leader_epoch: u32,
    /// A lower one that was met since, and how often in a row.
    lower: (u32, u32),
    /// The leader epoch whose owner found a sequence out of order: believed when it says so again after a look-up.
    doubted: Option<u32>,
}

type Effects<P> = Vec<Effect<<P as Payload>::Tag>>;

impl<P: Payload> LaneCore<P> {
    pub(crate) fn new(stamp: Option<(ProducerId, i16)>) -> Self {
        Self {
            stamp,
            next_sequence: 0,
            fresh: true,
            window: VecDeque::new(),
            window_max: BATCHES_IN_FLIGHT_MAX,
            phase: Phase::Down,
            next_seq: 0,
            leader_epoch: 0,
            lower: (0, 0),
            doubted: None,
        }
    }

    /// Producer id and the epoch of now; what the next lane is opened for.
    pub(crate) fn identity(&self) -> Option<(ProducerId, i16)> {
        self.stamp
    }

    /// Sequence of the last record that was sent in this epoch; −1 before the first.
    pub(crate) fn last_sequence(&self) -> i32 {
        match self.next_sequence {
            0 if self.fresh => -1,
            next => next.wrapping_sub(1) & i32::MAX,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.window.is_empty()
    }

    /// True while this link may still be used: not after Reopen, Stop or LinkLost.
    pub(crate) fn is_up(&self) -> bool {
        !matches!(self.phase, Phase::Down | Phase::Stopped)
    }

    pub(crate) fn room(&self) -> Room {
        if self.phase != Phase::Open || self.window.len() >= self.window_max {
            return Room::None;
        }
        match self.window.front() {
            None => Room::Any,
            // What follows a batch that was given up would be given up with it.
            Some(front) if front.settled => Room::None,
            Some(_) => Room::FullBatch,
        }
    }

    /// When [`Event::Tick`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let open = self.window.iter().filter(|slot| !slot.settled);
        open.map(|slot| slot.deadline).min()
    }

    /// Sends a batch. Only when [`Self::room`] allows it.
    pub(crate) fn offer(&mut self, mut batch: P, deadline: Instant) -> Effects<P> {
        assert!(self.room() != Room::None, "the caller asks for room first");
        self.stamp_next(&mut batch);
        let mut effects = Vec::with_capacity(1);
        let seq = self.take_seq();
        let bytes = batch.bytes();
        self.window.push_back(Slot {
            batch,
            deadline,
            due: Some(seq),
            refused: None,
            uncertain: false,
            settled: false,
        });
        effects.push(Effect::Send { seq, batch: bytes });
        effects
    }

    pub(crate) fn on_event(&mut self, event: Event) -> Effects<P> {
        let mut effects = Vec::new();
        if self.phase == Phase::Stopped {
            return effects;
        }
        match event {
            Event::Opened { leader_epoch, .. } if self.is_overtaken(leader_epoch) => {
                effects.push(look_again());
            }
            Event::Opened {
                leader_epoch,
                last_epoch,
                last_sequence,
                batches_in_flight_max,
            } => {
                self.window_max = match batches_in_flight_max {
                    0 => BATCHES_IN_FLIGHT_MAX,
                    max => max.min(BATCHES_IN_FLIGHT_MAX),
                };
                self.leader_epoch = leader_epoch;
                self.lower = (0, 0);
                self.opened(last_epoch, last_sequence, &mut effects);
            }
            Event::LinkLost => self.link_lost(),
            Event::Acked { seq, stored } => self.acked(seq, stored, &mut effects),
            Event::Nacked { seq, fault } => self.nacked(seq, fault, &mut effects),
            Event::RetryDue => self.retry(&mut effects),
            Event::Tick(now) => self.expire(now, &mut effects),
            Event::Restart(cause) => self.restart(&cause, &mut effects),
            Event::Recreated(cause) => {
                self.restart(&cause, &mut effects);
                (self.leader_epoch, self.lower, self.doubted) = (0, (0, 0), None);
            }
        }
        effects
    }

    /// A lower epoch than one that was met is the word of an owner that was overtaken, and a look-up finds its successor. When it is all
    /// that is found for longer than any lease, the cell was put back to what it was before, and there is no other owner.
    fn is_overtaken(&mut self, leader_epoch: u32) -> bool {
        if leader_epoch >= self.leader_epoch {
            return false;
        }
        self.lower = match self.lower {
            (epoch, times) if epoch == leader_epoch => (epoch, times + 1),
            _ => (leader_epoch, 1),
        };
        self.lower.1 <= LOWER_MAX
    }

    fn opened(&mut self, last_epoch: i32, last_sequence: i32, effects: &mut Effects<P>) {
        if let Some((id, epoch)) = self.stamp {
            if last_epoch > i32::from(epoch) {
                let words = format!(
                    "producer {id} goes on in epoch {last_epoch}, this one has {epoch}; it was replaced, stop it"
                );
                let fault = Fault::new(Reason::FencedEpoch, words);
                return self.stop(Cause::Refused(fault), true, effects);
            }
            if self.fresh && last_epoch == i32::from(epoch) {
                // −1 goes on at 0 and MAX wraps to 0.
                self.next_sequence = last_sequence.wrapping_add(1) & i32::MAX;
                self.fresh = self.next_sequence == 0;
            }
        }
        self.phase = Phase::Open;
        self.next_seq = 0;
        self.resend(effects);
    }

    /// Sends everything of the window again, in order and byte-identical; what is stored is answered as a duplicate.
    fn resend(&mut self, effects: &mut Effects<P>) {
        for slot in &mut self.window {
            slot.due = Some(self.next_seq);
            slot.refused = None;
            let batch = slot.batch.bytes();
            effects.push(Effect::Send {
                seq: self.next_seq,
                batch,
            });
            self.next_seq += 1;
        }
    }

    fn link_lost(&mut self) {
        for slot in &mut self.window {
            slot.uncertain |= slot.due.take().is_some();
            slot.refused = None;
        }
        self.phase = Phase::Down;
    }

    fn acked(&mut self, seq: u64, stored: Stored, effects: &mut Effects<P>) {
        let Some(at) = self.answered(seq) else {
            return effects.push(Effect::Violation("an Ack for a batch that was not due"));
        };
        let slot = self.window.remove(at).expect("answered() found it there");
        if !slot.settled {
            effects.push(Effect::Settle {
                tag: slot.batch.tag(),
                result: Ok(stored),
            });
        }
        self.judge_when_drained(effects);
    }

    fn nacked(&mut self, seq: u64, fault: Fault, effects: &mut Effects<P>) {
        let Some(at) = self.answered(seq) else {
            return effects.push(Effect::Violation("a Nack for a batch that was not due"));
        };
        if self.phase == Phase::Open {
            self.phase = Phase::Draining(seq);
        }
        let slot = &mut self.window[at];
        slot.due = None;
        slot.uncertain |= fault.fate == Fate::Unknown;
        slot.refused = Some(fault);
        self.judge_when_drained(effects);
    }

    /// Where the batch stands whose answer is due next, if that is `seq`: a lane is answered in order.
    fn answered(&self, seq: u64) -> Option<usize> {
        let at = self.window.iter().position(|slot| slot.due.is_some())?;
        (self.window[at].due == Some(seq)).then_some(at)
    }

    fn judge_when_drained(&mut self, effects: &mut Effects<P>) {
        let Phase::Draining(from_seq) = self.phase else {
            return;
        };
        if self.window.iter().any(|slot| slot.due.is_some()) {
            return;
        }
        // NACKED_BEFORE only says that the cause stands further in front.
        let mut faults = self.window.iter().filter_map(|slot| slot.refused.as_ref());
        let Some(fault) = faults
            .find(|fault| fault.reason != Reason::NackedBefore)
            .cloned()
        else {
            self.phase = Phase::Waiting(from_seq);
            return effects.push(Effect::Wait { at_least: None });
        };
        match (fault.reason, fault.kind()) {
            // An owner that was overtaken does not know what its successor took: it is asked again where the look-up leads.
            (Reason::OutOfOrderSequence, _) if self.doubted != Some(self.leader_epoch) => {
                self.doubted = Some(self.leader_epoch);
                self.link_lost();
                effects.push(look_again());
            }
            (Reason::OutOfOrderSequence, _) => self.stop(Cause::Refused(fault), false, effects),
            (_, ErrorKind::Fenced) => self.stop(Cause::Refused(fault), true, effects),
            (reason, kind) if kind == ErrorKind::NotOwner || is_about_topic(reason) => {
                self.link_lost();
                effects.push(Effect::Reopen {
                    resolve: true,
                    after: fault.retry_after,
                });
            }
            (_, ErrorKind::Unavailable | ErrorKind::Overloaded | ErrorKind::OutcomeUnknown) => {
                self.phase = Phase::Waiting(from_seq);
                effects.push(Effect::Wait {
                    at_least: fault.retry_after,
                });
            }
            _ => self.give_up_refused(from_seq, effects),
        }
    }

    /// The front batch can never be stored. Those behind it were refused for its sake.
    fn give_up_refused(&mut self, from_seq: u64, effects: &mut Effects<P>) {
        let front = self
            .window
            .pop_front()
            .expect("the refused batch stands in front");
        let fault = front.refused.clone().expect("it was refused");
        settle_failed(&front, Cause::Refused(fault.clone()), effects);
        if self.stamp.is_none() {
            self.phase = Phase::Open;
            self.next_seq = from_seq;
            effects.push(Effect::Resume { from_seq });
            return self.resend(effects);
        }
        self.begin_epoch(&Cause::Refused(fault), effects);
    }

    /// Goes on in the next epoch: batches that were certainly not stored are stamped anew, others are given up.
    fn begin_epoch(&mut self, cause: &Cause, effects: &mut Effects<P>) {
        if !self.next_epoch(effects) {
            return;
        }
        for mut slot in std::mem::take(&mut self.window) {
            if slot.possibly_written() || slot.settled {
                settle_failed(&slot, cause.clone(), effects);
                continue;
            }
            slot.refused = None;
            self.stamp_next(&mut slot.batch);
            self.window.push_back(slot);
        }
        if self.is_up() {
            effects.push(Effect::Reopen {
                resolve: false,
                after: None,
            });
        }
        self.phase = Phase::Down;
    }

    fn restart(&mut self, cause: &Cause, effects: &mut Effects<P>) {
        let risky = self.window.iter().any(Slot::possibly_written);
        self.settle_all(cause, effects);
        self.link_lost();
        if risky {
            // A late copy must not come between what follows.
            self.next_epoch(effects);
        } else {
            self.fresh = true;
            self.next_sequence = 0;
        }
    }

    fn retry(&mut self, effects: &mut Effects<P>) {
        if let Phase::Waiting(from_seq) = self.phase {
            self.phase = Phase::Open;
            self.next_seq = from_seq;
            effects.push(Effect::Resume { from_seq });
            self.resend(effects);
        }
    }

    fn expire(&mut self, now: Instant, effects: &mut Effects<P>) {
        let is_over = |slot: &Slot<P>| slot.deadline <= now;
        let open = |slot: &Slot<P>| !slot.settled;
        if !self.window.iter().any(|slot| open(slot) && is_over(slot)) {
            return;
        }
        if !self.window.iter().any(Slot::possibly_written) {
            // Nothing of the window is stored anywhere, so what is over can leave it without a trace.
            for slot in self.window.iter().filter(|slot| is_over(slot)) {
                settle_failed(slot, Cause::TimedOut, effects);
            }
            self.window.retain(|slot| open(slot) && !is_over(slot));
            return self.begin_epoch(&Cause::TimedOut, effects);
        }
        for slot in &mut self.window {
            if open(slot) && is_over(slot) {
                // Even one that was refused: it is sent again for the sake of those behind it.
                slot.uncertain = true;
                settle_failed(slot, Cause::TimedOut, effects);
                slot.settled = true;
            }
        }
        if !self.window.iter().any(open) {
            self.begin_epoch(&Cause::TimedOut, effects);
        }
    }

    /// Fences what this lane sent before. False: the epochs are used up and the lane stopped.
    fn next_epoch(&mut self, effects: &mut Effects<P>) -> bool {
        let Some((id, epoch)) = self.stamp else {
            return true;
        };
        let Some(next) = epoch.checked_add(1) else {
            self.stop(Cause::EpochsUsedUp, true, effects);
            return false;
        };
        self.stamp = Some((id, next));
        self.next_sequence = 0;
        self.fresh = true;
        true
    }

    fn stop(&mut self, cause: Cause, producer: bool, effects: &mut Effects<P>) {
        self.settle_all(&cause, effects);
        self.phase = Phase::Stopped;
        let failure = Failure {
            cause,
            possibly_written: false,
        };
        effects.push(Effect::Stop { failure, producer });
    }

    fn settle_all(&mut self, cause: &Cause, effects: &mut Effects<P>) {
        for slot in std::mem::take(&mut self.window) {
            settle_failed(&slot, cause.clone(), effects);
        }
    }

    fn stamp_next(&mut self, batch: &mut P) {
        let Some((id, epoch)) = self.stamp else {
            return;
        };
        let base_sequence = self.next_sequence;
        batch.stamp(ProducerStamp {
            id,
            epoch,
            base_sequence,
        });
        let records = i64::from(batch.records());
        self.next_sequence = ((i64::from(base_sequence) + records) & i64::from(i32::MAX)) as i32;
        self.fresh = false;
    }

    fn take_seq(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }
}

/// Not this owner.
fn look_again<T>() -> Effect<T> {
    Effect::Reopen {
        resolve: true,
        after: None,
    }
}

fn settle_failed<P: Payload>(slot: &Slot<P>, cause: Cause, effects: &mut Effects<P>) {
    if slot.settled {
        return;
    }
    let possibly_written = slot.possibly_written();
    let result = Err(Failure {
        cause,
        possibly_written,
    });
    effects.push(Effect::Settle {
        tag: slot.batch.tag(),
        result,
    });
}

/// The topic may be gone, another one, or not yet known to this broker: the look-up tells.
pub(super) fn is_about_topic(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::TopicNotFound
            | Reason::PartitionNotFound
            | Reason::TopicDeleting
            | Reason::TopicRecreated
    )
}
