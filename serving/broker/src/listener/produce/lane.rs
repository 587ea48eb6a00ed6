//! One lane: the order of its batches and of their answers. A state machine without I/O.
//!
//! Each batch that the lane takes or refuses gets a *slot*; answers leave from the oldest slot on, so they keep the order of the
//! batches whatever order the outcomes come in. Slots are addressed by ticket (a count from the opening), since a `seq` may come
//! again after a Resume.

use std::collections::VecDeque;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1::{self, produce_down::Item};

use crate::Produced;
use crate::owners::owner_of;

/// Flushes of one lane that may wait.
const FLUSHES_MAX: usize = 16;

/// How a lane works, fixed when it opens.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneConfig {
    /// Its number.
    pub(super) lane: u32,
    /// Answer each batch (`ACKS_QUORUM`), or speak up only when something failed (`ACKS_NONE`).
    pub(super) answers: bool,
    /// Batches in flight; only where batches are answered.
    pub(super) inflight_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The partition is being opened: batches are parked.
    Opening,
    /// Batches go to the partition.
    Open,
    /// An earlier batch was refused: so are all until Resume.
    Refusing,
    /// Resume came while answers are out: batches are parked until these are in, so that a `seq` never has two meanings.
    Resuming,
    /// Closed; its last word is said. What the client had sent before it heard so is dropped.
    Gone,
}

/// Why a lane comes to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ending {
    Asked,
    Fault(Fault),
}

#[derive(Debug)]
struct Slot {
    seq: u64,
    outcome: Option<Result<Produced, Fault>>,
}

/// What to do with a batch that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Take<B> {
    /// Give it to the partition; its outcome comes back with this ticket.
    Produce(u64, B),
    /// The lane keeps it for now.
    Parked,
    /// It is refused or belongs to a lane that is gone: drop it.
    Dropped(B),
}

/// The state of one lane. `B` is a batch with what it holds on to.
#[derive(Debug)]
pub(super) struct Lane<B> {
    config: LaneConfig,
    phase: Phase,
    next_seq: u64,
    /// One above the highest `seq` that was ever sent.
    received_end: u64,
    slots: VecDeque<Slot>,
    first_ticket: u64,
    parked: VecDeque<(u64, B)>,
    flushes: VecDeque<u64>,
    ending: Option<Ending>,
}

impl<B> Lane<B> {
    /// A lane whose partition is being opened.
    pub(super) fn opening(config: LaneConfig) -> Self {
        Self {
            config,
            phase: Phase::Opening,
            next_seq: 0,
            received_end: 0,
            slots: VecDeque::new(),
            first_ticket: 0,
            parked: VecDeque::new(),
            flushes: VecDeque::new(),
            ending: None,
        }
    }

