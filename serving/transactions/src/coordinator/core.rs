//! One input: what it changes, what is answered, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use hulse_proto::id::{OwnerEpoch, ProducerId};
use hulse_proto::mutant::{Mutant, Mutation};
use hulse_proto::time::TimestampMs;

use super::answer::{Answer, Effect};
use super::change::{Change, Delta};
use super::markers::Sending;
use super::request::{Input, Request, RequestId};
use super::shard::TransactionsShard;
use super::transaction::Participant;
use crate::error::TxnError;
use crate::limits::{ID_BYTES_MAX, IDS_MAX, UNCONFIRMED_DELTAS_MAX};

/// A block of producer ids is fetched when fewer than so many are left.
const PRODUCER_IDS_LOW: i64 = 100;

/// Times in ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// The longest that a transaction may take. Default: 15 minutes (ARCHITECTURE §5).
    pub timeout_max_ms: u32,
    /// An id that is idle for so long is forgotten. Default: 7 days.
    pub id_expiry_ms: i64,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self {
            timeout_max_ms: 15 * 60 * 1000,
            id_expiry_ms: 7 * 24 * 3600 * 1000,
        }
    }
}

/// A change of an id that is under way to the chain.
#[derive(Debug, Clone, Copy)]
struct Pending {
    /// Number of its last delta.
    number: u64,
    /// All that is under way adds participants: more may be added.
    adds: bool,
}

/// What must be durable before an answer leaves.
#[derive(Debug)]
enum After {
    /// Nothing: nothing was done, and the caller asks again.
    Nothing,
    /// All that was said of this id.
    Id(Arc<str>),
    /// All that was said.
    All,
}

/// The coordinator of the transactional ids of one shard.
///
/// Inputs come one at a time; the same inputs and times give the same effects. `now` is the owner's clock (ARCHITECTURE D2); one that
/// falls is taken as one that stands.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) config: CoordinatorConfig,
    pub(super) epoch: OwnerEpoch,
    pub(super) state: TransactionsShard,
    pub(super) now: TimestampMs,
    pub(super) next_scan: TimestampMs,
    pub(super) sending: BTreeMap<Arc<str>, Sending>,
    /// Markers that are sent again then.
    pub(super) retries: BTreeSet<(TimestampMs, Arc<str>, Participant)>,
    /// Markers on their way.
    pub(super) in_flight: usize,
    /// Ids whose markers wait for room.
    pub(super) queued: BTreeSet<Arc<str>>,
    pub(super) mutation: Mutation,
    producer_ids: Range<i64>,
    producer_ids_wanted: bool,
    proposed: u64,
    confirmed: u64,
    pending: BTreeMap<Arc<str>, Pending>,
    waiting: BTreeMap<u64, Vec<(RequestId, Answer)>>,
    // Of the input that is being looked at.
    changes: Vec<(Arc<str>, Change)>,
    answers: Vec<(After, RequestId, Answer)>,
    appends: Vec<Effect>,
    pub(super) out: Vec<Effect>,
}

impl Coordinator {
    /// Begins with what was replayed, at the owner's epoch; `applied` is the number of the last delta in it. What is decided goes on
    /// with the first input, which may be a [`Input::Tick`].
    pub fn new(
        config: CoordinatorConfig,
        epoch: OwnerEpoch,
        (state, applied): (TransactionsShard, u64),
        now: TimestampMs,
    ) -> Self {
        let mut this = Self {
            config,
            epoch,
            state,
            now,
            next_scan: now,
            sending: BTreeMap::new(),
            retries: BTreeSet::new(),
            in_flight: 0,
            queued: BTreeSet::new(),
            mutation: Mutation::default(),
            producer_ids: 0..0,
            producer_ids_wanted: false,
            proposed: applied,
            confirmed: applied,
            pending: BTreeMap::new(),
            waiting: BTreeMap::new(),
            changes: Vec::new(),
            answers: Vec::new(),
            appends: Vec::new(),
            out: Vec::new(),
        };
        this.resume_markers();
        this
    }

