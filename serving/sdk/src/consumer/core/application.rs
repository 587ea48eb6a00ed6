//! The application's side of the core: what is handed out, and what is said about it.

use std::collections::BTreeMap;
use std::ops::Range;

use hulse_proto::error::ErrorKind;
use hulse_proto::wire::v1;
use tokio::time::Instant;

use super::consumer_core::ConsumerCore;
use super::event::{ConsumerNote, Ready, SeekAnswer, Unit};
use super::fate::Acknowledgement;
use super::lane::{Lane, Phase};
use super::ranges::RangeSet;
use crate::error::Error;

/// What there is for the application.
#[derive(Debug)]
pub(in crate::consumer) enum Next {
    Unit(Unit),
    Note(ConsumerNote),
    /// Of one partition; the others go on.
    Failed(Error),
    /// Of the whole consumer.
    Ended(Error),
    Closed,
    Nothing,
}

/// Whether a record goes to the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::consumer) enum Handed {
    Yes {
        redelivery: bool,
    },
    /// It comes again, or was acknowledged.
    Void,
    /// Too many wait for an acknowledgement.
    Full,
}

/// Which record: partition, the term in which it was handed out, offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::consumer) struct Place {
    pub(in crate::consumer) partition: u32,
    pub(in crate::consumer) term: u64,
    pub(in crate::consumer) offset: u64,
}

impl ConsumerCore {
    /// The next thing for the application.
    pub(in crate::consumer) fn next(&mut self) -> Next {
        if self.closing {
            return Next::Closed;
        }
        match (self.ready.pop_front(), &self.ended) {
            (Some(Ready::Unit(unit)), _) => Next::Unit(unit),
            (Some(Ready::Note(note)), _) => Next::Note(note),
            (Some(Ready::Failed(error)), _) => Next::Failed(error),
            (None, Some(error)) => Next::Ended(error.clone()),
            (None, None) => Next::Nothing,
        }
    }

    /// A record is about to be handed out.
    pub(in crate::consumer) fn hand(&mut self, place: Place) -> Handed {
        if self.closing {
            return Handed::Void;
        }
        if self.unacked >= self.wanted.unacked_max {
            return Handed::Full;
        }
        let Place {
            partition,
            term,
            offset,
        } = place;
        let handed = self.with_lane(partition, |lane, _| lane.hand(term, offset));
        match handed.flatten() {
            Some(redelivery) => Handed::Yes { redelivery },
            None => Handed::Void,
        }
    }

    /// A unit is through: its room is given back.
    pub(in crate::consumer) fn finish(&mut self, unit: &Unit) {
        self.give_back(unit.session, unit.amount);
    }

    /// Is a unit that was acknowledged before it is handed out still the application's?
    pub(in crate::consumer) fn acknowledged_ahead_counts(&self, unit: &Unit) -> bool {
        let lane = self.lanes.get(&unit.partition());
        !self.closing && lane.is_some_and(|lane| lane.counts(unit.term))
    }

    /// The application is through with one record.
    pub(in crate::consumer) fn ack(&mut self, place: Place) -> Acknowledgement {
        let range = place.offset..place.offset + 1;
        let asked = range.clone();
        let acknowledgement = self.with_lane(place.partition, |lane, out| {
            lane.ack(place.term, asked, out)
        });
        acknowledgement.unwrap_or_else(|| foreign(range))
    }

    /// The application is through with one record and everything before it.
    pub(in crate::consumer) fn ack_cumulative(&mut self, place: Place) -> Acknowledgement {
        let end = place.offset + 1;
        let acknowledgement = self.with_lane(place.partition, |lane, out| {
            lane.ack_below(place.term, end, out)
        });
        acknowledgement.unwrap_or_else(|| foreign(place.offset..end))
    }

    /// Acknowledges a unit before any of it is handed out.
    pub(in crate::consumer) fn ack_ahead(&mut self, unit: &Unit) -> Acknowledgement {
        let ranges = &unit.acquired;
        let term = unit.term;
        let acknowledgement = self.with_lane(unit.partition(), |lane, out| {
            lane.ack_ahead(term, ranges, out)
        });
        acknowledgement.unwrap_or_else(|| foreign(0..u64::MAX))
    }

    /// Moves the cursor of a partition; the answer comes when that is durable.
    pub(in crate::consumer) fn seek(
        &mut self,
        partition: u32,
        to: v1::StartAt,
        until: Instant,
        answer: SeekAnswer,
    ) {
        self.with_lane(partition, |lane, out| lane.seek(to, until, answer, out));
    }

    /// Hands out nothing more. Acknowledgements that were asked for go on.
    pub(in crate::consumer) fn close(&mut self) {
        self.closing = true;
        self.ready.clear();
        self.out.wake = true;
    }

    /// Every acknowledgement has its receipt, or never gets one.
    pub(in crate::consumer) fn is_flushed(&self) -> bool {
        self.lanes.values().all(Lane::is_flushed)
    }

    /// The end: nothing is attached any more, what waits is refused.
    pub(in crate::consumer) fn shut(&mut self) {
        let words = "the consumer was closed before the receipt came";
        self.end(&Error::local(ErrorKind::Conflict, words));
    }

    /// What was handed out and is not known to be acknowledged, by partition.
    pub(in crate::consumer) fn unacknowledged(&self) -> BTreeMap<u32, Vec<Range<u64>>> {
        let lanes = self.lanes.values().map(|lane| {
            let mut open: RangeSet = lane.handed.clone();
            lane.refused.iter().for_each(|range| open.insert(range));
            lane.acks
                .records()
                .iter()
                .for_each(|range| open.insert(range));
            (lane.partition, open.iter().collect::<Vec<_>>())
        });
        lanes.filter(|(_, open)| !open.is_empty()).collect()
    }

    /// `None`: some partition was not attached yet. Else whether all could be.
    pub(in crate::consumer) fn has_begun(&self) -> Option<Result<(), Error>> {
        let refused = self.lanes.values().find_map(|lane| match &lane.phase {
            Phase::Ended(error) => Some(error.clone()),
            _ => None,
        });
        match (
            self.ended.clone().or(refused),
            self.lanes.values().all(|lane| lane.begun),
        ) {
            (Some(error), _) => Some(Err(error)),
            (None, true) => Some(Ok(())),
            (None, false) => None,
        }
    }

    /// Why some partition is not attached.
    pub(in crate::consumer) fn trouble(&self) -> Option<Error> {
        self.lanes.values().find_map(|lane| lane.trouble.clone())
    }

    /// The partitions of this consumer.
    pub(in crate::consumer) fn partitions(&self) -> Vec<u32> {
        self.lanes.keys().copied().collect()
    }

    /// Partitions of which this consumer gets the records now.
    pub(in crate::consumer) fn active_partitions(&self) -> Vec<u32> {
        let active = self.lanes.values().filter(|lane| lane.is_active());
        active.map(|lane| lane.partition).collect()
    }

    /// Handed out and not acknowledged; bytes that wait to be handed out; times that a partition was attached.
    pub(in crate::consumer) fn figures(&self) -> (u64, u64, u64) {
        let waiting = self.ready.iter().map(|ready| match ready {
            Ready::Unit(unit) => unit.batch.bytes.len() as u64,
            _ => 0,
        });
        (self.unacked, waiting.sum(), self.attachments)
    }
}

fn foreign(range: Range<u64>) -> Acknowledgement {
    let words = "the record is of a partition that this consumer does not have";
    Acknowledgement::decided(range, Err(Error::invalid(words)))
}