    /// A lane that never came to be: what was sent for it is dropped without a word.
    pub(super) fn gone(lane: u32) -> Self {
        let config = LaneConfig {
            lane,
            answers: true,
            inflight_max: 0,
        };
        Self {
            phase: Phase::Gone,
            ..Self::opening(config)
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.phase == Phase::Gone
    }

    /// Serves and has no end in sight.
    pub(super) fn is_live(&self) -> bool {
        self.ending.is_none() && !matches!(self.phase, Phase::Opening | Phase::Gone)
    }

    /// Batches without an answer, refused ones included.
    pub(super) fn unanswered(&self) -> usize {
        self.slots.len() + self.parked.len()
    }

    /// A batch was read.
    pub(super) fn take(&mut self, seq: u64, batch: B) -> Take<B> {
        if self.phase == Phase::Gone {
            return Take::Dropped(batch);
        }
        self.received_end = self.received_end.max(seq.saturating_add(1));
        let parks = matches!(self.phase, Phase::Opening | Phase::Resuming);
        if self.phase == Phase::Refusing || (self.ending.is_some() && !parks) {
            self.refuse(seq, nacked_before());
            return Take::Dropped(batch);
        }
        let fault = match self.ending {
            Some(_) => {
                let words = format!("batch {seq} came after Close; open the lane again to send it");
                Some(Fault::new(Reason::InvalidRequest, words))
            }
            None => self.breaks_order(seq),
        };
        if let Some(fault) = fault {
            if parks {
                // Its refusal would overtake what is parked, so the lane ends instead.
                self.end(fault);
            } else {
                self.refuse(seq, fault);
            }
            return Take::Dropped(batch);
        }
        self.next_seq = seq + 1;
        if self.phase == Phase::Open {
            return Take::Produce(self.push(seq, None), batch);
        }
        self.parked.push_back((seq, batch));
        Take::Parked
    }

    fn breaks_order(&self, seq: u64) -> Option<Fault> {
        if seq != self.next_seq || seq == u64::MAX {
            let words = format!(
                "batch {seq} came where {} was due: batches of a lane are numbered without a gap",
                self.next_seq
            );
            let fault = Fault::new(Reason::InvalidRequest, words);
            return Some(fault.with("expected_seq", self.next_seq));
        }
        let waiting = if self.phase == Phase::Open {
            self.slots.len()
        } else {
            self.parked.len()
        };
        if self.config.answers && waiting >= self.config.inflight_max {
            let words = format!(
                "{waiting} batches of this lane are in flight, at most {} may be; wait for answers",
                self.config.inflight_max
            );
            return Some(Fault::new(Reason::Overloaded, words));
        }
        None
    }

    /// Refuses a batch in its place of the order, for a reason that the lane itself does not know.
    pub(super) fn refuse(&mut self, seq: u64, fault: Fault) {
        self.push(seq, Some(Err(fault)));
        self.stop_taking();
    }

    fn push(&mut self, seq: u64, outcome: Option<Result<Produced, Fault>>) -> u64 {
        self.slots.push_back(Slot { seq, outcome });
        self.first_ticket + self.slots.len() as u64 - 1
    }

    fn stop_taking(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Refusing;
        }
    }

    /// The partition's answer to the batch of `ticket`.
    pub(super) fn settle(&mut self, ticket: u64, outcome: Result<Produced, Fault>) {
        let Some(index) = ticket.checked_sub(self.first_ticket) else {
            return;
        };
        let Some(slot) = self.slots.get_mut(index as usize) else {
            return;
        };
        let fault = outcome.as_ref().err().cloned();
        slot.outcome = Some(outcome);
        if let Some(fault) = fault {
            self.stop_taking();
            // This producer lost for good: nothing that it sends here can succeed.
            if fault.reason == Reason::FencedEpoch {
                self.end(fault);
            }
        }
    }

    /// The partition is open. Whether the client is to hear so: not when the lane ended meanwhile by a fault.
    pub(super) fn opened(&mut self) -> bool {
        if self.phase != Phase::Opening {
            return false;
        }
        self.phase = Phase::Open;
        !matches!(self.ending, Some(Ending::Fault(_)))
    }

    /// The client goes on from `from_seq` after a refusal.
    pub(super) fn resume(&mut self, from_seq: u64) {
        match self.phase {
            Phase::Refusing => {
                self.next_seq = from_seq;
                self.phase = Phase::Resuming;
            }
            Phase::Gone => {}
            Phase::Opening | Phase::Open | Phase::Resuming if from_seq == self.next_seq => {}
            Phase::Opening | Phase::Open | Phase::Resuming => {
                let words = format!(
                    "Resume from {from_seq}, but no batch was refused and {} is due",
                    self.next_seq
                );
                self.end(Fault::new(Reason::InvalidRequest, words));
            }
        }
    }

    /// The client asks to hear when everything up to `seq` is answered.
    pub(super) fn flush(&mut self, seq: u64) {
        if self.flushes.len() == FLUSHES_MAX {
            let words = format!(
                "more than {FLUSHES_MAX} flushes of one lane wait; wait for Flushed before more are sent"
            );
            return self.end(Fault::new(Reason::Overloaded, words));
        }
        if !self.is_gone() {
            self.flushes.push_back(seq);
        }
    }

    /// The client is done with the lane: it closes when all is answered.
    pub(super) fn close(&mut self) {
        if !self.is_gone() {
            self.ending.get_or_insert(Ending::Asked);
        }
    }

    /// The lane is to end with this word when all is answered. The first word counts.
    pub(super) fn end(&mut self, fault: Fault) {
        match &mut self.ending {
            Some(Ending::Fault(_)) => {}
            ending => *ending = Some(Ending::Fault(fault)),
        }
    }

