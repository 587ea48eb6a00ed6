//! What only a live owner has: who waits to be verified, and what is on its way to the log and to the state.
//!
//! Nothing of it is durable: a new owner begins without, and its producers ask again.
//!
//! The order of checks for a batch (C2): [`Door::epoch`], then the table of sequences (duplicates, order), then [`Door::judge_batch`].

use std::collections::VecDeque;

use hulse_proto::id::{Offset, ProducerId};
use hulse_proto::mutant::{Mutant, Mutation};

use super::aborted::Aborted;
use super::staged::Stage;
use super::view::View;
use crate::coordinator::Parts;
use crate::error::TxnError;
use crate::guard::{Guarded, Guards, Ticket};
use crate::limits::{OPEN_MAX, STAGED_MAX};
use crate::marker::Marker;
use crate::producer::{Producer, Version};

/// What a batch says of its producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchFacts {
    /// Whose.
    pub producer: Producer,
    /// Sequence of its first record.
    pub first_sequence: i32,
    /// It is part of a transaction.
    pub transactional: bool,
    /// How its client ends transactions.
    pub version: Version,
    /// The table of sequences knows the producer.
    pub known: bool,
}

/// What to do with a batch, or with acks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchVerdict {
    /// Take it.
    Append,
    /// It waits: ask the coordinator under this ticket, unless that was done.
    Verify(Ticket),
}

/// Something that was sent to one of the two chains and is not confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnItsWay {
    /// A batch of a transaction, to the log.
    Batch(Producer),
    /// A marker, to the log.
    Marker(Marker),
    /// Staged acks, to the state.
    Staged(Producer, Vec<Stage>),
    /// A marker, to the state.
    Settled(Marker),
}

/// What one half of a marker needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Nothing: it takes no part, or is settled durably.
    Done,
    /// It was sent before: the answer waits until that is confirmed.
    OnItsWay,
    /// Write it.
    Write,
}

/// What a marker needs; it is answered when both halves are confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkerPlan {
    /// CONTROL in the log.
    pub log: Half,
    /// META in the state.
    pub state: Half,
}

/// The live side of a partition's transactions.
#[derive(Debug, Default)]
pub struct Door {
    batches: Guards,
    acks: Guards,
    log_way: VecDeque<(u64, OnItsWay)>,
    state_way: VecDeque<(u64, OnItsWay)>,
    mutation: Mutation,
}

impl Door {
    /// One with a rule switched off.
    #[must_use]
    pub fn mutated(mutation: Mutation) -> Self {
        Self {
            batches: Guards::mutated(mutation),
            acks: Guards::mutated(mutation),
            mutation,
            ..Self::default()
        }
    }

    /// The epoch below which a producer is fenced, with what is on its way; −1: nothing is known.
    pub fn epoch(&self, view: View<'_>, id: ProducerId) -> i16 {
        let way = self.log_way.iter().chain(&self.state_way);
        let producers = way.map(|(_, way)| match way {
            OnItsWay::Batch(producer) | OnItsWay::Staged(producer, _) => *producer,
            OnItsWay::Marker(marker) | OnItsWay::Settled(marker) => marker.producer,
        });
        let of_this = producers.filter(|producer| producer.id == id);
        let way = of_this.map(|producer| producer.epoch).max();
        way.unwrap_or(-1).max(view.epoch(id))
    }

    /// Where a reader of committed records ends (C6.3).
    pub fn stable(&self, view: View<'_>) -> Offset {
        match self.mutation.is(Mutant::StableAtEnd) {
            true => view.log.end,
            false => view.log.stable(),
        }
    }

    /// What of `from..end` a reader of committed records passes over: all aborted transactions with something in it, also where they
    /// began before; by their first offsets (C6.4).
    pub fn aborted(&self, view: View<'_>, from: Offset, end: Offset) -> Vec<Aborted> {
        let mut found = view.log.aborted().overlapping(from, end);
        if self.mutation.is(Mutant::AbortedBeforeForgotten) {
            found.retain(|aborted| aborted.first >= from);
        }
        found
    }

    fn fence(&self, view: View<'_>, found: Producer) -> Result<(), TxnError> {
        let epoch = self.epoch(view, found.id);
        let known = Producer { epoch, ..found };
        match found.epoch < epoch {
            true => Err(TxnError::Fenced { found, known }),
            false => Ok(()),
        }
    }

    /// Whether a transaction of a producer is open for batches, with what is on its way; and at which epoch.
    fn open_at(&self, view: View<'_>, id: ProducerId) -> Option<i16> {
        let way = self.log_way.iter().rev();
        let last = way.into_iter().find_map(|(_, way)| match way {
            OnItsWay::Batch(producer) if producer.id == id => Some(Some(producer.epoch)),
            OnItsWay::Marker(marker) if marker.producer.id == id => Some(None),
            _ => None,
        });
        last.unwrap_or_else(|| {
            let known = view.log.get(id)?;
            known.open.map(|_| known.epoch)
        })
    }