    /// The same with a rule switched off.
    #[must_use]
    pub fn mutated(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    /// What is remembered, with all that was proposed.
    pub fn state(&self) -> &TransactionsShard {
        &self.state
    }

    /// When [`Input::Tick`] is due; earlier ones do no harm.
    pub fn due(&self) -> TimestampMs {
        let retry = self.retries.first().map(|(at, ..)| *at);
        retry.map_or(self.next_scan, |at| at.min(self.next_scan))
    }

    /// Looks at one input.
    pub fn on_input(&mut self, now: TimestampMs, input: Input) -> Vec<Effect> {
        self.now = self.now.max(now);
        match input {
            Input::Request(id, request) => self.on_request(id, request),
            Input::Marker {
                id,
                serial,
                to,
                outcome,
            } => self.on_marker(&id, serial, to, outcome),
            Input::Deleted(topics) => self.on_deleted(&topics),
            Input::ProducerIds(ids) => {
                self.producer_ids_wanted = false;
                if ids.end - ids.start > self.producer_ids.end - self.producer_ids.start {
                    self.producer_ids = ids;
                }
            }
            Input::Confirmed(number) => self.on_confirmed(number),
            Input::Tick => self.on_tick(),
        }
        self.send_markers();
        self.finish();
        // What is to be durable comes before all that rests on it.
        let mut out = std::mem::take(&mut self.appends);
        out.append(&mut self.out);
        out
    }

    fn on_request(&mut self, request_id: RequestId, request: Request) {
        let about = request.id().cloned();
        let answer = match self.admit(&request) {
            Ok(()) => self.look_at(request),
            Err(error) => request.refused(error),
        };
        let after = match about {
            _ if answer.asks_again() => After::Nothing,
            Some(id) => After::Id(id),
            None => After::All,
        };
        self.answers.push((after, request_id, answer));
    }

    fn look_at(&mut self, request: Request) -> Answer {
        match request {
            Request::Init {
                id,
                timeout_ms,
                expected,
            } => Answer::Begun(self.init(&id, timeout_ms, expected)),
            Request::Add {
                id,
                producer,
                version,
                participants,
                verify_only: true,
            } => Answer::Added(self.verify(&id, producer, version, &participants)),
            Request::Add {
                id,
                producer,
                version,
                participants,
                verify_only: false,
            } => Answer::Added(self.add(&id, producer, version, participants)),
            Request::End {
                id,
                producer,
                version,
                commit,
            } => Answer::Ended(self.end(&id, producer, version, commit)),
            Request::List => Answer::Listed(self.list()),
            Request::Describe { id } => Answer::Described(self.describe(&id)),
            Request::Abort { id } => Answer::Aborted(self.abort(&id)),
        }
    }

    /// What holds for all requests.
    fn admit(&self, request: &Request) -> Result<(), TxnError> {
        if self.proposed - self.confirmed >= UNCONFIRMED_DELTAS_MAX {
            return Err(TxnError::Busy);
        }
        let Some(id) = request.id() else {
            return Ok(());
        };
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Err(TxnError::InvalidId);
        }
        let makes = matches!(request, Request::Init { .. }) && self.state.get(id).is_none();
        match makes && self.state.len() >= IDS_MAX {
            true => Err(TxnError::TooMany {
                what: "transactional ids of a shard",
                limit: IDS_MAX,
            }),
            false => Ok(()),
        }
    }

    fn on_confirmed(&mut self, number: u64) {
        self.confirmed = self.confirmed.max(number.min(self.proposed));
        let confirmed = self.confirmed;
        let durable = |pending: &Pending| pending.number <= confirmed;
        let settled: Vec<Arc<str>> = self
            .pending
            .iter()
            .filter(|(_, pending)| durable(pending))
            .map(|(id, _)| id.clone())
            .collect();
        for id in settled {
            self.pending.remove(&id);
            self.begin_markers(&id);
        }
        let later = self.waiting.split_off(&(confirmed + 1));
        let ready = std::mem::replace(&mut self.waiting, later);
        let ready = ready.into_values().flatten();
        self.out
            .extend(ready.map(|(id, answer)| Effect::Answer(id, answer)));
    }

    /// Proposes a change: it counts from now on, and is durable when its delta is.
    pub(super) fn propose(&mut self, id: &Arc<str>, change: Change) {
        self.state.apply_change(id, &change);
        self.changes.push((id.clone(), change));
    }

    /// Something of this id is not durable.
    pub(super) fn is_pending(&self, id: &str) -> bool {
        self.pending.contains_key(id) || self.changes.iter().any(|(changed, _)| **changed == *id)
    }

    /// As [`Self::is_pending`], but for what only adds participants.
    pub(super) fn is_pending_beside_adds(&self, id: &str) -> bool {
        self.pending.get(id).is_some_and(|pending| !pending.adds)
    }

    /// A producer id that nobody has.
    pub(super) fn new_producer_id(&mut self) -> Result<ProducerId, TxnError> {
        self.producer_ids
            .next()
            .map(ProducerId)
            .ok_or(TxnError::Busy)
    }

    fn finish(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        if !changes.is_empty() {
            self.proposed += 1;
            let number = self.proposed;
            for (id, change) in &changes {
                let adds = matches!(change, Change::Added { .. });
                let pending = self.pending.entry(id.clone());
                let pending = pending.or_insert(Pending { number, adds });
                pending.number = number;
                pending.adds &= adds;
            }
            let delta = Delta(changes);
            self.appends.push(Effect::Append { number, delta });
        }
        for (after, request, answer) in std::mem::take(&mut self.answers) {
            let after = match &after {
                After::Nothing => 0,
                After::Id(id) => self.pending.get(id).map_or(0, |pending| pending.number),
                After::All => self.proposed,
            };
            match after > self.confirmed && !self.mutation.is(Mutant::DecisionBeforePrepare) {
                true => self
                    .waiting
                    .entry(after)
                    .or_default()
                    .push((request, answer)),
                false => self.out.push(Effect::Answer(request, answer)),
            }
        }
        let left = self.producer_ids.end - self.producer_ids.start;
        if left < PRODUCER_IDS_LOW && !self.producer_ids_wanted {
            self.producer_ids_wanted = true;
            self.out.push(Effect::WantProducerIds);
        }
    }
}

impl Request {
    /// The answer of its kind that refuses it.
    pub fn refused(&self, error: TxnError) -> Answer {
        match self {
            Self::Init { .. } => Answer::Begun(Err(error)),
            Self::Add { .. } => Answer::Added(Err(error)),
            Self::End { .. } => Answer::Ended(Err(error)),
            Self::List => Answer::Listed(Vec::new()),
            Self::Describe { .. } => Answer::Described(Err(error)),
            Self::Abort { .. } => Answer::Aborted(Err(error)),
        }
    }
}
