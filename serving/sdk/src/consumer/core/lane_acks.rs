//! What a lane hands out, and the acknowledgements of it.

use std::ops::Range;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::consume_up::Item;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use super::event::Out;
use super::fate::Acknowledgement;
use super::lane::{Lane, Phase, void};
use super::ranges::RangeSet;
use crate::error::Error;

impl Lane {
    /// A record of this term is about to be handed out. `None`: it is not to be. Else whether it was before.
    pub(super) fn hand(&mut self, term: u64, offset: u64) -> Option<bool> {
        if term != self.term || !self.is_active() {
            return None;
        }
        if self.acks.pends(offset) || self.done.contains(offset) {
            return None;
        }
        let before = self.handed.contains(offset);
        if !before {
            self.handed.insert(offset..offset + 1);
        }
        Some(before)
    }

    /// Everything that was handed out and has no receipt lies below.
    pub(super) fn handed_end(&self) -> u64 {
        let ends = [self.handed.end(), self.refused.end(), self.acks.end()];
        ends.into_iter().max().unwrap_or(0)
    }

    /// The application is through with these offsets of `term`.
    pub(super) fn ack(&mut self, term: u64, range: Range<u64>, out: &mut Out) -> Acknowledgement {
        if let Some(refused) = self.refuses(term) {
            return Acknowledgement::decided(range, Err(refused));
        }
        if !self.handed.contains(range.start) && !self.refused.contains(range.start) {
            // Acknowledged before: with that one's fate, or processed.
            let before = self.acks.find(range.start);
            return before.unwrap_or_else(|| Acknowledgement::decided(range, Ok(())));
        }
        self.handed.remove(range.clone());
        self.refused.remove(range.clone());
        if term < self.term {
            self.done.insert(range.clone());
        }
        let acknowledgement = self.acks.add_range(range);
        self.send_acks(out);
        acknowledgement
    }

    /// Acknowledges a unit before anything of it is handed out.
    pub(super) fn ack_ahead(
        &mut self,
        term: u64,
        unit: &[Range<u64>],
        out: &mut Out,
    ) -> Acknowledgement {
        let whole =
            unit.first().map_or(0, |range| range.start)..unit.last().map_or(0, |range| range.end);
        // One of an older term comes again, and may wait to be handed out by now.
        let refused = match term == self.term {
            true => self.refuses(term),
            false => Some(void(Reason::CursorStale)),
        };
        if let Some(refused) = refused {
            return Acknowledgement::decided(whole, Err(refused));
        }
        let mut ranges = RangeSet::default();
        unit.iter().for_each(|range| ranges.insert(range.clone()));
        let acknowledgement = self.acks.add_unit(ranges, whole);
        self.send_acks(out);
        acknowledgement
    }

    /// Nothing that happened since `term` made its records void.
    pub(super) fn counts(&self, term: u64) -> bool {
        self.refuses(term).is_none()
    }

    /// The application is through with everything below `end`.
    pub(super) fn ack_below(&mut self, term: u64, end: u64, out: &mut Out) -> Acknowledgement {
        let own = end.saturating_sub(1)..end;
        if let Some(refused) = self.refuses(term) {
            return Acknowledgement::decided(own, Err(refused));
        }
        let mut records = self.handed.split_below(end);
        let refused = self.refused.split_below(end);
        refused.iter().for_each(|range| records.insert(range));
        if records.is_empty() {
            let before = self.acks.find(own.start);
            return before.unwrap_or_else(|| Acknowledgement::decided(own, Ok(())));
        }
        if term < self.term {
            self.done.insert(0..end);
        }
        let acknowledgement = self.acks.add_below(end, records);
        self.send_acks(out);
        acknowledgement
    }

    fn refuses(&self, term: u64) -> Option<Error> {
        match &self.phase {
            Phase::Ended(error) => Some(error.clone()),
            _ if term < self.valid_from => Some(void(self.void)),
            _ => None,
        }
    }

    /// Sends what may be sent.
    pub(super) fn send_acks(&mut self, out: &mut Out) {
        let Phase::Attached { link, active } = self.phase else {
            return;
        };
        if self.retry_at.is_some() || !(active || self.yielding) {
            return;
        }
        for ack in self.acks.send(self.expected.max(self.acks_to), link.limits) {
            let kind = match ack.cumulative {
                true => v1::AckKind::Cumulative,
                false => v1::AckKind::Individual,
            };
            let ranges = ack.ranges.into_iter();
            let ranges = ranges.map(|range| v1::OffsetRange {
                first: range.start,
                end: range.end,
            });
            let records = v1::AckRecords {
                ack_id: ack.id,
                lane: link.lane,
                ranges: ranges.collect(),
                kind: kind as i32,
                want_receipt: true,
                state_epoch: self.state_epoch,
                ..v1::AckRecords::default()
            };
            out.sends.push((link.session, Item::Ack(records)));
        }
    }

    /// A receipt. `Err`: it answers nothing that was asked.
    pub(super) fn receipt(
        &mut self,
        receipt: &v1::AckReceipt,
        now: Instant,
        rng: &mut ChaCha8Rng,
        out: &mut Out,
    ) -> Result<(), Error> {
        let fault = receipt.fault.clone().map(Error::from_wire);
        let error = |status| fault.clone().unwrap_or_else(|| refusal(status));
        let judged = self.acks.receipt(receipt, error);
        let judged =
            judged.ok_or_else(|| Error::wrong_answer("a receipt that nobody waits for"))?;
        for range in judged.refused.iter() {
            self.refused.insert(range);
        }
        for range in judged.taken {
            // What was acknowledged ahead of its second delivery is recognised by this when it comes.
            self.done.insert(range.start.max(self.expected)..range.end);
        }
        if judged.retry {
            let at_least = fault.as_ref().and_then(Error::retry_after);
            self.retry_at = Some(now + self.backoff.next(rng, at_least));
        } else {
            self.backoff.reset();
        }
        self.send_acks(out);
        self.yield_when_through(out);
        out.wake |= judged.retry || self.acks.is_idle();
        Ok(())
    }
}

fn refusal(status: v1::AckStatus) -> Error {
    match status {
        v1::AckStatus::Stale => void(Reason::CursorStale),
        v1::AckStatus::NotOwned => void(Reason::NotOwned),
        _ => Fault::new(
            Reason::InvalidRequest,
            "the broker never delivered the record to this consumer",
        )
        .into(),
    }
}
