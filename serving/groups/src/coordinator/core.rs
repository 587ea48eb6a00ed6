//! One input: what it changes, what is answered, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::mutant::{Mutant, Mutation};
use rand::RngCore;
use rand_chacha::ChaCha12Rng;
use uuid::Builder;

use super::live::{Live, LiveKind};
use crate::answer::{Answer, Effect};
use crate::classic::ClassicLive;
use crate::config::GroupsConfig;
use crate::error::GroupError;
use crate::limits::{GROUP_NAME_BYTES_MAX, GROUPS_MAX, UNCONFIRMED_DELTAS_MAX};
use crate::request::{Input, Now, Request, RequestId};
use crate::state::{Change, ConsumerGroup, Delta, GroupKind, ShardState};
use crate::topics::TopicsView;

/// The coordinator of the groups of one shard.
///
/// Inputs come one at a time, with a time that never falls; the same inputs and seed give the same effects.
#[derive(Debug)]
pub struct Coordinator {
    pub(crate) config: GroupsConfig,
    pub(crate) state: ShardState,
    pub(crate) live: BTreeMap<Arc<str>, Live>,
    pub(crate) topics: Arc<TopicsView>,
    pub(super) timers: BTreeSet<(u64, Arc<str>)>,
    pub(super) next_sweep: u64,
    pub(crate) mutation: Mutation,
    rng: ChaCha12Rng,
    /// Number of the last delta that was proposed, and of the last that is durable.
    proposed: u64,
    confirmed: u64,
    /// The last delta of a group, while it is under way.
    marks: BTreeMap<Arc<str>, u64>,
    waiting: BTreeMap<u64, Vec<(RequestId, Answer)>>,
    // Of the input that is being looked at.
    changes: Vec<(Arc<str>, Change)>,
    answers: Vec<(Option<Arc<str>>, RequestId, Answer)>,
    pub(super) touched: BTreeSet<Arc<str>>,
    appends: Vec<Effect>,
    out: Vec<Effect>,
}

impl Coordinator {
    /// Begins with what was replayed; `applied` is the number of the last delta in it. Sessions begin anew.
    pub fn new(
        config: GroupsConfig,
        (state, applied): (ShardState, u64),
        topics: Arc<TopicsView>,
        rng: ChaCha12Rng,
        now: Now,
    ) -> Self {
        let mut this = Self {
            config,
            state,
            live: BTreeMap::new(),
            topics,
            timers: BTreeSet::new(),
            next_sweep: now.passed_ms,
            mutation: Mutation::default(),
            rng,
            proposed: applied,
            confirmed: applied,
            marks: BTreeMap::new(),
            waiting: BTreeMap::new(),
            changes: Vec::new(),
            answers: Vec::new(),
            touched: BTreeSet::new(),
            appends: Vec::new(),
            out: Vec::new(),
        };
        this.begin(now);
        this
    }

    /// Begins anew with a rule that does not hold.
    #[cfg(test)]
    pub(crate) fn mutated(mut self, mutation: Mutation, now: Now) -> Self {
        self.mutation = mutation;
        (self.live, self.timers) = Default::default();
        self.begin(now);
        self
    }

    /// What is remembered, with all that was proposed.
    pub fn state(&self) -> &ShardState {
        &self.state
    }

    /// When [`Input::Tick`] is due, in passing time; earlier ones do no harm.
    pub fn due(&self) -> u64 {
        let first = self.timers.first().map(|(at, _)| *at);
        first.map_or(self.next_sweep, |at| at.min(self.next_sweep))
    }

    /// Looks at one input.
    pub fn on_input(&mut self, now: Now, input: Input) -> Vec<Effect> {
        match input {
            Input::Request(id, request) => self.on_request(now, id, request),
            Input::Gone(id) => self.on_gone(now, id),
            Input::Topics(topics) => self.on_topics(now, topics),
            Input::Deleted(topics) => self.forget_topics(&topics),
            Input::Progress(progress) => self.on_progress(now, &progress),
            Input::Tick => self.on_tick(now),
            Input::Confirmed(number) => self.on_confirmed(number),
        }
        self.finish();
        // What is to be durable comes before the answers that rest on it, and before who is told to look.
        let mut out = std::mem::take(&mut self.appends);
        out.append(&mut self.out);
        out
    }

