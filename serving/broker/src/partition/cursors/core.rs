//! The state machine: who consumes, and what changes of the cursors are under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::mutant::{Mutant, Mutation};
use hulse_proto::time::TimestampMs;

use super::kept::Kept;
use super::lane::{ConsumerId, CursorAnswer, CursorMove, LaneView, MoveCommand, Moved, Stand};
use super::pending::Pending;
use super::seat::{Consumer, Grace, Seat};
use crate::state::{Change, CursorDelta, Cursors, NewCursor, OffsetRange};
use crate::subscriptions::SubscriptionKind;

/// Acks are taken from a consumer that yields for this long (serving.md B5).
pub(super) const SWITCH_GRACE: Duration = Duration::from_secs(1);
/// Cursors of one partition.
const CURSORS_MAX: usize = 10_000;
/// Consumers of one cursor.
const CONSUMERS_MAX: usize = 1_000;

/// Who attaches.
#[derive(Debug, Clone)]
pub struct NewConsumer {
    /// To which subscription.
    pub subscription: SubscriptionId,
    /// Its kind, which every consumer names alike.
    pub kind: SubscriptionKind,
    /// The consumer's name.
    pub name: Arc<str>,
    /// Its client's name.
    pub client: Arc<str>,
    /// FAILOVER: the highest is active.
    pub priority: i32,
    /// EXCLUSIVE: ends the one that is attached.
    pub takeover: bool,
    /// It was here before.
    pub handed: Option<Handed>,
}

/// What a consumer was given by an attachment that ended: it may ack that as soon as it is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handed {
    /// Everything that it may ack lies below; at most the high watermark counts.
    pub end: Offset,
    /// Void when the cursor has another one.
    pub state_epoch: u32,
}

/// A delta on its way.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    pub(super) pending: Pending<T>,
    pub(super) since: TimestampMs,
}

/// The cursors of one open partition and their consumers. `T` names who waits for an answer.
#[derive(Debug)]
pub(crate) struct CursorCore<T> {
    /// Index of the partition in its topic.
    pub(super) index: u32,
    /// With all that was taken, confirmed or not.
    pub(super) accepted: Cursors,
    /// Number of the last confirmed delta.
    pub(super) applied: u64,
    pub(super) seats: BTreeMap<SubscriptionId, Seat>,
    pub(super) consumers: BTreeMap<ConsumerId, SubscriptionId>,
    next_consumer: u64,
    pub(super) gathering: Pending<T>,
    /// When the oldest of what is gathered came.
    pub(super) gathering_since: Option<TimestampMs>,
    /// Somebody waits for it who came alone.
    pub(super) urgent: bool,
    pub(super) in_flight: Option<InFlight<T>>,
    /// Why the last delta could not be written, and not before when the next try is due.
    pub(super) trouble: Option<(Fault, TimestampMs)>,
    /// Deltas in a row that could not be written.
    pub(super) failures: u32,
    pub(super) kept: Kept,
    pub(super) answers: Vec<(T, Result<CursorAnswer, Fault>)>,
    pub(super) mutation: Mutation,
    /// Cursors that a dispatcher has: it alone changes them.
    pub(super) shared: BTreeSet<SubscriptionId>,
    /// Their deltas that are durable now.
    pub(super) shared_written: Vec<(SubscriptionId, u64)>,
    /// The last views of consumers that are none any more.
    ended: Vec<(ConsumerId, LaneView)>,
}

