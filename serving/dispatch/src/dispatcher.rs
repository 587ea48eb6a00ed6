//! The dispatcher of one cursor.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use crate::buffer::Buffer;
use crate::chance::Chance;
use crate::durable::QueueState;
use crate::effect::Effect;
use crate::facts::{SessionId, Skip};
use crate::letters::Letters;
use crate::marks::Marks;
use crate::pending::{Changes, InFlight};
use crate::policy::Policy;
use crate::queues::Queues;
use crate::range::OffsetRanges;
use crate::reading::Reads;
use crate::runs::{Run, Runs};
use crate::session::Session;
use crate::slots::SlotMap;

/// QUEUE or KEYED dispatch of one subscription on one partition, at the partition's owner.
#[derive(Debug)]
pub struct Dispatcher {
    pub(crate) policy: Policy,
    pub(crate) runs: Runs,
    /// Processed behind the window.
    pub(crate) ahead: OffsetRanges,
    /// Durable ones.
    pub(crate) marks: Marks,
    pub(crate) state_epoch: u32,
    /// KEYED: records that were passed over or moved away from while a consumer held them; by first and hold (B4.4).
    pub(crate) ghosts: BTreeMap<(u64, u32), Run>,
    /// Strict orders: records that later ones of their key have to wait for (B4.7).
    pub(crate) order: BTreeSet<(u16, u64)>,
    /// KEYED: until this write is durable it is not known what may go out.
    pub(crate) order_doubt: Option<u64>,
    pub(crate) holds: crate::holds::Holds,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) next_session: u32,
    /// KEYED.
    pub(crate) slots: Option<SlotMap>,
    /// Slots that something changed for.
    pub(crate) woken: Vec<u16>,
    /// Runs that are known by a stamp only may go, or one went.
    pub(crate) stamps_woken: bool,
    pub(crate) stamps_left: bool,
    pub(crate) queues: Queues,
    /// Records that could go out now.
    pub(crate) waiting: u64,
    pub(crate) buffer: Buffer,
    pub(crate) reads: Reads,
    pub(crate) letters: Letters,
    pub(crate) gathering: Changes,
    pub(crate) in_flight: Option<InFlight>,
    pub(crate) next_write: u64,
    /// Writes in a row that failed, and when the next is tried.
    pub(crate) write_failures: u32,
    pub(crate) write_not_before: TimestampMs,
    /// Nothing at or above it may be delivered (B3.1).
    pub(crate) readable: u64,
    /// Below it records may be held by consumers of the owner before (B3.14).
    pub(crate) old_end: u64,
    /// Until when they wait; `None`: no consumer came yet, or it is over (`old_end` is 0 then).
    pub(crate) grace_until: Option<TimestampMs>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) turn: u64,
    /// Suspects wait for a consumer that holds nothing since then (B3.9).
    pub(crate) suspects_since: Option<TimestampMs>,
    /// Nothing is delivered before.
    pub(crate) paused_until: TimestampMs,
    /// The last pump.
    pub(crate) pumped_at: TimestampMs,
    pub(crate) chance: Chance,
    pub(crate) counts: Counts,
}

/// What happened so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) skipped: BTreeMap<Skip, u64>,
    pub(crate) acked: u64,
    pub(crate) delivered: u64,
    pub(crate) failed: u64,
    pub(crate) letters: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_sent: u64,
}

impl Dispatcher {
    /// The dispatcher of a cursor as it is durable: a new one, or after a take-over. `readable`: the last stable offset, or the high
    /// watermark if the subscription reads uncommitted (B3.1). `seed` makes the jitter of back-offs.
    pub fn open(policy: Policy, state: QueueState, readable: Offset, seed: u64) -> Self {
        let ends = state.marks.iter().map(|(range, _)| range.end);
        let old_end = ends.chain(state.acked.last_end()).max();
        let mut dispatcher = Self {
            slots: policy.is_keyed().then(|| SlotMap::new(policy.named_slots)),
            policy,
            runs: Runs::new(state.base.0),
            ahead: state.acked,
            marks: state.marks,
            state_epoch: state.state_epoch,
            ghosts: BTreeMap::new(),
            order: BTreeSet::new(),
            order_doubt: None,
            holds: crate::holds::Holds::default(),
            sessions: BTreeMap::new(),
            next_session: 1,
            woken: Vec::new(),
            stamps_woken: false,
            stamps_left: false,
            queues: Queues::default(),
            waiting: 0,
            buffer: Buffer::default(),
            reads: Reads::default(),
            letters: Letters::new(state.letters),
            gathering: Changes {
                state_epoch: state.state_epoch,
                ..Changes::default()
            },
            in_flight: None,
            next_write: 1,
            write_failures: 0,
            write_not_before: TimestampMs::MIN,
            readable: readable.0,
            old_end: old_end.map_or(0, |end| end.0),
            grace_until: None,
            effects: Vec::new(),
            turn: 0,
            suspects_since: None,
            paused_until: TimestampMs::MIN,
            pumped_at: TimestampMs::MIN,
            chance: Chance::new(seed),
            counts: Counts::default(),
        };
        dispatcher.resume_letters();
        dispatcher
    }

    /// More may be delivered; never less.
    pub fn readable(&mut self, end: Offset) {
        self.readable = self.readable.max(end.0);
    }

    /// Does everything that may be done now. Called after the events of a moment, however many.
    pub fn pump(&mut self, now: TimestampMs) {
        self.pumped_at = now;
        self.tick(now);
        self.wake();
        self.number_letters(now);
        let stopped = self.is_moving() || self.is_in_doubt(now) || self.is_paused(now);
        if !stopped && self.order_doubt.is_none() {
            self.pass(now);
            self.want_tail(now);
        }
        self.write(now);
        self.look_blocked(now);
    }

    /// What is to be done, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// When [`Dispatcher::pump`] is to be called again, at the latest; `None`: when something happens.
    pub fn next_deadline(&self) -> Option<TimestampMs> {
        let slots = self.slots.as_ref();
        let grace = self.grace_until.filter(|_| self.old_end > 0);
        [
            self.holds.next_lock(),
            self.queues.next_due(),
            grace,
            slots.and_then(SlotMap::next_leave),
            self.letters.next_retry(),
            self.write_due(),
            self.doubt_at(),
            self.next_blocked(),
            self.next_alone(),
            self.pause_ends(),
            self.reads.next_retry(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
