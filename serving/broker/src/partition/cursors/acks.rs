//! How acks are judged (serving.md B2, B5).

use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::mutant::Mutant;
use hulse_proto::time::TimestampMs;

use super::core::CursorCore;
use super::lane::{AckCommand, AckKind, AckStatus, Acked, ConsumerId, CursorAnswer};
use crate::state::{Change, OffsetRange};

/// With so many acked ranges above a base nothing new is delivered (ARCHITECTURE §5).
pub(crate) const ACK_RANGES_MAX: usize = 10_000;
/// With so many an ack that would make one more is refused. Reached only where a single batch has more records than the window.
const ACK_RANGES_HARD_MAX: usize = 2 * ACK_RANGES_MAX;

impl<T> CursorCore<T> {
    /// It was sent `records` up to `to` in this turn; what it was sent in earlier ones does not count.
    pub(crate) fn sent(&mut self, consumer: ConsumerId, turn: u64, to: Offset, records: u64) {
        let seat = self.consumers.get(&consumer);
        let seat = seat.and_then(|id| self.seats.get_mut(id));
        let entry = seat.and_then(|seat| seat.consumers.get_mut(&consumer));
        if let Some(entry) = entry.filter(|entry| entry.began == turn) {
            let (known, ahead) = (entry.sent_to, entry.ahead_to);
            entry.sent_to = entry.sent_to.max(to);
            entry.sent_records = entry.sent_records.max(records);
            self.count_late(consumer, known, ahead);
            if self.mutation.is(Mutant::CursorAtSent) {
                self.read_to(consumer, to);
            }
        }
    }

    /// What was acked or trimmed before it was known to have been sent, beyond `known`, was not counted right then.
    fn count_late(&mut self, consumer: ConsumerId, known: Offset, ahead: Offset) {
        let id = self.consumers.get(&consumer).copied();
        let found = id.and_then(|id| Some((id, self.accepted.get(id)?.base)));
        if let Some((id, _)) = found.filter(|(_, base)| ahead.max(*base) > known) {
            self.recount(id);
        }
    }

    /// By mutation only: what was read counts as processed.
    fn read_to(&mut self, consumer: ConsumerId, to: Offset) {
        let id = self.consumers.get(&consumer).copied();
        if let Some((id, cursor)) = id.and_then(|id| Some((id, self.accepted.get_mut(id)?))) {
            cursor.ack_to(to);
            self.gathering.ack_to(id, to);
        }
    }

    /// By mutation only: nothing above a base is acked.
    pub(super) fn after_take_over(mut self) -> Self {
        if !self.mutation.is(Mutant::RangesForgotten) {
            return self;
        }
        let all: Vec<_> = self.accepted.iter().map(|(id, _)| id).collect();
        for id in all {
            if let Some(cursor) = self.accepted.get(id) {
                let moved = Change::Moved {
                    at: cursor.acked_at,
                    base: cursor.base,
                    state_epoch: cursor.state_epoch,
                    keep_acked: false,
                };
                self.accepted.apply_change(id, &moved);
            }
        }
        self
    }

    /// By mutation only: what has the same name goes.
    pub(super) fn drop_namesakes(&mut self, id: SubscriptionId, name: &str, now: TimestampMs) {
        let others = self.accepted.iter();
        let namesakes: Vec<_> = others
            .filter(|(other, cursor)| *other != id && &*cursor.name == name)
            .map(|(other, _)| other)
            .collect();
        for other in namesakes {
            self.drop_cursor(other, now);
        }
    }

