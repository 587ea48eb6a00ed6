//! The state machine without a task: its chain is a list, its lanes are a map.

use std::collections::BTreeMap;

use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, SubscriptionId};
use uuid::Uuid;

use crate::partition::cursors::core::{CursorCore, Handed, NewConsumer};
use crate::partition::cursors::lane::{
    AckCommand, AckKind, AckStatus, Acked, Begin, ConsumerId, CursorAnswer, CursorMove, LaneView,
    MoveCommand, SentTo, Stand,
};
use crate::state::{Cursors, MetaState, NewCursor, OffsetRange};
use crate::subscriptions::SubscriptionKind;

pub(super) const S: SubscriptionId = SubscriptionId(Uuid::from_u128(1));
/// The machine, what is durable, and what lanes see.
pub(super) struct World {
    pub(super) core: CursorCore<u32>,
    pub(super) durable: Cursors,
    pub(super) views: BTreeMap<ConsumerId, LaneView>,
    pub(super) answers: BTreeMap<u32, Result<CursorAnswer, Fault>>,
    pub(super) now: i64,
    pub(super) tickets: u32,
    /// How far each lane has said that it sent.
    pub(super) lanes: BTreeMap<ConsumerId, SentTo>,
    /// What the next one that attaches was given before.
    pub(super) handed: Option<Handed>,
}

impl World {
    pub(super) fn new(index: u32) -> Self {
        Self {
            core: CursorCore::new(index, Cursors::default(), 0),
            durable: Cursors::default(),
            views: BTreeMap::new(),
            answers: BTreeMap::new(),
            now: 1_000,
            tickets: 0,
            lanes: BTreeMap::new(),
            handed: None,
        }
    }

    pub(super) fn ticket(&mut self) -> u32 {
        self.tickets += 1;
        self.tickets
    }

    pub(super) fn take(&mut self) {
        self.views.extend(self.core.take_views());
        self.answers.extend(self.core.take_answers());
    }

    pub(super) fn make(&mut self, id: SubscriptionId, name: &str, base: u64) -> u32 {
        let new = NewCursor {
            name: name.into(),
            hold: true,
            base: Offset(base),
            at: self.now,
        };
        let ticket = self.ticket();
        self.core.make(id, new, ticket, self.now);
        self.take();
        ticket
    }

    /// What is due becomes durable.
    pub(super) fn write(&mut self) -> bool {
        self.now += 10;
        if !self.core.begin_write(self.now) {
            return false;
        }
        self.written();
        true
    }

    /// The delta that is on its way.
    pub(super) fn written(&mut self) {
        let (_, delta) = self.core.delta(self.now).unwrap();
        // As the chain has it.
        let bytes = Cursors::encode_delta(&delta);
        self.durable.apply(&Cursors::decode_delta(&bytes).unwrap());
        self.core.written(self.now);
        self.take();
    }

    pub(super) fn attach_as(
        &mut self,
        kind: SubscriptionKind,
        name: &str,
        priority: i32,
        takeover: bool,
    ) -> Result<ConsumerId, Fault> {
        let new = NewConsumer {
            subscription: S,
            kind,
            name: name.into(),
            client: "c".into(),
            priority,
            takeover,
            handed: self.handed.take(),
        };
        let (consumer, view) = self.core.attach(new, self.now)?;
        self.views.insert(consumer, view);
        self.take();
        Ok(consumer)
    }

    pub(super) fn exclusive(&mut self, name: &str) -> ConsumerId {
        self.attach_as(SubscriptionKind::Exclusive, name, 0, false)
            .unwrap()
    }

    pub(super) fn failover(&mut self, name: &str, priority: i32) -> ConsumerId {
        self.attach_as(SubscriptionKind::Failover, name, priority, false)
            .unwrap()
    }

    pub(super) fn begin(&self, consumer: ConsumerId) -> Option<Begin> {
        match &self.views[&consumer].stand {
            Stand::Active(begin) => Some(begin.clone()),
            _ => None,
        }
    }

    pub(super) fn sent(&mut self, consumer: ConsumerId, to: u64) {
        let turn = self.views[&consumer].turn;
        let to = Offset(to);
        self.lanes.insert(consumer, SentTo { turn, to });
        // All of them, from where it began.
        let base = self.begin(consumer).map_or(0, |begin| begin.base.0);
        self.core
            .sent(consumer, turn, to, to.0.saturating_sub(base));
    }

    pub(super) fn ack(
        &mut self,
        consumer: ConsumerId,
        kind: AckKind,
        ranges: &[(u64, u64)],
    ) -> u32 {
        let state_epoch = self.begin(consumer).map_or(0, |begin| begin.state_epoch);
        self.ack_of(consumer, state_epoch, kind, ranges)
    }

    pub(super) fn ack_of(
        &mut self,
        consumer: ConsumerId,
        state_epoch: u32,
        kind: AckKind,
        ranges: &[(u64, u64)],
    ) -> u32 {
        let ranges = ranges.iter().map(|(first, end)| OffsetRange {
            first: Offset(*first),
            end: Offset(*end),
        });
        let command = AckCommand {
            consumer,
            sent: self.lanes.get(&consumer).copied().unwrap_or_default(),
            state_epoch,
            kind,
            ranges: ranges.collect(),
        };
        let ticket = self.ticket();
        self.core.ack(&command, ticket, self.now);
        self.take();
        ticket
    }

    pub(super) fn statuses(&self, ticket: u32) -> Vec<AckStatus> {
        match self.answers.get(&ticket) {
            Some(Ok(CursorAnswer::Acked(Acked { statuses }))) => statuses.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn seek(&mut self, to: u64, by: Option<(ConsumerId, u64)>) -> u32 {
        let command = MoveCommand {
            subscription: S,
            goal: CursorMove {
                to: Offset(to),
                keep_acked: false,
            },
            by,
            evicts: false,
        };
        let ticket = self.ticket();
        self.core.move_to(command, ticket, self.now);
        self.take();
        ticket
    }

    pub(super) fn base(&self) -> u64 {
        self.durable.get(S).unwrap().base.0
    }
}

/// A world with an exclusive consumer of a cursor at 10.
pub(super) fn exclusive() -> (World, ConsumerId) {
    let mut world = World::new(0);
    world.make(S, "a/b/s", 10);
    assert!(world.write());
    let consumer = world.exclusive("one");
    (world, consumer)
}
