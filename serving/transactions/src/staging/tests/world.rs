//! A store with its chain, its targets and its clock.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use hulse_proto::id::{Offset, PartitionId, ProducerId, TopicId};
use hulse_proto::mutant::Mutation;
use uuid::Uuid;

use crate::limits::PUBLISHING_MAX;
use crate::staging::*;
use crate::{Producer, TxnError};

pub(super) const HOUR_MS: i64 = 3_600_000;

pub(super) fn target(number: u8) -> PartitionId {
    PartitionId {
        topic: TopicId(Uuid::from_u128(number.into())),
        index: 0,
    }
}

/// A target as its owner keeps it: the sequences that it knows, and what stands in it.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub(super) stored: Vec<ItemId>,
    pub(super) gone: bool,
}

pub(super) struct World {
    pub(super) machine: Staging,
    pub(super) now: i64,
    pub(super) chain: Vec<Bytes>,
    pub(super) way: VecDeque<(u64, Bytes)>,
    /// The chain takes everything at once.
    pub(super) quick: bool,
    pub(super) answers: BTreeMap<RequestId, Answer>,
    /// What the store wants done, beside appends and answers.
    pub(super) wanted: Vec<Effect>,
    pub(super) targets: BTreeMap<PartitionId, Target>,
    replayed: StagingState,
    requests: u64,
    places: u64,
    mutation: Mutation,
}

impl World {
    pub(super) fn new(mutation: Mutation) -> Self {
        let now = 1_000_000;
        let empty = (StagingState::default(), 0);
        let machine = Staging::new(StagingConfig::default(), empty, now);
        Self {
            machine: machine.mutated(mutation),
            now,
            chain: Vec::new(),
            way: VecDeque::new(),
            quick: true,
            answers: BTreeMap::new(),
            wanted: Vec::new(),
            targets: BTreeMap::new(),
            replayed: StagingState::default(),
            requests: 0,
            places: 0,
            mutation,
        }
    }

    pub(super) fn input(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.machine.on_input(self.now, input) {
                match effect {
                    Effect::Append { number, delta } => {
                        let bytes = delta.encode();
                        self.replayed.apply(&Delta::decode(&bytes).unwrap());
                        if self.quick {
                            self.chain.push(bytes);
                            inputs.push(Input::Confirmed(number));
                        } else {
                            self.way.push_back((number, bytes));
                        }
                    }
                    Effect::Answer(id, answer) => {
                        assert!(self.answers.insert(id, answer).is_none());
                    }
                    Effect::WantPublisher => {
                        inputs.push(Input::Publisher(Producer::first(ProducerId(77))));
                    }
                    other => self.wanted.push(other),
                }
            }
            assert_eq!(&self.replayed, self.machine.state(), "live is not replay");
        }
    }

    pub(super) fn confirm(&mut self) {
        if let Some((number, bytes)) = self.way.pop_front() {
            self.chain.push(bytes);
            self.input(Input::Confirmed(number));
        }
    }

    /// Another owner takes over; so much of what was on its way has landed.
    pub(super) fn moves(&mut self, landed: usize) {
        let landed: Vec<Bytes> = self.way.drain(..).take(landed).map(|(_, b)| b).collect();
        self.chain.extend(landed);
        let mut state = StagingState::default();
        for bytes in &self.chain {
            state.apply(&Delta::decode(bytes).unwrap());
        }
        let read = StagingState::decode(&state.encode()).unwrap();
        assert_eq!(read, state, "a snapshot changed on its way");
        self.replayed = state;
        self.wanted.clear();
        self.answers.clear();
        let replayed = (read, self.chain.len() as u64);
        let machine = Staging::new(StagingConfig::default(), replayed, self.now);
        self.machine = machine.mutated(self.mutation);
        self.input(Input::Tick);
    }

    pub(super) fn send(&mut self, request: Request) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.input(Input::Request(id, request));
        id
    }

    pub(super) fn ask(&mut self, request: Request) -> Answer {
        let id = self.send(request);
        self.answers.remove(&id).expect("it is answered at once")
    }

    /// An id whose payload stands in the log.
    pub(super) fn new_id(&mut self) -> ItemId {
        self.places += 1;
        ItemId {
            first: Offset(self.places),
            nonce: self.places * 31,
        }
    }

    pub(super) fn half(&mut self, to: u8) -> ItemId {
        let id = self.new_id();
        let request = Request::Prepare {
            id,
            target: target(to),
            group: "carts".into(),
            check_after_ms: 6_000,
            checks_max: 3,
        };
        let id_of = self.send(request);
        if let Some(answer) = self.answers.remove(&id_of) {
            assert_eq!(answer, Answer::Kept(Ok(id)));
        }
        id
    }

    pub(super) fn resolve(&mut self, id: ItemId, commit: bool) -> Result<(), TxnError> {
        match self.ask(Request::Resolve { id, commit }) {
            Answer::Resolved(said) => said,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn pass(&mut self, ms: i64) {
        let end = self.now + ms;
        while let Some(due) = self.machine.due().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.input(Input::Tick);
            if self.machine.due() == Some(due) {
                break; // It waits for somebody.
            }
        }
        self.now = end;
        self.input(Input::Tick);
    }

    pub(super) fn status(&self, id: ItemId) -> Option<Status> {
        self.machine.state().get(id).map(|item| item.status)
    }

    /// What the target makes of an item: its window knows the last five.
    pub(super) fn store(&mut self, id: ItemId, at: PartitionId, sequence: i32) -> PublishOutcome {
        let target = self.targets.entry(at).or_default();
        if target.gone {
            return PublishOutcome::TargetGone;
        }
        let next = target.stored.len();
        let sequence = usize::try_from(sequence).unwrap();
        if sequence == next {
            target.stored.push(id);
            return PublishOutcome::Published;
        }
        match sequence < next && next - sequence <= PUBLISHING_MAX {
            true => {
                assert_eq!(
                    target.stored[sequence], id,
                    "another item has this sequence"
                );
                PublishOutcome::Published
            }
            // One before it is missing, or it is no more known: it is sent again.
            false => PublishOutcome::Unknown,
        }
    }

    /// Does all that is wanted, until nothing is.
    pub(super) fn work(&mut self) {
        let mut rounds = 0;
        while !self.wanted.is_empty() {
            rounds += 1;
            assert!(rounds < 1_000, "it never ends: {:?}", self.wanted);
            for effect in std::mem::take(&mut self.wanted) {
                self.does(effect);
            }
        }
    }

    pub(super) fn does(&mut self, effect: Effect) {
        match effect {
            Effect::Publish {
                id,
                target,
                sequence,
                ..
            } => {
                let outcome = self.store(id, target, sequence);
                self.input(Input::Published(id, outcome));
            }
            Effect::Check { id, .. } => self.input(Input::Checked { id, sent: true }),
            Effect::Discard { id, .. } => self.input(Input::Copied { id, durable: true }),
            Effect::Renew { id, .. } => {
                self.places += 1;
                let place = Some(Offset(self.places));
                self.input(Input::Renewed { id, place });
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn online(&mut self, online: bool) {
        let group = "carts".into();
        self.input(Input::Sessions { group, online });
    }

    pub(super) fn stored(&self, to: u8) -> &[ItemId] {
        let target = self.targets.get(&target(to));
        target.map_or(&[], |target| &target.stored)
    }
}