    /// Judges a batch of a producer (C2.3, C2.7).
    ///
    /// # Errors
    /// `Fenced`, `InvalidState`, `Overtaken`, `NotFirst`, `Concurrent`, `TooMany`; nothing is appended.
    pub fn judge_batch(
        &mut self,
        view: View<'_>,
        batch: &BatchFacts,
    ) -> Result<BatchVerdict, TxnError> {
        let producer = batch.producer;
        self.fence(view, producer)?;
        let open = self.open_at(view, producer.id);
        if !batch.transactional {
            return match open {
                Some(_) => Err(TxnError::InvalidState(
                    "a transaction of the producer is open",
                )),
                None => Ok(BatchVerdict::Append),
            };
        }
        match open {
            Some(epoch) if epoch == producer.epoch => return Ok(BatchVerdict::Append),
            // The marker that ends the former epoch's is not here yet.
            Some(_) => return Err(TxnError::Concurrent),
            None => {}
        }
        let (first, nothing) = (batch.first_sequence, !batch.known);
        if batch.version == Version::Tv2 && nothing && first != 0 {
            return Err(TxnError::NotFirst { found: first });
        }
        if view.log.open().len() >= OPEN_MAX {
            return Err(TxnError::TooMany {
                what: "open transactions of a partition",
                limit: OPEN_MAX,
            });
        }
        Ok(match self.batches.guard(producer, first)? {
            Guarded::Verified => BatchVerdict::Append,
            Guarded::Ask(ticket) => BatchVerdict::Verify(ticket),
        })
    }

    /// The coordinator answered for batches. True: what waits is judged again now, and appended before anything else happens.
    pub fn verified_batches(
        &mut self,
        producer: Producer,
        ticket: Ticket,
        takes_part: bool,
    ) -> bool {
        self.batches.answered(producer, ticket, takes_part)
    }

    /// The coordinator answered for acks; as [`Self::verified_batches`].
    pub fn verified_acks(&mut self, producer: Producer, ticket: Ticket, takes_part: bool) -> bool {
        self.acks.answered(producer, ticket, takes_part)
    }

    /// Judges acks that a transaction would stage (C7, D10). That they are its consumer's to ack, the dispatcher says.
    ///
    /// # Errors
    /// `Fenced`, `Conflict`, `TooMany`; nothing is staged.
    pub fn judge_acks(
        &mut self,
        view: View<'_>,
        producer: Producer,
        stages: &[Stage],
    ) -> Result<BatchVerdict, TxnError> {
        self.fence(view, producer)?;
        if !self.mutation.is(Mutant::StagedTwice) {
            self.check_conflict(view, producer.id, stages)?;
        }
        let known = view.state.get(producer.id);
        let staged = known.map_or(0, |known| known.acks.len());
        let more: usize = stages.iter().map(|(_, ranges)| ranges.len()).sum();
        if staged + more > STAGED_MAX {
            return Err(TxnError::TooMany {
                what: "acks of a transaction at one partition",
                limit: STAGED_MAX,
            });
        }
        let way = self.state_way.iter().rev();
        let way = way.into_iter().find_map(|(_, way)| match way {
            OnItsWay::Staged(other, _) if other.id == producer.id => Some(*other == producer),
            OnItsWay::Settled(marker) if marker.producer.id == producer.id => Some(false),
            _ => None,
        });
        let open = way.unwrap_or_else(|| {
            known.is_some_and(|known| known.open && known.epoch == producer.epoch)
        });
        if open {
            return Ok(BatchVerdict::Append);
        }
        Ok(match self.acks.guard(producer, 0)? {
            Guarded::Verified => BatchVerdict::Append,
            Guarded::Ask(ticket) => BatchVerdict::Verify(ticket),
        })
    }

    fn check_conflict(
        &self,
        view: View<'_>,
        id: ProducerId,
        stages: &[Stage],
    ) -> Result<(), TxnError> {
        let durable = |subscription, range| {
            let others = view.state.producers().filter(|(other, _)| **other != id);
            others
                .into_iter()
                .any(|(_, known)| known.acks.overlaps(subscription, range))
        };
        let way = |subscription, range: serving_dispatch::OffsetRange| {
            self.state_way.iter().any(|(_, way)| match way {
                OnItsWay::Staged(other, stages) if other.id != id => {
                    let same = stages.iter().filter(|(of, _)| *of == subscription);
                    let mut ranges = same.flat_map(|(_, ranges)| ranges);
                    ranges.any(|staged| !staged.within(range).is_empty())
                }
                _ => false,
            })
        };
        for (subscription, ranges) in stages {
            for range in ranges {
                if durable(*subscription, *range) || way(*subscription, *range) {
                    return Err(TxnError::Conflict);
                }
            }
        }
        Ok(())
    }

