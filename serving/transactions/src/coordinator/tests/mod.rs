//! The coordinator by its tables, and its forms on disk.

mod codec;
mod ends;
mod producers;
mod time;

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::id::{OwnerEpoch, PartitionId, ProducerId, TopicId};
use uuid::Uuid;

use super::*;
use crate::{Marker, Producer, TxnError, Version};

pub(super) const ID: &str = "orders";
pub(super) const TIMEOUT_MS: u32 = 60_000;

pub(super) fn partition(topic: u128, index: u32) -> PartitionId {
    let topic = TopicId(Uuid::from_u128(topic));
    PartitionId { topic, index }
}

pub(super) fn data(index: u32) -> BTreeMap<Participant, Parts> {
    [(Participant::Partition(partition(1, index)), Parts::DATA)].into()
}

/// A shard whose chain takes everything at once, unless it is said to be slow.
pub(super) struct Desk {
    pub(super) machine: Coordinator,
    pub(super) now: i64,
    pub(super) slow: bool,
    pub(super) chain: Vec<Delta>,
    pub(super) markers: Vec<(Participant, Marker)>,
    pub(super) told: Vec<Effect>,
    answers: BTreeMap<RequestId, Answer>,
    requests: u64,
    next_id: i64,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self::with(TransactionsShard::default(), 1)
    }

    pub(super) fn with(state: TransactionsShard, epoch: u32) -> Self {
        let config = CoordinatorConfig::default();
        Self {
            machine: Coordinator::new(config, OwnerEpoch(epoch), (state, 0), 1_000),
            now: 1_000,
            slow: false,
            chain: Vec::new(),
            markers: Vec::new(),
            told: Vec::new(),
            answers: BTreeMap::new(),
            requests: 0,
            next_id: i64::from(epoch) * 1_000_000,
        }
    }

    pub(super) fn input(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.machine.on_input(self.now, input) {
                match effect {
                    Effect::Append { number, delta } => {
                        self.chain.push(delta);
                        if !self.slow {
                            inputs.push(Input::Confirmed(number));
                        }
                    }
                    Effect::Answer(id, answer) => {
                        assert!(self.answers.insert(id, answer).is_none());
                    }
                    Effect::SendMarker { to, marker, .. } => self.markers.push((to, marker)),
                    Effect::WantProducerIds => {
                        let first = self.next_id;
                        self.next_id += 1_000;
                        inputs.push(Input::ProducerIds(first..first + 1_000));
                    }
                    other => self.told.push(other),
                }
            }
        }
    }

    pub(super) fn send(&mut self, request: Request) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.input(Input::Request(id, request));
        id
    }

    pub(super) fn take(&mut self, id: RequestId) -> Option<Answer> {
        self.answers.remove(&id)
    }

    pub(super) fn ask(&mut self, request: Request) -> Answer {
        let id = self.send(request);
        self.take(id).expect("it is answered at once")
    }

    pub(super) fn init(&mut self, expected: Option<Producer>) -> Result<Producer, TxnError> {
        let request = Request::Init {
            id: ID.into(),
            timeout_ms: TIMEOUT_MS,
            expected,
        };
        // The first request may come before the first producer ids.
        self.input(Input::Tick);
        match self.ask(request) {
            Answer::Begun(said) => said,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn add(&mut self, producer: Producer, version: Version) -> Result<Added, TxnError> {
        let request = Request::Add {
            id: ID.into(),
            producer,
            version,
            participants: data(0),
            verify_only: false,
        };
        match self.ask(request) {
            Answer::Added(said) => said,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn end(
        &mut self,
        producer: Producer,
        version: Version,
        commit: bool,
    ) -> Result<Producer, TxnError> {
        let request = Request::End {
            id: ID.into(),
            producer,
            version,
            commit,
        };
        match self.ask(request) {
            Answer::Ended(said) => said,
            other => panic!("{other:?}"),
        }
    }

    /// Every marker that was sent is applied.
    pub(super) fn settle(&mut self) {
        for (to, marker) in std::mem::take(&mut self.markers) {
            self.outcome(to, &marker, MarkerOutcome::Applied);
        }
    }

    pub(super) fn outcome(&mut self, to: Participant, marker: &Marker, outcome: MarkerOutcome) {
        let id: Arc<str> = ID.into();
        let serial = marker.serial;
        self.input(Input::Marker {
            id,
            serial,
            to,
            outcome,
        });
    }

    pub(super) fn txn(&self) -> &Transaction {
        self.machine.state().get(ID).expect("it is there")
    }

    pub(super) fn pass(&mut self, ms: i64) {
        self.now += ms;
        self.input(Input::Tick);
    }
}

/// A state of the id, made by hand.
pub(super) fn stands(
    state: TxnState,
    producer: Producer,
    last_epoch: i16,
    previous: i64,
) -> TransactionsShard {
    let mut shard = TransactionsShard::default();
    let id: Arc<str> = ID.into();
    let mut say = |change| shard.apply(&Delta(vec![(id.clone(), change)]));
    say(Change::Began {
        at: 1_000,
        producer,
        previous: ProducerId(previous),
        last_epoch,
        timeout_ms: TIMEOUT_MS,
    });
    if state == TxnState::Empty {
        return shard;
    }
    say(Change::Added {
        at: 1_000,
        version: Version::Tv2,
        participants: data(0),
    });
    let commit = match state {
        TxnState::PrepareCommit | TxnState::CompleteCommit => true,
        TxnState::PrepareAbort | TxnState::CompleteAbort => false,
        _ => return shard,
    };
    say(Change::Decided {
        at: 1_000,
        commit,
        version: Version::Tv2,
        producer,
        next: ProducerId::NONE,
        last_epoch,
    });
    if !state.is_preparing() {
        say(Change::Completed { at: 1_000 });
    }
    shard
}

pub(super) fn producer(id: i64, epoch: i16) -> Producer {
    Producer {
        id: ProducerId(id),
        epoch,
    }
}
