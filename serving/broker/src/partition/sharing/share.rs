//! One cursor whose records are shared out.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::FuturesUnordered;
use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::time::TimestampMs;
use serving_dispatch::{
    Answer, AttachFault, Dispatcher, Effect, Leave, LetterWanted, NewSession, OffsetRange, Policy,
    QueueState, SessionId, Skip, Status, Unit,
};
use tokio::sync::mpsc;

use super::door::{Begun, NewSharer, Said, ShareDoor, ShareItem, SharerId};
use super::letters::{Address, LetterEnd, Outgoing};
use super::reading::{Kept, ReadEnd};
use crate::partition::cursors::{
    AckStatus, Acked, ConsumerView, CursorAnswer, CursorTicket, CursorView, Moved,
};
use crate::partition::task::Boxed;

/// Answers of one cursor that wait to become durable; more are refused.
const WAITING_MAX: usize = 100_000;

/// A consumer.
#[derive(Debug)]
struct Lane {
    items: mpsc::UnboundedSender<ShareItem>,
    name: Arc<str>,
    client: Arc<str>,
    priority: i32,
    attached_at: TimestampMs,
}

/// Who waits for a ticket of the dispatcher.
enum Waiting {
    Said(CursorTicket),
    Move(CursorTicket),
    /// And how many records it is about.
    Count(CursorTicket, u64),
}

/// One cursor.
pub(super) struct Share {
    id: SubscriptionId,
    pub(super) dispatcher: Dispatcher,
    lock_ms: TimestampMs,
    lanes: BTreeMap<SessionId, Lane>,
    /// Batches that the dispatcher wants, by their first offsets.
    kept: BTreeMap<u64, Kept>,
    waiting: BTreeMap<u64, Waiting>,
    /// Where dead letters go.
    address: Option<Address>,
    outgoing: Outgoing,
    next_ticket: u64,
    /// Something happened since it was pumped.
    pub(super) touched: bool,
    /// When it is to be pumped without that.
    pub(super) due: Option<TimestampMs>,
}

impl Share {
    pub(super) fn open(
        id: SubscriptionId,
        (policy, address): (Policy, Option<Address>),
        state: QueueState,
        readable: Offset,
    ) -> Self {
        // The chance of back-offs is one and the same for one subscription, and differs between them.
        let seed = id.0.as_u128() as u64;
        Self {
            id,
            lock_ms: policy.lock_ms,
            dispatcher: Dispatcher::open(policy, state, readable, seed),
            lanes: BTreeMap::new(),
            kept: BTreeMap::new(),
            waiting: BTreeMap::new(),
            address,
            outgoing: Outgoing::default(),
            next_ticket: 1,
            touched: true,
            due: None,
        }
    }

