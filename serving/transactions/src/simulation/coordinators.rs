//! A coordinator shard with its chain.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use hulse_proto::id::OwnerEpoch;
use hulse_proto::mutant::Mutation;
use rand::Rng;
use rand_chacha::ChaCha12Rng;

use super::message::{Message, Reply, SHARDS, Sent, answer, place_of};
use crate::coordinator::{
    Answer, Coordinator, CoordinatorConfig, Delta, Effect, Input, Request, RequestId,
    TransactionsShard,
};

pub(super) struct Shard {
    index: usize,
    pub(super) machine: Coordinator,
    pub(super) chain: Vec<Bytes>,
    pub(super) way: VecDeque<(u64, Bytes)>,
    replayed: TransactionsShard,
    replies: BTreeMap<RequestId, Reply>,
    requests: u64,
    epoch: u32,
    /// Blocks of producer ids that were given; never twice.
    blocks: i64,
    mutation: Mutation,
}

impl Shard {
    pub(super) fn new(index: usize, mutation: Mutation) -> Self {
        let empty = (TransactionsShard::default(), 0);
        let config = CoordinatorConfig::default();
        let machine = Coordinator::new(config, OwnerEpoch(1), empty, 0).mutated(mutation);
        Self {
            index,
            machine,
            chain: Vec::new(),
            way: VecDeque::new(),
            replayed: TransactionsShard::default(),
            replies: BTreeMap::new(),
            requests: 0,
            epoch: 1,
            blocks: 0,
            mutation,
        }
    }

    pub(super) fn ask(&mut self, now: i64, request: Request, reply: Reply) -> Sent {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.replies.insert(id, reply);
        self.input(now, Input::Request(id, request))
    }

    pub(super) fn hear(&mut self, now: i64, message: Message) -> Sent {
        match message {
            Message::Ask(request, reply) => self.ask(now, request, reply),
            Message::Outcome {
                epoch,
                id,
                serial,
                to,
                outcome,
            } if epoch == self.epoch => {
                let input = Input::Marker {
                    id,
                    serial,
                    to,
                    outcome,
                };
                self.input(now, input)
            }
            // Said to the coordinator before.
            _ => Vec::new(),
        }
    }

    pub(super) fn input(&mut self, now: i64, input: Input) -> Sent {
        let mut sent = Vec::new();
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.machine.on_input(now, input) {
                match effect {
                    Effect::Append { number, delta } => {
                        let bytes = delta.encode();
                        self.replayed.apply(&Delta::decode(&bytes).unwrap());
                        self.way.push_back((number, bytes));
                    }
                    Effect::Answer(id, said) => {
                        let reply = self.replies.remove(&id).expect("it is answered once");
                        sent.push(answer(&reply, told(said)));
                    }
                    Effect::SendMarker {
                        id,
                        to,
                        parts,
                        marker,
                    } => {
                        let shard = self.index;
                        let mark = Message::Mark {
                            shard,
                            id,
                            to,
                            parts,
                            marker,
                        };
                        sent.push((place_of(to), mark));
                    }
                    Effect::WantProducerIds => {
                        let block = self.blocks * SHARDS as i64 + self.index as i64;
                        self.blocks += 1;
                        inputs.push(Input::ProducerIds(block * 1_000..(block + 1) * 1_000));
                    }
                    Effect::Odd { id, to, error } => panic!("{id} at {to:?}: {error}"),
                    Effect::Fenced => panic!("a coordinator that is the last one is fenced"),
                }
            }
            assert_eq!(&self.replayed, self.machine.state(), "live is not replay");
        }
        sent
    }

    pub(super) fn confirm(&mut self, now: i64) -> Sent {
        match self.way.pop_front() {
            Some((number, bytes)) => {
                self.chain.push(bytes);
                self.input(now, Input::Confirmed(number))
            }
            None => Vec::new(),
        }
    }

    /// It dies; some of what was on its way to the chain has landed, and it begins anew elsewhere.
    pub(super) fn kill(&mut self, now: i64, rng: &mut ChaCha12Rng) -> Sent {
        let landed = rng.random_range(0..=self.way.len());
        let landed = self.way.drain(..).take(landed);
        self.chain.extend(landed.map(|(_, bytes)| bytes));
        let at = rng.random_range(0..=self.chain.len());
        let mut state = TransactionsShard::default();
        for (number, bytes) in self.chain.iter().enumerate() {
            if number == at {
                state = TransactionsShard::decode(&state.encode()).unwrap();
            }
            state.apply(&Delta::decode(bytes).unwrap());
        }
        self.replayed = state.clone();
        self.replies.clear();
        self.epoch += 1;
        let replayed = (state, self.chain.len() as u64);
        let config = CoordinatorConfig::default();
        let machine = Coordinator::new(config, OwnerEpoch(self.epoch), replayed, now);
        self.machine = machine.mutated(self.mutation);
        self.input(now, Input::Tick)
    }

    pub(super) fn tick(&mut self, now: i64) -> Sent {
        match self.machine.due() <= now {
            true => self.input(now, Input::Tick),
            false => Vec::new(),
        }
    }

    /// Nothing of it is being ended.
    pub(super) fn is_quiet(&self) -> bool {
        let open = |txn: &crate::coordinator::Transaction| !txn.state.is_idle();
        self.way.is_empty() && !self.machine.state().iter().any(|(_, txn)| open(txn))
    }
}

fn told(answer: Answer) -> Result<Option<crate::Producer>, crate::TxnError> {
    match answer {
        Answer::Begun(said) | Answer::Ended(said) => said.map(Some),
        Answer::Added(said) => said.map(|_| None),
        other => panic!("nobody asked for {other:?}"),
    }
}