impl<T> CursorCore<T> {
    /// The cursors of a partition after its take-over.
    pub(crate) fn new(index: u32, confirmed: Cursors, applied: u64) -> Self {
        Self {
            index,
            accepted: confirmed,
            applied,
            seats: BTreeMap::new(),
            consumers: BTreeMap::new(),
            next_consumer: 1,
            gathering: Pending::default(),
            gathering_since: None,
            urgent: false,
            in_flight: None,
            trouble: None,
            failures: 0,
            kept: Kept::default(),
            answers: Vec::new(),
            mutation: Mutation::default(),
            shared: BTreeSet::new(),
            shared_written: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// The same with a rule switched off.
    pub(crate) fn mutated(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }.after_take_over()
    }

    /// Who is to be answered.
    pub(crate) fn take_answers(&mut self) -> Vec<(T, Result<CursorAnswer, Fault>)> {
        std::mem::take(&mut self.answers)
    }

    /// The views that changed since the last call. A view that ended is the last one of its consumer.
    pub(crate) fn take_views(&mut self) -> Vec<(ConsumerId, LaneView)> {
        let mut views = std::mem::take(&mut self.ended);
        for seat in self.seats.values_mut() {
            for (id, consumer) in &mut seat.consumers {
                if std::mem::take(&mut consumer.dirty) {
                    views.push((*id, consumer.view.clone()));
                }
            }
        }
        views
    }

    /// Makes a cursor; one that exists stays as it is. The answer comes when it is durable, so that its start is resolved once,
    /// before the first dispatch (serving.md B2.12). Its name does not matter: what comes late touches no other cursor.
    pub(crate) fn make(&mut self, id: SubscriptionId, new: NewCursor, ticket: T, now: TimestampMs) {
        if self.mutation.is(Mutant::NamesakeDropped) {
            self.drop_namesakes(id, &new.name, now);
        }
        let new = NewCursor {
            base: new.base.max(self.kept.from()),
            ..new
        };
        if self.accepted.get(id).is_none() {
            if self.accepted.len() >= CURSORS_MAX {
                let why = format!(
                    "the partition has {CURSORS_MAX} subscriptions, and no room for more; delete some with `hulse subscriptions delete`"
                );
                self.answers
                    .push((ticket, Err(Fault::new(Reason::Overloaded, why))));
                return;
            }
            self.accepted.apply_change(id, &Change::Made(new.clone()));
            self.gathering.make(id, new);
        }
        self.settle(id, ticket, CursorAnswer::Made, now);
    }

    /// Whether the cursor keeps the log.
    pub(crate) fn hold(&mut self, id: SubscriptionId, hold: bool, ticket: T, now: TimestampMs) {
        if self
            .accepted
            .get(id)
            .is_some_and(|cursor| cursor.hold != hold)
        {
            self.accepted.apply_change(id, &Change::Hold(hold));
            self.gathering.hold(id, hold);
        }
        self.settle(id, ticket, CursorAnswer::Held, now);
    }

    /// Removes a cursor and ends its consumers; answers when that is durable. Without `force` not while there are consumers.
    pub(crate) fn remove(&mut self, id: SubscriptionId, force: bool, ticket: T, now: TimestampMs) {
        let attached = self.seats.get(&id).map_or(0, |seat| seat.consumers.len());
        if attached > 0 && !force {
            self.answers.push((ticket, Err(self::attached(attached))));
            return;
        }
        self.drop_cursor(id, now);
        self.settle(id, ticket, CursorAnswer::Removed, now);
    }

    pub(super) fn drop_cursor(&mut self, id: SubscriptionId, now: TimestampMs) {
        if self.accepted.get(id).is_none() {
            return;
        }
        let why = deleted();
        if let Some(seat) = self.seats.get(&id) {
            let all: Vec<_> = seat.consumers.keys().copied().collect();
            for consumer in all {
                self.end(consumer, why.clone(), now);
            }
        }
        self.shared.remove(&id);
        self.accepted.apply_change(id, &Change::Removed);
        self.gathering.remove(id);
        self.gathered(now, true);
    }

    /// A consumer comes. The caller has made the cursor before.
    ///
    /// # Errors
    /// `CONSUMER_EXISTS`, `SUBSCRIPTION_NOT_FOUND`, `OVERLOADED`.
    pub(crate) fn attach(
        &mut self,
        new: NewConsumer,
        now: TimestampMs,
    ) -> Result<(ConsumerId, LaneView), Fault> {
        let id = new.subscription;
        if self.durable(id).is_none() {
            let why = "the subscription has no cursor on this partition; attach again to make it";
            return Err(Fault::new(Reason::SubscriptionNotFound, why));
        }
        self.make_way(&new, now)?;
        let moving = self.is_moving(id);
        let trouble = self.trouble.as_ref().map(|(fault, _)| fault.clone());
        let consumer = ConsumerId(self.next_consumer);
        self.next_consumer += 1;
        let seat = self.seats.entry(id).or_insert_with(|| {
            let mut seat = Seat::default();
            if moving {
                seat.begin_move(false, false);
            }
            seat
        });
        let view = LaneView {
            turn: 0,
            stand: Stand::Standby,
            released: 0,
            passed: 0,
            crowded: false,
            acks_wait: trouble,
            ended: None,
        };
        let entry = Consumer {
            name: new.name,
            client: new.client,
            priority: new.priority,
            attached_at: now,
            began: 0,
            sent_to: Offset(0),
            sent_records: 0,
            ahead_to: Offset(0),
            handed: new.handed,
            acks_to: Offset(0),
            began_epoch: 0,
            seek_id: 0,
            view,
            dirty: true,
        };
        seat.insert(consumer, entry);
        self.consumers.insert(consumer, id);
        self.choose(id, now);
        self.look_crowded(id);
        let seat = self.seats.get_mut(&id);
        let entry = seat.and_then(|seat| seat.consumers.get_mut(&consumer));
        let entry = entry.expect("it was inserted above");
        entry.dirty = false;
        Ok((consumer, entry.view.clone()))
    }

    fn make_way(&mut self, new: &NewConsumer, now: TimestampMs) -> Result<(), Fault> {
        let Some(seat) = self.seats.get(&new.subscription) else {
            return Ok(());
        };
        if seat.consumers.len() >= CONSUMERS_MAX {
            let why = format!(
                "{CONSUMERS_MAX} consumers are attached; close some, or use another subscription"
            );
            return Err(Fault::new(Reason::Overloaded, why));
        }
        if new.kind != SubscriptionKind::Exclusive {
            return Ok(());
        }
        let Some((other, consumer)) = seat.consumers.iter().next() else {
            return Ok(());
        };
        if !new.takeover {
            let why = format!(
                "consumer {:?} is attached, and the subscription is exclusive; stop it, or take over",
                consumer.name
            );
            return Err(Fault::new(Reason::ConsumerExists, why).with("consumer", &consumer.name));
        }
        let (other, name) = (*other, new.name.clone());
        let why = Fault::new(
            Reason::ConsumerFenced,
            format!("consumer {name:?} took the subscription over; acks of this one are void"),
        );
        self.end(other, why, now);
        Ok(())
    }

    /// A consumer goes, by itself or because its connection is gone.
    pub(crate) fn detach(&mut self, consumer: ConsumerId, now: TimestampMs) {
        let Some(id) = self.consumers.remove(&consumer) else {
            return;
        };
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.remove(consumer);
            if seat.consumers.is_empty() {
                self.seats.remove(&id);
            }
        }
        self.choose(id, now);
    }

