//! The consumers of one cursor, and which of them is active (serving.md B5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use super::core::Handed;
use super::lane::{Begin, Cause, ConsumerId, LaneView, Stand};
use crate::state::Cursor;

/// One consumer.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) name: Arc<str>,
    pub(super) client: Arc<str>,
    pub(super) priority: i32,
    pub(super) attached_at: TimestampMs,
    /// The turn in which it became active last …
    pub(super) began: u64,
    /// … and up to where it was sent records since.
    pub(super) sent_to: Offset,
    /// … and how many, by its lane's count.
    pub(super) sent_records: u64,
    /// Up to where it acked what it was not known to have been sent in that turn.
    pub(super) ahead_to: Offset,
    /// What it was given before it attached, until it becomes active.
    pub(super) handed: Option<Handed>,
    /// It may ack below without having been sent it in this turn.
    pub(super) acks_to: Offset,
    /// The state epoch of that turn.
    pub(super) began_epoch: u32,
    /// Its last seek that was taken.
    pub(super) seek_id: u64,
    pub(super) view: LaneView,
    /// The view changed since it was last shown.
    pub(super) dirty: bool,
}

impl Consumer {
    fn stand(&mut self, stand: Stand) {
        self.view.stand = stand;
        self.view.turn += 1;
        self.dirty = true;
    }

    pub(super) fn release(&mut self, records: u64) {
        if records > 0 {
            self.view.released += records;
            self.dirty = true;
        }
    }

    /// Counts anew what was sent in this turn and needs no ack any more. `left`: how much of it is not processed.
    pub(super) fn recount(&mut self, left: u64) {
        let Stand::Active(begin) = &self.view.stand else {
            return;
        };
        let acked = self.view.released - begin.released;
        let passed = self.sent_records.saturating_sub(acked + left);
        self.dirty |= self.view.passed != passed;
        self.view.passed = passed;
    }

    pub(super) fn set_crowded(&mut self, crowded: bool) {
        self.dirty |= self.view.crowded != crowded;
        self.view.crowded = crowded;
    }

    pub(super) fn set_acks_wait(&mut self, why: Option<&Fault>) {
        if self.view.acks_wait.as_ref() != why {
            self.view.acks_wait = why.cloned();
            self.dirty = true;
        }
    }
}

/// The consumers of a cursor.
#[derive(Debug, Default)]
pub(super) struct Seat {
    pub(super) consumers: BTreeMap<ConsumerId, Consumer>,
    active: Option<ConsumerId>,
    /// The active one has until then.
    yields_at: Option<TimestampMs>,
    /// The cursor is being moved.
    moving: bool,
    /// The backlog quota did it.
    evicted: bool,
}

impl Seat {
    /// Whose acks are taken, active or in its grace.
    pub(super) fn active(&self) -> Option<ConsumerId> {
        self.active
    }

    pub(super) fn active_mut(&mut self) -> Option<&mut Consumer> {
        self.consumers.get_mut(&self.active?)
    }

    pub(super) fn insert(&mut self, id: ConsumerId, consumer: Consumer) {
        self.consumers.insert(id, consumer);
    }

    /// It is gone.
    pub(super) fn remove(&mut self, id: ConsumerId) -> Option<Consumer> {
        let gone = self.consumers.remove(&id)?;
        if self.active == Some(id) {
            self.active = None;
            self.yields_at = None;
        }
        Some(gone)
    }

    /// Of the highest priority, in order of names, the one at `partition` mod their number.
    fn chosen(&self, partition: u32) -> Option<ConsumerId> {
        let highest = self.consumers.values().map(|consumer| consumer.priority);
        let highest = highest.max()?;
        let mut members: Vec<(&str, ConsumerId)> = self
            .consumers
            .iter()
            .filter(|(_, consumer)| consumer.priority == highest)
            .map(|(id, consumer)| (&*consumer.name, *id))
            .collect();
        members.sort_unstable();
        let (_, id) = members[partition as usize % members.len()];
        Some(id)
    }