    /// Judges a marker (C6.1, C6.2; D10), for the parts that the coordinator named.
    ///
    /// # Errors
    /// `CoordinatorFenced`, `Fenced`; nothing changes.
    pub fn judge_marker(
        &mut self,
        view: View<'_>,
        marker: &Marker,
        parts: Parts,
    ) -> Result<MarkerPlan, TxnError> {
        let id = marker.producer.id;
        let way = self.log_way.iter().chain(&self.state_way);
        let way = way.filter_map(|(_, way)| match way {
            OnItsWay::Marker(other) | OnItsWay::Settled(other) if other.producer.id == id => {
                Some(other.coordinator_epoch)
            }
            _ => None,
        });
        let known = way.max().unwrap_or(-1).max(view.coordinator_epoch(id));
        let found = marker.coordinator_epoch;
        if found < known && !self.mutation.is(Mutant::OldMarkerTaken) {
            return Err(TxnError::CoordinatorFenced { found, known });
        }
        let log = match (parts.data, view.log.get(id)) {
            (false, _) => Half::Done,
            (true, known) => {
                let known = known.map(|known| (known.epoch, known.serial, known.open.is_some()));
                self.half(&self.log_way, marker, known)?
            }
        };
        let state = match (parts.acks, view.state.get(id)) {
            (false, _) => Half::Done,
            (true, known) => {
                let known = known.map(|known| (known.epoch, known.serial, known.open));
                self.half(&self.state_way, marker, known)?
            }
        };
        self.batches.drop_guard(id);
        self.acks.drop_guard(id);
        Ok(MarkerPlan { log, state })
    }

    /// One half, by what its chain knows of the producer: epoch, serial, and whether something is open.
    fn half(
        &self,
        way: &VecDeque<(u64, OnItsWay)>,
        marker: &Marker,
        known: Option<(i16, u32, bool)>,
    ) -> Result<Half, TxnError> {
        // Also one that a coordinator before this one sent.
        let sent = way.iter().any(|(_, way)| match way {
            OnItsWay::Marker(other) | OnItsWay::Settled(other) => {
                (other.producer, other.serial) == (marker.producer, marker.serial)
            }
            _ => false,
        });
        if sent {
            return Ok(Half::OnItsWay);
        }
        let Some((epoch, serial, open)) = known else {
            return Ok(Half::Write);
        };
        if self.mutation.is(Mutant::OldMarkerTaken) {
            return Ok(Half::Write);
        }
        if marker.serial != 0 && marker.serial <= serial {
            return Ok(Half::Done);
        }
        let found = marker.producer;
        let known = Producer { epoch, ..found };
        match marker.version {
            Version::Tv2 if found.epoch == epoch && !open => Ok(Half::Done),
            Version::Tv2 if found.epoch > epoch => Ok(Half::Write),
            Version::Tv1 if found.epoch >= epoch => Ok(Half::Write),
            _ => Err(TxnError::Fenced { found, known }),
        }
    }

    /// Something was sent to the log, as its append of this number; numbers grow.
    pub fn sent_to_log(&mut self, number: u64, what: OnItsWay) {
        match &what {
            OnItsWay::Batch(producer) => self.batches.opened(producer.id),
            OnItsWay::Marker(marker) => self.batches.drop_guard(marker.producer.id),
            OnItsWay::Staged(..) | OnItsWay::Settled(_) => {}
        }
        self.log_way.push_back((number, what));
    }

    /// Something was sent to the state, as its append of this number; numbers grow.
    pub fn sent_to_state(&mut self, number: u64, what: OnItsWay) {
        match &what {
            OnItsWay::Staged(producer, _) => self.acks.opened(producer.id),
            OnItsWay::Settled(marker) => self.acks.drop_guard(marker.producer.id),
            OnItsWay::Batch(_) | OnItsWay::Marker(_) => {}
        }
        self.state_way.push_back((number, what));
    }

    /// Appends to the log up to this number are confirmed and applied.
    pub fn log_confirmed(&mut self, number: u64) {
        while self.log_way.front().is_some_and(|(n, _)| *n <= number) {
            self.log_way.pop_front();
        }
    }

    /// Appends to the state up to this number are confirmed and applied.
    pub fn state_confirmed(&mut self, number: u64) {
        while self.state_way.front().is_some_and(|(n, _)| *n <= number) {
            self.state_way.pop_front();
        }
    }

    /// Appends to the log from this number on were not made, and will not be (C3).
    pub fn log_failed(&mut self, number: u64) {
        self.log_way.retain(|(n, _)| *n < number);
    }

    /// Appends to the state from this number on were not made, and will not be.
    pub fn state_failed(&mut self, number: u64) {
        self.state_way.retain(|(n, _)| *n < number);
    }
}