    /// Consumers that are attached.
    pub(super) fn sharers(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn attach(&mut self, new: &NewSharer, now: TimestampMs) -> Result<ShareDoor, Fault> {
        let session = NewSession {
            name: new.name.clone(),
            priority: new.priority,
            weight: 1,
            slots: new.slots.clone(),
        };
        let attached = self.dispatcher.attach(&session, new.handed, now);
        let session = attached.map_err(|fault| refused(&fault))?;
        let (items, receiver) = mpsc::unbounded_channel();
        let lane = Lane {
            items,
            name: new.name.clone(),
            client: new.client.clone(),
            priority: new.priority,
            attached_at: now,
        };
        self.lanes.insert(session, lane);
        self.touched = true;
        let (base, state_epoch) = self.dispatcher.stands();
        Ok(ShareDoor {
            sharer: SharerId {
                subscription: self.id,
                session,
            },
            items: receiver,
            begun: Begun {
                base,
                state_epoch,
                lock_ms: self.lock_ms,
            },
        })
    }

    pub(super) fn leave(&mut self, session: SessionId, how: Leave, now: TimestampMs) {
        if self.lanes.remove(&session).is_some() {
            self.dispatcher.detach(session, how, now);
            self.touched = true;
        }
    }

    pub(super) fn grant(&mut self, session: SessionId, records: u64, bytes: u64) {
        self.dispatcher.grant(session, records, bytes);
        self.touched = true;
    }

    pub(super) fn say(
        &mut self,
        session: SessionId,
        said: Said,
        ticket: CursorTicket,
        now: TimestampMs,
    ) {
        if !self.lanes.contains_key(&session) {
            // Who asked may have gone.
            let _ = ticket.send(Err(super::door::not_attached()));
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            let why = "too many acks of the subscription wait to become durable; send again later";
            let _ = ticket.send(Err(Fault::new(Reason::Overloaded, why)));
            return;
        }
        let answer = Answer {
            session,
            ticket: self.wait(Waiting::Said(ticket)),
            state_epoch: said.state_epoch,
            ranges: said.ranges,
            verdict: said.verdict,
            before: said.before,
        };
        self.dispatcher.answer(&answer, now);
        self.touched = true;
    }

    pub(super) fn seek(&mut self, to: Offset, ticket: CursorTicket, now: TimestampMs) {
        let number = self.wait(Waiting::Move(ticket));
        self.outgoing.forget();
        self.dispatcher.seek(to, number, now);
        self.touched = true;
    }

    /// Records are passed over; answers when that is durable.
    pub(super) fn skip(&mut self, to: Offset, why: Skip, ticket: CursorTicket, now: TimestampMs) {
        let (old_base, _) = self.dispatcher.stands();
        let over = OffsetRange {
            first: Offset(0),
            end: to,
        };
        self.dispatcher.skip(over, why, now);
        let number = self.wait(Waiting::Move(ticket));
        self.dispatcher.settle(old_base, number);
        self.touched = true;
    }

    /// Records below `to`, about so many, lived for too long; answers when that is durable.
    pub(super) fn expire(
        &mut self,
        to: Offset,
        records: u64,
        ticket: CursorTicket,
        now: TimestampMs,
    ) {
        let (old_base, _) = self.dispatcher.stands();
        self.dispatcher
            .skip(OffsetRange::new(0, to.0), Skip::Expired, now);
        let number = self.wait(Waiting::Count(ticket, records));
        self.dispatcher.settle(old_base, number);
        self.touched = true;
    }

    /// Parked records are tried anew; answers how many when that is durable.
    pub(super) fn redrive(&mut self, dry_run: bool, ticket: CursorTicket, now: TimestampMs) {
        let all = OffsetRange::new(0, u64::MAX);
        let records = self.dispatcher.parked(all);
        let (old_base, _) = self.dispatcher.stands();
        if !dry_run {
            self.dispatcher.redrive(all, now);
        }
        let number = self.wait(Waiting::Count(ticket, records));
        self.dispatcher.settle(old_base, number);
        self.touched = true;
    }

    /// Nothing is delivered before.
    pub(super) fn pause(&mut self, until: TimestampMs, now: TimestampMs) {
        self.dispatcher.pause_until(until, now);
        self.touched = true;
    }

    fn wait(&mut self, who: Waiting) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.insert(ticket, who);
        ticket
    }

    /// A read came to its end.
    pub(super) fn read_ended(&mut self, end: ReadEnd, now: TimestampMs) {
        self.touched = true;
        match end.result {
            Ok((done, kept)) => {
                self.kept.extend(kept);
                self.dispatcher.read_done(done, now);
            }
            Err(fault) => {
                tracing::debug!(subscription = %self.id.0, %fault, "records cannot be read now; it is tried again");
                self.dispatcher.read_failed(end.id, now);
            }
        }
    }

    /// Does what concerns consumers and bytes alone; answers the rest.
    pub(super) fn effect(&mut self, effect: Effect) -> Option<Effect> {
        match effect {
            Effect::Deliver(unit) => self.deliver(unit),
            Effect::Letter(letter) => self.outgoing.push(letter),
            Effect::Forget(batch) => drop(self.kept.remove(&batch.first.0)),
            Effect::Receipt {
                ticket, statuses, ..
            } => self.receipt(ticket, &statuses),
            Effect::Moved { ticket, old_base } => self.moved(ticket, old_base),
            Effect::Restart {
                session,
                state_epoch,
                base,
            } => self.tell(session, ShareItem::Restart { state_epoch, base }),
            Effect::Blocked {
                session,
                reason,
                over,
            } => self.tell(session, ShareItem::Blocked { reason, over }),
            other => return Some(other),
        }
        None
    }

    /// The next dead letter, if one may go out.
    pub(super) fn next_letter(&mut self) -> Option<(Address, LetterWanted)> {
        let address = self.address.clone()?;
        let letter = self.outgoing.next()?;
        Some((address, letter))
    }

    /// A dead letter came to its end.
    pub(super) fn letter_ended(&mut self, end: LetterEnd, now: TimestampMs) {
        self.touched = true;
        self.outgoing.ended(end.result.is_err());
        match end.result {
            Ok(()) => self.dispatcher.letter_done(end.state_epoch, end.seq, now),
            Err(fault) => {
                tracing::warn!(subscription = %self.id.0, %fault, "a dead letter cannot be copied now; it is tried again");
                self.dispatcher.letter_failed(end.state_epoch, end.seq, now);
            }
        }
    }

    fn tell(&self, session: SessionId, item: ShareItem) {
        if let Some(lane) = self.lanes.get(&session) {
            // A lane that is gone says so by the end of its tie.
            let _ = lane.items.send(item);
        }
    }