    fn on_request(&mut self, now: Now, id: RequestId, request: Request) {
        if let Err(error) = self.admit(&request) {
            let answer = request.refused(error);
            return self.answers.push((None, id, answer));
        }
        match request {
            Request::Join(join) => self.join(now, id, *join),
            Request::Sync(sync) => self.sync(now, id, sync),
            Request::Beat(beat) => self.beat(now, id, &beat),
            Request::Leave(leave) => self.leave(now, id, &leave),
            Request::Member(beat) => self.member_beat(now, id, *beat),
            Request::Commit(commit) => self.commit(now, id, &commit),
            Request::Fetch(fetch) => self.fetch_offsets(id, &fetch),
            Request::Begin(begin) => self.begin_topic(now, id, &begin),
            Request::DeleteOffsets { group, partitions } => {
                self.delete_offsets(id, &group, partitions);
            }
            Request::Delete { group } => self.delete_group(id, &group),
            Request::List => self.list(id),
            Request::Describe { group } => self.describe(id, &group),
        }
    }

    /// What holds for all requests.
    fn admit(&self, request: &Request) -> Result<(), GroupError> {
        if self.proposed - self.confirmed >= UNCONFIRMED_DELTAS_MAX {
            return Err(GroupError::Busy);
        }
        let Some(group) = request.group() else {
            return Ok(());
        };
        // Offsets without a group were once kept under the empty name; Kafka still reads and commits so.
        let may_be_empty = matches!(request, Request::Commit(_) | Request::Fetch(_));
        let makes = matches!(
            request,
            Request::Join(_) | Request::Member(_) | Request::Commit(_)
        );
        match group.len() {
            0 if !may_be_empty => Err(GroupError::InvalidGroup),
            len if len > GROUP_NAME_BYTES_MAX => Err(GroupError::InvalidGroup),
            _ if makes && !self.knows(group) && self.state.len() >= GROUPS_MAX => {
                Err(GroupError::Busy)
            }
            _ => Ok(()),
        }
    }

    fn knows(&self, group: &str) -> bool {
        self.state.group(group).is_some() || self.live.contains_key(group)
    }

    fn on_confirmed(&mut self, number: u64) {
        self.confirmed = self.confirmed.max(number.min(self.proposed));
        let confirmed = self.confirmed;
        self.marks.retain(|_, mark| *mark > confirmed);
        let later = self.waiting.split_off(&(confirmed + 1));
        let ready = std::mem::replace(&mut self.waiting, later);
        let ready = ready.into_values().flatten();
        self.out
            .extend(ready.map(|(id, answer)| Effect::Answer(id, answer)));
    }

    /// Proposes a change: it counts from now on, and is durable when its delta is.
    pub(crate) fn apply(&mut self, group: &Arc<str>, change: Change) {
        self.state.apply_change(group, &change);
        self.changes.push((group.clone(), change));
        self.touched.insert(group.clone());
    }

    /// Answers a request about a group, as soon as all that was said of the group is durable.
    pub(crate) fn answer(&mut self, group: &Arc<str>, id: RequestId, answer: Answer) {
        self.answers.push((Some(group.clone()), id, answer));
    }

    /// Answers a request about all groups.
    pub(super) fn answer_all(&mut self, id: RequestId, answer: Answer) {
        self.answers.push((None, id, answer));
    }

    /// Says that waiting members of a group should ask.
    pub(crate) fn changed(&mut self, group: &Arc<str>) {
        self.effect(Effect::Changed(group.clone()));
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        if !self.out.contains(&effect) {
            self.out.push(effect);
        }
    }

    /// A group's timers are looked at again when this input is done.
    pub(crate) fn touch(&mut self, group: &Arc<str>) {
        self.touched.insert(group.clone());
    }

    /// What was changed so far becomes a delta of its own: for changes that need not be durable together.
    pub(crate) fn cut_delta(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        if changes.is_empty() {
            return;
        }
        self.proposed += 1;
        let number = self.proposed;
        for (group, _) in &changes {
            self.marks.insert(group.clone(), number);
        }
        let delta = Delta(changes);
        self.appends.push(Effect::Append { number, delta });
    }

    fn finish(&mut self) {
        self.cut_delta();
        for (group, id, answer) in std::mem::take(&mut self.answers) {
            let after = match &group {
                Some(group) => self.marks.get(group).copied().unwrap_or(0),
                None if matches!(answer, Answer::Listed(_)) => self.proposed,
                None => 0,
            };
            let waits = after > self.confirmed && !self.mutation.is(Mutant::AnswerBeforeDelta);
            match waits {
                true => self.waiting.entry(after).or_default().push((id, answer)),
                false => self.out.push(Effect::Answer(id, answer)),
            }
        }
        self.set_timers();
    }

    /// An id that nobody has.
    pub(crate) fn new_member_id(&mut self, prefix: &str) -> Arc<str> {
        let mut bytes = [0; 16];
        self.rng.fill_bytes(&mut bytes);
        let id = Builder::from_random_bytes(bytes).into_uuid();
        match prefix.is_empty() {
            true => id.to_string().into(),
            false => format!("{prefix}-{id}").into(),
        }
    }