    /// Takes an ack, range by range. Answers when what was taken is durable; at once where nothing was.
    pub(crate) fn ack(&mut self, command: &AckCommand, ticket: T, now: TimestampMs) {
        let Some(id) = self.owned(command.consumer) else {
            let statuses = vec![AckStatus::NotOwned; command.ranges.len()];
            let answer = CursorAnswer::Acked(Acked { statuses });
            self.answers.push((ticket, Ok(answer)));
            return;
        };
        let mut statuses = Vec::with_capacity(command.ranges.len());
        let mut released = 0;
        for range in &command.ranges {
            let (status, new) = self.ack_range(id, command, *range);
            statuses.push(status);
            released += new;
            if status == AckStatus::Ok {
                self.note_ahead(id, range.end);
            }
        }
        if released > 0 {
            self.gathered(now, false);
            let seat = self.seats.get_mut(&id);
            if let Some(active) = seat.and_then(|seat| seat.active_mut()) {
                active.release(released);
            }
            self.look_crowded(id);
        }
        let taken = statuses.contains(&AckStatus::Ok);
        if taken && released == 0 {
            // It was trimmed, and its lane may have sent it meanwhile.
            self.recount(id);
        }
        let answer = CursorAnswer::Acked(Acked { statuses });
        if taken {
            self.settle(id, ticket, answer, now);
        } else {
            self.answers.push((ticket, Ok(answer)));
        }
    }

    fn note_ahead(&mut self, id: SubscriptionId, end: Offset) {
        let active = self.seats.get_mut(&id).and_then(|seat| seat.active_mut());
        if let Some(active) = active.filter(|active| end > active.sent_to) {
            active.ahead_to = active.ahead_to.max(end);
        }
    }

    /// The subscription whose active consumer this is, or whose former one in its grace.
    fn owned(&self, consumer: ConsumerId) -> Option<SubscriptionId> {
        let id = *self.consumers.get(&consumer)?;
        let seat = self.seats.get(&id)?;
        (seat.active() == Some(consumer)).then_some(id)
    }

    fn ack_range(
        &mut self,
        id: SubscriptionId,
        command: &AckCommand,
        range: OffsetRange,
    ) -> (AckStatus, u64) {
        let seat = self.seats.get(&id);
        let consumer = seat.and_then(|seat| seat.consumers.get(&command.consumer));
        let (Some(consumer), Some(cursor)) = (consumer, self.accepted.get_mut(id)) else {
            return (AckStatus::NotOwned, 0);
        };
        if command.state_epoch != cursor.state_epoch {
            return (AckStatus::Stale, 0);
        }
        let cumulative = command.kind == AckKind::Cumulative;
        // What lies below the base is processed, whoever says so.
        if range.end <= cursor.base && (cumulative || !range.is_empty()) {
            return (AckStatus::Ok, 0);
        }
        let sent = match command.sent.turn == consumer.began {
            true => command.sent.to,
            false => Offset(0),
        };
        let beyond =
            range.end > consumer.acks_to.max(sent) && !self.mutation.is(Mutant::AckBeyondSent);
        if beyond || (!cumulative && range.is_empty()) {
            return (AckStatus::Invalid, 0);
        }
        if cumulative {
            let more = u64::from(self.mutation.is(Mutant::CumulativeOffByOne));
            let end = Offset(range.end.0 + more);
            let new = cursor.ack_to(end);
            self.gathering.ack_to(id, end);
            return (AckStatus::Ok, new);
        }
        if cursor.acked().len() >= ACK_RANGES_HARD_MAX && range.first > cursor.base {
            return (AckStatus::Retry, 0);
        }
        let new = cursor.ack(range);
        if new > 0 {
            self.gathering.ack(id, range);
        }
        (AckStatus::Ok, new)
    }

    /// Counts what the active consumer was sent and has not to ack any more.
    pub(super) fn recount(&mut self, id: SubscriptionId) {
        let (Some(seat), Some(cursor)) = (self.seats.get_mut(&id), self.accepted.get(id)) else {
            return;
        };
        if let Some(active) = seat.active_mut() {
            let left = cursor.backlog(Offset(0), active.sent_to);
            active.recount(left);
        }
    }

    /// Says whether the active consumer's cursor has too many ranges.
    pub(super) fn look_crowded(&mut self, id: SubscriptionId) {
        let ranges = self
            .accepted
            .get(id)
            .map_or(0, |cursor| cursor.acked().len());
        let seat = self.seats.get_mut(&id);
        if let Some(active) = seat.and_then(|seat| seat.active_mut()) {
            active.set_crowded(ranges >= ACK_RANGES_MAX);
        }
    }
}
