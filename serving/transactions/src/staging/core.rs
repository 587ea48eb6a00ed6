//! One input: what it changes, what is answered, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::id::{Offset, PartitionId};
use hulse_proto::mutant::Mutation;
use hulse_proto::time::TimestampMs;

use super::change::{Change, Delta};
use super::due::DueIndex;
use super::item::{Item, ItemId, Kind, Status};
use super::publish::Lane;
use super::request::{Answer, Effect, Input, Request, RequestId};
use super::state::StagingState;
use crate::error::TxnError;
use crate::limits::{TICK_ITEMS_MAX, UNCONFIRMED_DELTAS_MAX};
use crate::producer::Producer;

/// Times in ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagingConfig {
    /// Between two checks of a half message. Default: 30 s.
    pub check_interval_ms: u32,
    /// What was decided is remembered so long. Default: a day.
    pub keep_ms: u32,
    /// The longest that a message may be scheduled ahead. Default: 30 days.
    pub schedule_max_ms: i64,
}

impl Default for StagingConfig {
    fn default() -> Self {
        Self {
            check_interval_ms: 30_000,
            keep_ms: 24 * 3600 * 1000,
            schedule_max_ms: 30 * 24 * 3600 * 1000,
        }
    }
}

/// A staging store.
///
/// Inputs come one at a time; the same inputs and times give the same effects. `now` is the owner's clock; one that falls is taken as one
/// that stands.
#[derive(Debug)]
pub struct Staging {
    pub(super) config: StagingConfig,
    pub(super) state: StagingState,
    pub(super) now: TimestampMs,
    pub(super) due: DueIndex,
    /// Groups that have sessions.
    pub(super) online: BTreeSet<Arc<str>>,
    /// Items of groups that have none, whose check was due.
    pub(super) parked: BTreeMap<Arc<str>, Vec<ItemId>>,
    /// Items whose check, or copy, is on its way.
    pub(super) asked: BTreeSet<ItemId>,
    pub(super) lanes: BTreeMap<PartitionId, Lane>,
    /// Targets that are sent to again then.
    pub(super) retries: BTreeSet<(TimestampMs, PartitionId)>,
    pub(super) renewing: BTreeSet<ItemId>,
    pub(super) room: Offset,
    pub(super) mutation: Mutation,
    pub(super) out: Vec<Effect>,
    publisher_wanted: bool,
    proposed: u64,
    confirmed: u64,
    /// The last delta of an item, while it is under way.
    marks: BTreeMap<ItemId, u64>,
    waiting: BTreeMap<u64, Vec<(RequestId, Answer)>>,
    /// What was replayed, until the first input.
    replayed: Vec<ItemId>,
    // Of the input that is being looked at.
    changes: Vec<Change>,
    touched: BTreeSet<ItemId>,
    /// By target and sequence, so that they leave in order.
    sends: BTreeSet<(PartitionId, i32, ItemId)>,
    answers: Vec<(Option<ItemId>, RequestId, Answer)>,
    appends: Vec<Effect>,
}

impl Staging {
    /// Begins with what was replayed; `applied` is the number of the last delta in it. What is under way goes on with the first input,
    /// which may be a [`Input::Tick`].
    pub fn new(
        config: StagingConfig,
        (state, applied): (StagingState, u64),
        now: TimestampMs,
    ) -> Self {
        Self {
            config,
            now,
            due: DueIndex::default(),
            online: BTreeSet::new(),
            parked: BTreeMap::new(),
            asked: BTreeSet::new(),
            lanes: BTreeMap::new(),
            retries: BTreeSet::new(),
            renewing: BTreeSet::new(),
            room: Offset(0),
            mutation: Mutation::default(),
            out: Vec::new(),
            publisher_wanted: false,
            proposed: applied,
            confirmed: applied,
            marks: BTreeMap::new(),
            waiting: BTreeMap::new(),
            replayed: state.iter().map(|(id, _)| *id).collect(),
            state,
            changes: Vec::new(),
            touched: BTreeSet::new(),
            sends: BTreeSet::new(),
            answers: Vec::new(),
            appends: Vec::new(),
        }
    }

