//! Cursors whose records are shared out: their dispatchers say what changes (`partition/sharing`).

use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::time::TimestampMs;

use super::core::CursorCore;
use super::lane::CursorAnswer;
use crate::state::{Change, Cursor, OffsetRange};

impl<T> CursorCore<T> {
    /// A dispatcher has this cursor from now on, and alone changes it.
    pub(crate) fn shared(&mut self, id: SubscriptionId) {
        self.shared.insert(id);
    }

    /// A cursor that is durable, with all that was taken of it.
    pub(crate) fn durable(&self, id: SubscriptionId) -> Option<&Cursor> {
        let flight = self.in_flight.as_ref();
        let making =
            self.gathering.has_made(id) || flight.is_some_and(|flight| flight.pending.has_made(id));
        self.accepted.get(id).filter(|_| !making)
    }

    /// There is such a cursor.
    pub(crate) fn is_known(&self, id: SubscriptionId) -> bool {
        self.accepted.get(id).is_some()
    }

    /// A delta of a dispatcher, which has one on its way at a time. `(now, urgent)`: when, and whether somebody waits for it alone.
    pub(crate) fn take_shared(
        &mut self,
        id: SubscriptionId,
        seq: u64,
        changes: Vec<Change>,
        (now, urgent): (TimestampMs, bool),
    ) {
        for change in &changes {
            self.accepted.apply_change(id, change);
        }
        self.gathering.share(id, seq, changes);
        self.gathered(now, urgent);
    }

    /// The deltas of dispatchers that became durable since the last call.
    pub(crate) fn shared_written(&mut self) -> Vec<(SubscriptionId, u64)> {
        std::mem::take(&mut self.shared_written)
    }

    /// Records below `to` that are not processed.
    pub(crate) fn unprocessed(&self, id: SubscriptionId, to: Offset) -> u64 {
        let cursor = self.accepted.get(id);
        cursor.map_or(0, |cursor| cursor.backlog(self.kept.from(), to))
    }

    /// Everything below `to` is passed over, in a cursor without a dispatcher.
    pub(crate) fn expire(&mut self, id: SubscriptionId, to: Offset, ticket: T, now: TimestampMs) {
        let records = self.unprocessed(id, to);
        let gone = OffsetRange {
            first: Offset(0),
            end: to,
        };
        self.pass_over(id, gone, now);
        self.settle(id, ticket, CursorAnswer::Counted(records), now);
    }

    /// The backlog quota takes everything below `to` from a cursor.
    pub(crate) fn evicted(&mut self, id: SubscriptionId, to: Offset, now: TimestampMs) {
        let from = self.kept.from();
        let records = self.accepted.get(id).map_or(0, |it| it.backlog(from, to));
        if records > 0 {
            self.accepted.apply_change(id, &Change::Evicted(records));
            self.gathering.evict(id, records);
            self.gathered(now, false);
        }
    }
}