    /// Who comes and goes decides anew who is active.
    pub(super) fn choose(&mut self, partition: u32, cursor: &Cursor, grace_ends: Grace) {
        let chosen = self.chosen(partition);
        match self.active {
            None => {
                self.active = chosen;
                self.show_active(cursor, Cause::Activated, Offset(0));
            }
            // It was to yield to one that is gone. What it was sent before is its own still, unless the cursor was moved.
            Some(active) if chosen == Some(active) => {
                if self.yields_at.take().is_some() {
                    let before = self.active_mut();
                    let before = before.filter(|active| active.began_epoch == cursor.state_epoch);
                    let acks_to = before.map(|active| active.acks_to.max(active.sent_to));
                    self.show_active(cursor, Cause::Activated, acks_to.unwrap_or_default());
                }
            }
            Some(_) if self.yields_at.is_some() => {}
            Some(_) => {
                self.yields_at = Some(grace_ends.at);
                if let Some(active) = self.active_mut() {
                    active.stand(Stand::Yielding(grace_ends.grace));
                }
            }
        }
    }

    /// The active one has nothing more to ack.
    pub(super) fn yielded(&mut self, id: ConsumerId) -> bool {
        self.active == Some(id) && self.give_up()
    }

    /// Its grace is over.
    pub(super) fn grace_over(&mut self, now: TimestampMs) -> bool {
        self.yields_at.is_some_and(|at| at <= now) && self.give_up()
    }

    fn give_up(&mut self) -> bool {
        if self.yields_at.take().is_none() {
            return false;
        }
        if let Some(active) = self.active_mut() {
            active.stand(Stand::Standby);
        }
        self.active = None;
        true
    }

    /// When the grace of the active one ends.
    pub(super) fn yields_at(&self) -> Option<TimestampMs> {
        self.yields_at
    }

    /// The cursor is being moved: nothing is delivered from where it was. One that does not keep what is acked leads anywhere, so an
    /// eviction before it is no reason for where the cursor then stands.
    pub(super) fn begin_move(&mut self, evicts: bool, keep_acked: bool) {
        self.moving = true;
        self.evicted = evicts || (self.evicted && keep_acked);
        if self.yields_at.is_none()
            && let Some(active) = self.active_mut()
        {
            active.stand(Stand::Moving);
        }
    }

    /// The cursor stands where it was moved to.
    pub(super) fn end_move(&mut self, cursor: &Cursor) {
        self.moving = false;
        let cause = match std::mem::take(&mut self.evicted) {
            true => Cause::Evicted,
            false => Cause::Moved,
        };
        if self.yields_at.is_none() {
            self.show_active(cursor, cause, Offset(0));
        }
    }

    /// `kept`: below that it may ack, from its turn before.
    fn show_active(&mut self, cursor: &Cursor, cause: Cause, kept: Offset) {
        let moving = self.moving;
        let Some(active) = self.active_mut() else {
            return;
        };
        if moving {
            active.stand(Stand::Moving);
            return;
        }
        let handed = active.handed.take();
        let handed = handed.filter(|handed| handed.state_epoch == cursor.state_epoch);
        let handed = handed.map_or(Offset(0), |handed| handed.end);
        active.acks_to = cursor.base.max(kept).max(handed);
        active.sent_to = cursor.base;
        active.sent_records = 0;
        active.ahead_to = Offset(0);
        active.began_epoch = cursor.state_epoch;
        active.view.passed = 0;
        let begin = Begin {
            base: cursor.base,
            acked: Arc::new(cursor.acked().clone()),
            state_epoch: cursor.state_epoch,
            acks_to: active.acks_to,
            released: active.view.released,
            cause,
            seek_id: active.seek_id,
        };
        active.stand(Stand::Active(begin));
        active.began = active.view.turn;
    }
}

/// How long one that yields has, and until when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grace {
    pub(super) grace: Duration,
    pub(super) at: TimestampMs,
}