    /// The same with a rule switched off.
    #[must_use]
    pub fn mutated(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    /// What is remembered, with all that was proposed.
    pub fn state(&self) -> &StagingState {
        &self.state
    }

    /// When [`Input::Tick`] is due; `None`: nothing waits for time. Earlier ones do no harm.
    pub fn due(&self) -> Option<TimestampMs> {
        let retry = self.retries.first().map(|(at, _)| *at);
        let replayed = (!self.replayed.is_empty()).then_some(self.now);
        let all = [self.due.next(), retry, replayed];
        all.into_iter().flatten().min()
    }

    /// Looks at one input.
    pub fn on_input(&mut self, now: TimestampMs, input: Input) -> Vec<Effect> {
        self.now = self.now.max(now);
        for id in std::mem::take(&mut self.replayed) {
            self.advance(id);
        }
        match input {
            Input::Request(id, request) => self.on_request(id, request),
            Input::Sessions { group, online } => self.on_sessions(group, online),
            Input::Checked { id, sent } => self.on_checked(id, sent),
            Input::Published(id, outcome) => self.on_published(id, outcome),
            Input::Copied { id, durable } => self.on_copied(id, durable),
            Input::Publisher(publisher) => {
                self.publisher_wanted = false;
                if self.state.publisher() == Producer::NONE {
                    self.propose(None, Change::Publisher(publisher));
                    self.pump_all();
                }
            }
            Input::TargetsGone(topics) => self.targets_gone(topics),
            Input::MakeRoom { below } => self.make_room(below),
            Input::Renewed { id, place } => self.on_renewed(id, place),
            Input::Confirmed(number) => self.on_confirmed(number),
            Input::Tick => self.on_tick(),
        }
        for (target, _, id) in std::mem::take(&mut self.sends) {
            self.send(target, id);
        }
        self.finish();
        let mut out = std::mem::take(&mut self.appends);
        out.append(&mut self.out);
        out
    }

    fn on_request(&mut self, request_id: RequestId, request: Request) {
        let busy = self.proposed - self.confirmed >= UNCONFIRMED_DELTAS_MAX;
        let (id, answer) = match request {
            request if busy => (None, request.refused(TxnError::Busy)),
            Request::Prepare {
                id,
                target,
                group,
                check_after_ms,
                checks_max,
            } => {
                let kind = Kind::Half { group, checks_max };
                let due = self.now.saturating_add(check_after_ms.into());
                (Some(id), Answer::Kept(self.keep(id, target, kind, due)))
            }
            Request::Schedule { id, target, due } => {
                let kept = self.keep(id, target, Kind::Scheduled, due);
                (Some(id), Answer::Kept(kept))
            }
            Request::Resolve { id, commit } => {
                (Some(id), Answer::Resolved(self.resolve(id, commit)))
            }
            Request::Resume { id } => (Some(id), Answer::Resumed(self.resume(id))),
            Request::Describe { id } => {
                let item = self.state.get(id).cloned().map(Box::new);
                let item = item.ok_or(TxnError::NoItem);
                (Some(id), Answer::Described(item))
            }
        };
        self.answers.push((id, request_id, answer));
    }

    fn on_confirmed(&mut self, number: u64) {
        self.confirmed = self.confirmed.max(number.min(self.proposed));
        let confirmed = self.confirmed;
        let durable = self.marks.iter().filter(|(_, mark)| **mark <= confirmed);
        let durable: Vec<ItemId> = durable.map(|(id, _)| *id).collect();
        for id in durable {
            self.marks.remove(&id);
            self.advance(id);
        }
        let later = self.waiting.split_off(&(confirmed + 1));
        let ready = std::mem::replace(&mut self.waiting, later);
        let ready = ready.into_values().flatten();
        self.out
            .extend(ready.map(|(id, answer)| Effect::Answer(id, answer)));
    }

    /// All that was said of an item is durable: what is next for it?
    fn advance(&mut self, id: ItemId) {
        let Some(item) = self.state.get(id) else {
            return;
        };
        let (due, target) = (item.due, item.target);
        match item.status {
            Status::Waiting | Status::Published | Status::RolledBack | Status::Discarded(_) => {
                self.due.insert(due, id);
            }
            Status::Committed => self.enqueue(target, id),
            Status::Publishing(sequence) => {
                self.sends.insert((target, sequence, id));
            }
            Status::Discarding(_) => self.copy(id),
        }
    }

    fn on_tick(&mut self) {
        self.retry_targets();
        self.renew();
        for _ in 0..TICK_ITEMS_MAX {
            let Some((_, id)) = self.due.take(self.now) else {
                return;
            };
            // An entry of another time than the item's is of the past; what is under way comes again when it is durable.
            let Some(item) = self.state.get(id).filter(|item| item.due <= self.now) else {
                continue;
            };
            if !self.is_durable(id) {
                continue;
            }
            self.item_is_due(id, &item.clone());
        }
    }

    fn item_is_due(&mut self, id: ItemId, item: &Item) {
        match (item.status, &item.kind) {
            (Status::Waiting, Kind::Scheduled) => self.commit(id),
            (Status::Waiting, Kind::Half { group, checks_max }) => {
                self.check(id, item, group, *checks_max);
            }
            (Status::Discarding(_), _) => self.copy(id),
            (status, _) if status.is_over() => {
                self.propose(Some(id), Change::Forgotten(id));
            }
            _ => {}
        }
    }

    /// Proposes a change: it counts from now on, and is durable when its delta is.
    pub(super) fn propose(&mut self, id: Option<ItemId>, change: Change) {
        self.state.apply_change(&change);
        self.changes.push(change);
        self.touched.extend(id);
    }

    /// All that was said of an item is durable.
    pub(super) fn is_durable(&self, id: ItemId) -> bool {
        !self.marks.contains_key(&id) && !self.touched.contains(&id)
    }

    /// An item was changed by a change of others too.
    pub(super) fn touch(&mut self, id: ItemId) {
        self.touched.insert(id);
    }

    fn finish(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        if !changes.is_empty() {
            self.proposed += 1;
            let number = self.proposed;
            for id in std::mem::take(&mut self.touched) {
                self.marks.insert(id, number);
            }
            let delta = Delta(changes);
            self.appends.push(Effect::Append { number, delta });
        }
        for (id, request, answer) in std::mem::take(&mut self.answers) {
            let after = id.and_then(|id| self.marks.get(&id)).copied().unwrap_or(0);
            match after > self.confirmed {
                true => self
                    .waiting
                    .entry(after)
                    .or_default()
                    .push((request, answer)),
                false => self.out.push(Effect::Answer(request, answer)),
            }
        }
        let wanted = !self.state.is_empty() && self.state.publisher() == Producer::NONE;
        if wanted && !self.publisher_wanted {
            self.publisher_wanted = true;
            self.out.push(Effect::WantPublisher);
        }
    }
}

impl Request {
    /// The answer of its kind that refuses it.
    pub fn refused(&self, error: TxnError) -> Answer {
        match self {
            Self::Prepare { .. } | Self::Schedule { .. } => Answer::Kept(Err(error)),
            Self::Resolve { .. } => Answer::Resolved(Err(error)),
            Self::Resume { .. } => Answer::Resumed(Err(error)),
            Self::Describe { .. } => Answer::Described(Err(error)),
        }
    }
}