    /// A consumer is none any more; its lane hears why.
    fn end(&mut self, consumer: ConsumerId, why: Fault, now: TimestampMs) {
        let told = !self.mutation.is(Mutant::FormerNotTold);
        let seat = self.consumers.get(&consumer).filter(|_| told);
        let seat = seat.and_then(|id| self.seats.get_mut(id));
        if let Some(entry) = seat.and_then(|seat| seat.consumers.get_mut(&consumer)) {
            entry.view.ended = Some(why);
            self.ended.push((consumer, entry.view.clone()));
        }
        self.detach(consumer, now);
    }

    /// The active consumer of a cursor that yields has nothing more to ack.
    pub(crate) fn yielded(&mut self, consumer: ConsumerId, now: TimestampMs) {
        let Some(id) = self.consumers.get(&consumer).copied() else {
            return;
        };
        if let Some(seat) = self.seats.get_mut(&id)
            && seat.yielded(consumer)
        {
            self.choose(id, now);
        }
    }

    /// Time passed: graces end.
    pub(crate) fn tick(&mut self, now: TimestampMs) {
        let over: Vec<_> = self
            .seats
            .iter_mut()
            .filter_map(|(id, seat)| seat.grace_over(now).then_some(*id))
            .collect();
        for id in over {
            self.choose(id, now);
        }
        self.note_slow(now);
    }

    /// When a grace ends next.
    pub(crate) fn next_grace(&self) -> Option<TimestampMs> {
        self.seats.values().filter_map(Seat::yields_at).min()
    }

    fn choose(&mut self, id: SubscriptionId, now: TimestampMs) {
        let grace = Grace {
            grace: SWITCH_GRACE,
            at: now + SWITCH_GRACE.as_millis() as TimestampMs,
        };
        if let (Some(seat), Some(cursor)) = (self.seats.get_mut(&id), self.accepted.get(id)) {
            seat.choose(self.index, cursor, grace);
        }
    }