    /// The group of the newer protocol by this name.
    pub(crate) fn consumer_group(&self, group: &str) -> Option<&ConsumerGroup> {
        match &self.state.group(group)?.kind {
            GroupKind::Consumer(consumer) => Some(consumer),
            _ => None,
        }
    }

    /// Members of the newer protocol are in it, or classic ones among them.
    pub(crate) fn has_consumer_members(&self, group: &str) -> bool {
        self.consumer_group(group)
            .is_some_and(|group| !group.members.is_empty())
    }

    /// A member of a classic group did something else than beat.
    pub(crate) fn classic_heard(&mut self, now: Now, group: &Arc<str>, member: &str) {
        if let Some(Live {
            kind: LiveKind::Classic(live),
            ..
        }) = self.live.get_mut(group)
        {
            live.heard(member, now);
            self.touch(group);
        }
    }

    /// Ids that were given out in a group of the newer protocol.
    pub(crate) fn pending_ids(&self, group: &str) -> impl Iterator<Item = &Arc<str>> {
        let live = self.live.get(group);
        let pending = live.and_then(|live| match &live.kind {
            LiveKind::Consumer(live) => Some(&live.pending),
            LiveKind::Classic(_) => None,
        });
        pending.into_iter().flat_map(|pending| pending.keys())
    }

    pub(crate) fn classic_live(&self, group: &str) -> Option<&ClassicLive> {
        match &self.live.get(group)?.kind {
            LiveKind::Classic(live) => Some(live),
            LiveKind::Consumer(_) => None,
        }
    }

    /// The timers of a group of the newer protocol; begun where there are none.
    pub(crate) fn consumer_live(&mut self, group: &Arc<str>) -> &mut super::ConsumerLive {
        self.touch(group);
        let live = self
            .live
            .entry(group.clone())
            .or_insert_with(Live::consumer);
        if matches!(live.kind, LiveKind::Classic(_)) {
            live.kind = LiveKind::Consumer(super::ConsumerLive::default());
        }
        match &mut live.kind {
            LiveKind::Consumer(live) => live,
            LiveKind::Classic(_) => unreachable!("it was replaced"),
        }
    }
}

impl Request {
    /// It may change something; else it only looks.
    pub fn changes(&self) -> bool {
        !matches!(self, Self::Fetch(_) | Self::Describe { .. } | Self::List)
    }

    /// The group that it is about; `None`: all.
    pub fn group(&self) -> Option<&Arc<str>> {
        Some(match self {
            Self::Join(request) => &request.group,
            Self::Sync(request) => &request.group,
            Self::Beat(request) => &request.group,
            Self::Leave(request) => &request.group,
            Self::Member(request) => &request.group,
            Self::Commit(request) => &request.group,
            Self::Fetch(request) => &request.group,
            Self::Begin(request) => &request.group,
            Self::DeleteOffsets { group, .. }
            | Self::Delete { group }
            | Self::Describe { group } => group,
            Self::List => return None,
        })
    }

    /// Names the group that it is about; one that is about all stays so.
    pub fn set_group(&mut self, name: Arc<str>) {
        let group = match self {
            Self::Join(request) => &mut request.group,
            Self::Sync(request) => &mut request.group,
            Self::Beat(request) => &mut request.group,
            Self::Leave(request) => &mut request.group,
            Self::Member(request) => &mut request.group,
            Self::Commit(request) => &mut request.group,
            Self::Fetch(request) => &mut request.group,
            Self::Begin(request) => &mut request.group,
            Self::DeleteOffsets { group, .. }
            | Self::Delete { group }
            | Self::Describe { group } => group,
            Self::List => return,
        };
        *group = name;
    }

    /// The answer of its kind that refuses it.
    pub fn refused(&self, error: GroupError) -> Answer {
        match self {
            Self::Join(_) => Answer::Joined(Err(error)),
            Self::Sync(_) => Answer::Synced(Err(error)),
            Self::Beat(_) => Answer::Beat(Err(error)),
            Self::Leave(_) => Answer::Left(Err(error)),
            Self::Member(_) => Answer::Member(Err(error)),
            Self::Commit(_) => Answer::Committed(Err(error)),
            Self::Fetch(_) | Self::Begin(_) => Answer::Fetched(Err(error)),
            Self::DeleteOffsets { .. } => Answer::OffsetsDeleted(Err(error)),
            Self::Delete { .. } => Answer::Deleted(Err(error)),
            Self::Describe { .. } => Answer::Described(Err(error)),
            Self::List => Answer::Listed(Vec::new()),
        }
    }
}