    /// Says what can be said by now into `out`, and which parked batches go to the partition now (with their tickets).
    pub(super) fn speak(&mut self, out: &mut Vec<Item>) -> Vec<(u64, B)> {
        self.answer(out);
        let released = self.release();
        self.answer_flushes(out);
        self.say_goodbye(out);
        released
    }

    fn answer(&mut self, out: &mut Vec<Item>) {
        let lane = self.config.lane;
        let mut ack: Option<v1::Ack> = None;
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.outcome.is_some()) {
            self.first_ticket += 1;
            match slot.outcome {
                Some(Err(fault)) if !self.config.answers => self.end(fault),
                Some(Err(fault)) => {
                    out.extend(ack.take().map(Item::Ack));
                    let fault = Some(fault.to_wire());
                    out.push(Item::Nack(v1::Nack {
                        lane,
                        seq: slot.seq,
                        fault,
                    }));
                }
                Some(Ok(produced)) if self.config.answers => {
                    let item = v1::AckedBatch {
                        base_offset: produced.base_offset.0,
                        append_time: produced.append_time,
                        duplicate: produced.duplicate,
                    };
                    let open = ack.get_or_insert_with(|| v1::Ack {
                        lane,
                        first_seq: slot.seq,
                        batches: Vec::with_capacity(1),
                    });
                    open.batches.push(item);
                }
                Some(Ok(_)) | None => {}
            }
        }
        out.extend(ack.map(Item::Ack));
    }

    /// Parked batches leave when the partition is open and no answer is out.
    fn release(&mut self) -> Vec<(u64, B)> {
        if self.phase == Phase::Resuming && self.slots.is_empty() {
            self.phase = Phase::Open;
        }
        if self.phase != Phase::Open || matches!(self.ending, Some(Ending::Fault(_))) {
            return Vec::new();
        }
        let parked = std::mem::take(&mut self.parked);
        parked
            .into_iter()
            .map(|(seq, batch)| (self.push(seq, None), batch))
            .collect()
    }

    fn answer_flushes(&mut self, out: &mut Vec<Item>) {
        let lane = self.config.lane;
        while let Some(&seq) = self.flushes.front() {
            let waits = seq >= self.received_end
                || self.slots.iter().any(|slot| slot.seq <= seq)
                || self.parked.iter().any(|(parked, _)| *parked <= seq);
            if waits {
                return;
            }
            self.flushes.pop_front();
            out.push(Item::Flushed(v1::Flushed { lane, seq }));
        }
    }

    fn say_goodbye(&mut self, out: &mut Vec<Item>) {
        if self.ending.is_none() || self.phase == Phase::Opening || !self.slots.is_empty() {
            return;
        }
        let asked = self.ending == Some(Ending::Asked);
        if self.phase == Phase::Gone || (asked && !self.parked.is_empty()) {
            return;
        }
        self.phase = Phase::Gone;
        let lane = self.config.lane;
        // Batches that are still parked were never given to the partition; the fault says so for all of them.
        self.parked.clear();
        self.flushes.clear();
        out.push(match self.ending.take() {
            Some(Ending::Fault(fault)) => match fault.reason {
                Reason::FencedEpoch => Item::Fenced(v1::LaneFenced {
                    lane,
                    fault: Some(fault.to_wire()),
                }),
                Reason::PartitionMoved => Item::Moved(v1::LaneMoved {
                    lane,
                    owner: owner_of(&fault),
                }),
                _ => Item::Closed(v1::LaneClosed {
                    lane,
                    fault: Some(fault.to_wire()),
                }),
            },
            Some(Ending::Asked) | None => Item::Closed(v1::LaneClosed { lane, fault: None }),
        });
    }

    /// The partition could not be opened: the lane is over, and nothing that was sent for it was stored.
    pub(super) fn open_failed(&mut self, fault: Fault) {
        if self.phase == Phase::Opening {
            self.phase = Phase::Open;
            self.ending = Some(Ending::Fault(fault));
            self.parked.clear();
        }
    }
}

/// "An earlier batch of this lane was refused."
pub(super) fn nacked_before() -> Fault {
    let words = "an earlier batch of this lane was refused; send Resume with the seq to go on from";
    Fault::new(Reason::NackedBefore, words)
}