    /// Moves a cursor: a seek, a skip, a clear. What was acked for where it was before is void. Answers when it is durable; moves
    /// that come faster than deltas are one, to the last place.
    pub(crate) fn move_to(&mut self, command: MoveCommand, ticket: T, now: TimestampMs) {
        let id = command.subscription;
        let Some(cursor) = self.accepted.get(id) else {
            let why = "the subscription has no cursor on this partition; attach again to make it";
            let fault = Fault::new(Reason::SubscriptionNotFound, why);
            self.answers.push((ticket, Err(fault)));
            return;
        };
        let (old_base, state_epoch) = (cursor.base, cursor.state_epoch + 1);
        if let Some((consumer, seek_id)) = command.by {
            let seat = self.seats.get_mut(&id);
            let active = seat.filter(|seat| seat.active() == Some(consumer));
            match active.and_then(Seat::active_mut) {
                Some(active) => active.seek_id = seek_id,
                None => {
                    let why = "this consumer is not the active one, which alone may seek";
                    let fault = Fault::new(Reason::NotOwned, why);
                    self.answers.push((ticket, Err(fault)));
                    return;
                }
            }
        }
        let CursorMove { mut to, keep_acked } = command.goal;
        // A trim may have come since the caller looked.
        to = to.max(self.kept.from());
        let goal = CursorMove { to, keep_acked };
        if command.evicts {
            let records = cursor.backlog(self.kept.from(), to);
            self.accepted.apply_change(id, &Change::Evicted(records));
            self.gathering.evict(id, records);
        }
        let moved = Change::Moved {
            at: now,
            base: to,
            state_epoch,
            keep_acked,
        };
        self.accepted.apply_change(id, &moved);
        self.gathering.move_to(id, goal, state_epoch);
        let new_base = self.accepted.get(id).map_or(to, |cursor| cursor.base);
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.begin_move(command.evicts, keep_acked);
        }
        self.look_crowded(id);
        let answer = CursorAnswer::Moved(Moved {
            old_base,
            new_base,
            state_epoch,
        });
        self.settle(id, ticket, answer, now);
    }

    /// Offsets without a record that could be delivered: lost, compacted, or a marker.
    pub(crate) fn skipped(&mut self, consumer: ConsumerId, range: OffsetRange, now: TimestampMs) {
        let id = self.consumers.get(&consumer).copied();
        let seat = id.and_then(|id| self.seats.get(&id));
        if let (Some(id), true) = (id, seat.is_some_and(|seat| seat.active() == Some(consumer))) {
            self.pass_over(id, range, now);
        }
    }

    pub(super) fn pass_over(&mut self, id: SubscriptionId, range: OffsetRange, now: TimestampMs) {
        let Some(cursor) = self.accepted.get_mut(id) else {
            return;
        };
        if range.first <= cursor.base {
            if cursor.ack_to(range.end) > 0 {
                self.gathering.ack_to(id, range.end);
                self.gathered(now, false);
            }
        } else if cursor.ack(range) > 0 {
            self.gathering.ack(id, range);
            self.gathered(now, false);
        }
        self.look_crowded(id);
        self.recount(id);
    }

    /// An answer that comes when all that was taken of this cursor is durable.
    pub(crate) fn settle(
        &mut self,
        id: SubscriptionId,
        ticket: T,
        answer: CursorAnswer,
        now: TimestampMs,
    ) {
        if self.mutation.is(Mutant::ReceiptBeforeDelta) {
            self.answers.push((ticket, Ok(answer)));
        } else if self.gathering.has(id) {
            let urgent = !matches!(answer, CursorAnswer::Acked(_));
            self.gathering.wait(ticket, answer);
            self.gathered(now, urgent);
        } else if let Some(flight) = self
            .in_flight
            .as_mut()
            .filter(|flight| flight.pending.has(id))
        {
            flight.pending.wait(ticket, answer);
        } else {
            self.answers.push((ticket, Ok(answer)));
        }
    }

    pub(super) fn gathered(&mut self, now: TimestampMs, urgent: bool) {
        self.gathering_since.get_or_insert(now);
        self.urgent |= urgent;
    }

    fn is_moving(&self, id: SubscriptionId) -> bool {
        let flight = self.in_flight.as_ref();
        self.gathering.has_moved(id) || flight.is_some_and(|flight| flight.pending.has_moved(id))
    }

    /// A delta that is to be written now.
    pub(crate) fn delta(&self, at: TimestampMs) -> Option<(u64, CursorDelta)> {
        let flight = self.in_flight.as_ref()?;
        Some((self.applied + 1, flight.pending.delta(at)))
    }
}

/// Consumers keep a subscription from being deleted.
pub(super) fn attached(consumers: usize) -> Fault {
    let why = format!("{consumers} consumers are attached; stop them, or delete with `--force`");
    Fault::new(Reason::PreconditionFailed, why)
}

/// The end of a subscription's consumers.
pub(super) fn deleted() -> Fault {
    let why = "the subscription was deleted, or deleted and made again";
    Fault::new(Reason::SubscriptionNotFound, why)
}
