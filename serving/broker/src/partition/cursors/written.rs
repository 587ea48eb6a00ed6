//! When deltas are written, and what follows when they are confirmed, late, or not written.

use std::sync::Arc;

use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::mutant::Mutant;
use hulse_proto::time::TimestampMs;

use super::core::{CursorCore, InFlight};
use super::lane::CursorAnswer;

/// Acks are gathered for this long …
const GATHER_MS: TimestampMs = 4;
/// … or up to this size (serving.md B2.3).
const GATHER_BYTES: usize = 64 << 10;
/// A delta that could not be written is tried again after this, twice as long each time …
const RETRY_MS: TimestampMs = 500;
/// … up to this: each try may leave a ledger behind.
const RETRY_MS_MAX: TimestampMs = 30_000;
/// A delta that is on its way for longer is worth a word to consumers.
const SLOW_MS: TimestampMs = 2_000;
/// Acks and moves that wait for a delta; more are refused.
pub(super) const WAITING_MAX: usize = 100_000;
/// Ranges of those acks.
const WAITING_RANGES_MAX: usize = 4 << 20;

impl<T> CursorCore<T> {
    /// Groups of a coordinator shard change; answers when that is durable. In the order of the calls.
    pub(crate) fn groups(
        &mut self,
        delta: Arc<serving_groups::Delta>,
        ticket: T,
        now: TimestampMs,
    ) {
        self.gathering.groups(delta);
        self.gathering.wait(ticket, CursorAnswer::Written);
        self.gathered(now, true);
    }

    /// When the next delta is due; `None`: nothing waits, or one is on its way.
    pub(crate) fn due_at(&self) -> Option<TimestampMs> {
        if self.in_flight.is_some() || self.gathering.is_empty() {
            return None;
        }
        let since = self.gathering_since?;
        let at = match self.urgent || self.gathering.bytes() >= GATHER_BYTES {
            true => since,
            false => since + GATHER_MS,
        };
        Some(match &self.trouble {
            Some((_, not_before)) => at.max(*not_before),
            None => at,
        })
    }

    /// What was gathered goes on its way, if it is due; [`CursorCore::delta`] is then to be written.
    pub(crate) fn begin_write(&mut self, now: TimestampMs) -> bool {
        if self.due_at().is_none_or(|at| at > now) {
            return false;
        }
        self.in_flight = Some(InFlight {
            pending: std::mem::take(&mut self.gathering),
            since: now,
        });
        self.gathering_since = None;
        self.urgent = false;
        true
    }

    /// The delta is confirmed. The caller folds it into the state of the partition before anybody is answered.
    pub(crate) fn written(&mut self, now: TimestampMs) {
        let Some(InFlight { mut pending, .. }) = self.in_flight.take() else {
            return;
        };
        self.applied += 1;
        self.trouble = None;
        self.failures = 0;
        self.tell_wait(None);
        self.shared_written.extend(pending.take_shared());
        for id in pending.moved() {
            if !self.gathering.has_moved(id)
                && let (Some(seat), Some(cursor)) = (self.seats.get_mut(&id), self.accepted.get(id))
            {
                seat.end_move(cursor);
            }
        }
        let answers = pending.take_waiting().into_iter();
        self.answers
            .extend(answers.map(|(ticket, answer)| (ticket, Ok(answer))));
        self.tick(now);
    }

    /// The delta was not written, or may have been: it is written again, with what came since.
    pub(crate) fn not_written(&mut self, why: Fault, now: TimestampMs) {
        let Some(InFlight { mut pending, since }) = self.in_flight.take() else {
            return;
        };
        if self.mutation.is(Mutant::FailedDeltaForgotten) {
            let lost = pending.take_waiting().into_iter();
            self.answers
                .extend(lost.map(|(ticket, answer)| (ticket, Ok(answer))));
            return;
        }
        pending.join(std::mem::take(&mut self.gathering));
        self.gathering = pending;
        self.gathering_since = Some(since);
        self.tell_wait(Some(&why));
        let wait = (RETRY_MS << self.failures.min(10)).min(RETRY_MS_MAX);
        self.failures += 1;
        self.trouble = Some((why, now + wait));
    }

    /// Says so when a delta takes long.
    pub(super) fn note_slow(&mut self, now: TimestampMs) {
        let slow = self
            .in_flight
            .as_ref()
            .is_some_and(|flight| now - flight.since >= SLOW_MS);
        if slow && self.trouble.is_none() {
            let why = "acks are not confirmed by the storage yet; they wait";
            let fault = Fault::new(Reason::StorageUnavailable, why);
            self.tell_wait(Some(&fault));
        }
    }

    fn tell_wait(&mut self, why: Option<&Fault>) {
        for seat in self.seats.values_mut() {
            for consumer in seat.consumers.values_mut() {
                consumer.set_acks_wait(why);
            }
        }
    }

    /// Whether another one may wait.
    pub(crate) fn has_room(&self) -> bool {
        let flight = self.in_flight.as_ref();
        let in_flight = flight.map_or(0, |flight| flight.pending.waiting());
        let ranges = flight.map_or(0, |flight| flight.pending.waiting_ranges());
        in_flight + self.gathering.waiting() < WAITING_MAX
            && ranges + self.gathering.waiting_ranges() < WAITING_RANGES_MAX
    }

    /// The partition ends: what is not confirmed may be durable or not.
    pub(crate) fn fail(&mut self, why: &Fault) {
        let unknown = Fault {
            fate: Fate::Unknown,
            ..why.clone()
        };
        let flight = self.in_flight.take().map(|flight| flight.pending);
        let mut pending = flight.unwrap_or_default();
        pending.join(std::mem::take(&mut self.gathering));
        self.gathering_since = None;
        let waiting = pending.take_waiting().into_iter();
        self.answers
            .extend(waiting.map(|(ticket, _)| (ticket, Err(unknown.clone()))));
    }
}