    fn deliver(&self, unit: Unit) {
        let Some(kept) = self.kept.get(&unit.batch.first.0) else {
            // Its lock brings it back.
            debug_assert!(false, "a batch that the dispatcher names is kept");
            return;
        };
        let item = ShareItem::Unit {
            batch: kept.bytes.clone(),
            append_time: kept.append_time,
            unit,
        };
        if let ShareItem::Unit { unit, .. } = &item {
            self.tell(unit.session, item);
        }
    }

    fn receipt(&mut self, ticket: u64, statuses: &[Status]) {
        if let Some(Waiting::Said(ticket)) = self.waiting.remove(&ticket) {
            let statuses = statuses.iter().map(|status| match status {
                Status::Ok => AckStatus::Ok,
                Status::Stale => AckStatus::Stale,
                Status::NotOwned => AckStatus::NotOwned,
                Status::Invalid => AckStatus::Invalid,
            });
            let acked = Acked {
                statuses: statuses.collect(),
            };
            let _ = ticket.send(Ok(CursorAnswer::Acked(acked)));
        }
    }

    fn moved(&mut self, ticket: u64, old_base: Offset) {
        let waiting = self.waiting.remove(&ticket);
        if let Some(Waiting::Count(ticket, records)) = waiting {
            let _ = ticket.send(Ok(CursorAnswer::Counted(records)));
        } else if let Some(Waiting::Move(ticket)) = waiting {
            let (new_base, state_epoch) = self.dispatcher.stands();
            let moved = Moved {
                old_base,
                new_base,
                state_epoch,
            };
            let _ = ticket.send(Ok(CursorAnswer::Moved(moved)));
        }
    }

    /// The cursor, or the partition, is no more: whoever waits hears why.
    pub(super) fn end(self, why: &Fault, tell: bool) {
        let unknown = Fault {
            fate: Fate::Unknown,
            ..why.clone()
        };
        for waiting in self.waiting.into_values() {
            let (Waiting::Said(ticket) | Waiting::Move(ticket) | Waiting::Count(ticket, _)) =
                waiting;
            let _ = ticket.send(Err(unknown.clone()));
        }
        for lane in self.lanes.into_values().filter(|_| tell) {
            let _ = lane.items.send(ShareItem::Ended(why.clone()));
        }
    }

    /// What people see.
    fn view(&self, view: &mut CursorView, now: TimestampMs) {
        let stats = self.dispatcher.stats_at(now);
        let session = |id: SessionId| stats.sessions.iter().find(|it| it.session == id);
        let consumers = self.lanes.iter().map(|(id, lane)| ConsumerView {
            name: lane.name.clone(),
            client: lane.client.clone(),
            priority: lane.priority,
            active: true,
            attached_at: lane.attached_at,
            unacked: session(*id).map_or(0, |it| it.unacked),
            sent_to: stats.window_end,
            silent_ms: session(*id).map_or(0, |it| it.silent_ms),
            blocked: session(*id).and_then(|it| it.blocked),
        });
        view.consumers = consumers.collect();
        view.sharing = Some(stats);
    }
}

fn refused(fault: &AttachFault) -> Fault {
    let reason = match fault {
        AttachFault::Full => Reason::Overloaded,
        AttachFault::SlotsTaken { .. } => Reason::PreconditionFailed,
        AttachFault::NoSlots { .. } => Reason::InvalidRequest,
    };
    Fault::new(reason, fault.to_string())
}

/// Something that a dispatcher asked for is done.
pub(crate) enum ShareEnd {
    Read(ReadEnd),
    Letter(SubscriptionId, LetterEnd),
}

/// All of a partition.
#[derive(Default)]
pub(crate) struct Shares {
    pub(super) all: BTreeMap<SubscriptionId, Share>,
    /// Reads and dead letters under way.
    pub(crate) work: FuturesUnordered<Boxed<ShareEnd>>,
    /// The end of the log that they know.
    pub(super) readable: Offset,
}

impl Shares {
    /// Nothing is read, and nothing is due.
    pub(crate) fn is_idle(&self) -> bool {
        self.work.is_empty()
            && self
                .all
                .values()
                .all(|share| !share.touched && share.due.is_none())
    }

    /// When one is to be looked at next.
    pub(crate) fn next_due(&self) -> Option<TimestampMs> {
        self.all.values().filter_map(|share| share.due).min()
    }

    /// Consumers of one that are attached.
    pub(crate) fn sharers(&self, id: SubscriptionId) -> usize {
        self.all.get(&id).map_or(0, Share::sharers)
    }

    /// Adds what they know to views of cursors.
    pub(crate) fn view(&self, views: &mut [CursorView], now: TimestampMs) {
        for view in views {
            if let Some(share) = self.all.get(&view.subscription) {
                share.view(view, now);
            }
        }
    }

    pub(super) fn get(&mut self, id: SubscriptionId) -> Option<&mut Share> {
        self.all.get_mut(&id)
    }
}
