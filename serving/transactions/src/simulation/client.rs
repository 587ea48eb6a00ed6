//! A producer: it begins, runs transactions one after the other, asks again when it hears nothing, and begins anew when it is fenced.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;

use super::message::{Message, PARTITIONS, Part, Reply, Sent, To, What, data, groups, shard_of};
use super::oracle::Oracle;
use crate::coordinator::{Participant, Parts, Request};
use crate::{Producer, TxnError, Version};

/// It asks again when it has heard nothing for so long. Ms.
const PATIENCE_MS: i64 = 250;
const TIMEOUT_MS: u32 = 20_000;
/// Records of a partition that are somebody's at once: transactions that run beside each other acknowledge the same ones.
const RECORDS: u64 = 3;

/// One step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    /// TV1: the client adds a participant.
    Add(Participant),
    Write {
        partition: usize,
        value: u64,
    },
    Ack {
        partition: usize,
        record: u64,
    },
    Offset(u64),
}

#[derive(Debug, Clone)]
struct Txn {
    number: u64,
    ops: VecDeque<Op>,
    commit: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Client {
    index: usize,
    id: Arc<str>,
    version: Version,
    producer: Option<Producer>,
    /// It asks for another epoch before it goes on.
    bump: bool,
    sequences: BTreeMap<usize, i32>,
    txn: Option<Txn>,
    call: u64,
    waits: Option<i64>,
    /// It begins no transaction any more.
    pub(super) ending: bool,
    pub(super) dead: bool,
}

impl Client {
    pub(super) fn new(index: usize, id: Arc<str>, version: Version) -> Self {
        Self {
            index,
            id,
            version,
            producer: None,
            bump: false,
            sequences: BTreeMap::new(),
            txn: None,
            call: 0,
            waits: None,
            ending: false,
            dead: false,
        }
    }

    pub(super) fn id(&self) -> Arc<str> {
        self.id.clone()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.dead || (self.ending && self.txn.is_none() && self.waits.is_none())
    }

    pub(super) fn act(&mut self, now: i64, rng: &mut ChaCha12Rng, oracle: &mut Oracle) -> Sent {
        let waits = self.waits.is_some_and(|since| now - since < PATIENCE_MS);
        if self.dead || waits {
            return Vec::new();
        }
        // It may give up what it is not answered; else it makes the same call again.
        let gives_up = self.waits.is_some() && rng.random_ratio(1, 3);
        if let Some(txn) = self.txn.as_mut().filter(|_| gives_up && !self.bump)
            && !txn.ops.is_empty()
        {
            txn.ops.clear();
            txn.commit = false;
            self.waits = None;
        }
        if self.waits.is_none() {
            self.call += 1;
        }
        let ready = self.producer.is_some() && !self.bump;
        if ready && self.txn.is_none() {
            if self.ending {
                return Vec::new();
            }
            self.txn = Some(self.plan(rng, oracle));
        }
        self.waits = Some(now);
        vec![self.request(oracle)]
    }

    fn plan(&self, rng: &mut ChaCha12Rng, oracle: &mut Oracle) -> Txn {
        let number = oracle.begin();
        let mut ops = VecDeque::new();
        let add = |ops: &mut VecDeque<Op>, participant| {
            let op = Op::Add(participant);
            if self.version == Version::Tv1 && !ops.contains(&op) {
                ops.push_back(op);
            }
        };
        for step in 0..rng.random_range(1..5_u64) {
            let partition = rng.random_range(0..PARTITIONS);
            match rng.random_range(0..10) {
                0..3 if self.version == Version::Tv2 => {
                    let record = number / 4 + rng.random_range(0..RECORDS);
                    ops.push_back(Op::Ack { partition, record });
                }
                3 => {
                    add(&mut ops, Participant::Groups(groups()));
                    ops.push_back(Op::Offset(number));
                }
                _ => {
                    let value = number * 16 + step;
                    add(&mut ops, Participant::Partition(data(partition)));
                    ops.push_back(Op::Write { partition, value });
                }
            }
        }
        let commit = *[true, true, false].choose(rng).expect("there are three");
        Txn {
            number,
            ops,
            commit,
        }
    }

    fn request(&mut self, oracle: &mut Oracle) -> (To, Message) {
        let reply = Reply::Client(self.index, self.call);
        let id = self.id.clone();
        let shard = To::Coordinator(shard_of(&id));
        let (Some(producer), false) = (self.producer, self.bump) else {
            let request = Request::Init {
                id,
                timeout_ms: TIMEOUT_MS,
                expected: self.producer,
            };
            return (shard, Message::Ask(request, reply));
        };
        let txn = self.txn.as_ref().expect("it has begun one");
        let version = self.version;
        let Some(op) = txn.ops.front().copied() else {
            oracle.ends(txn.number, txn.commit);
            let request = Request::End {
                id,
                producer,
                version,
                commit: txn.commit,
            };
            return (shard, Message::Ask(request, reply));
        };
        oracle.does(txn.number, op);
        let (to, what) = match op {
            Op::Add(participant) => {
                let parts = match participant {
                    Participant::Partition(_) => Parts::DATA,
                    Participant::Groups(_) => Parts::default(),
                };
                let request = Request::Add {
                    id,
                    producer,
                    version,
                    participants: [(participant, parts)].into(),
                    verify_only: false,
                };
                return (shard, Message::Ask(request, reply));
            }
            Op::Write { partition, value } => {
                let sequence = self.sequences.get(&partition).copied().unwrap_or(0);
                (To::Partition(partition), What::Write { sequence, value })
            }
            Op::Ack { partition, record } => (To::Partition(partition), What::Ack(record)),
            Op::Offset(value) => (To::Groups, What::Offset(value)),
        };
        let part = Part {
            id,
            producer,
            version,
            what,
            reply,
        };
        (to, Message::Part(part))
    }

    pub(super) fn hear(
        &mut self,
        call: u64,
        said: Result<Option<Producer>, TxnError>,
        oracle: &mut Oracle,
    ) {
        if call != self.call || self.waits.is_none() || self.dead {
            return;
        }
        let error = match said {
            Ok(producer) => return self.done(producer, oracle),
            Err(error) => error,
        };
        match error {
            // It asks again when its patience is at an end.
            TxnError::Concurrent | TxnError::Busy => {}
            TxnError::Fenced { .. } | TxnError::WrongProducer => self.dead = true,
            TxnError::InvalidState(_) if self.gave_up_before_it_began() => {
                (self.txn, self.waits) = (None, None);
                self.bump = true;
            }
            error => {
                let asked_to_end = self.txn.as_ref().is_some_and(|txn| txn.ops.is_empty());
                if self.producer.is_none() || self.bump || asked_to_end {
                    assert!(
                        !matches!(error, TxnError::InvalidState(_)),
                        "{self:?} hears {error}"
                    );
                    self.dead = true;
                } else if let Some(txn) = &mut self.txn {
                    txn.ops.clear();
                    txn.commit = false;
                    self.waits = None;
                }
            }
        }
    }

    /// TV1: nothing was added, or nobody knows, and there is nothing to abort.
    fn gave_up_before_it_began(&self) -> bool {
        let gave_up = |txn: &Txn| txn.ops.is_empty() && !txn.commit;
        self.version == Version::Tv1 && self.txn.as_ref().is_some_and(gave_up)
    }

    fn done(&mut self, producer: Option<Producer>, oracle: &mut Oracle) {
        self.waits = None;
        if self.producer.is_none() || self.bump {
            self.begun(producer);
            self.bump = false;
            return;
        }
        let Some(txn) = &mut self.txn else {
            return;
        };
        match txn.ops.pop_front() {
            Some(Op::Write { partition, .. }) => {
                *self.sequences.entry(partition).or_default() += 1;
            }
            Some(_) => {}
            None => {
                oracle.ended(txn.number, txn.commit);
                // What it gave up may still be on its way: under the same epoch it could come into the next transaction.
                self.bump = self.version == Version::Tv1 && !txn.commit;
                self.txn = None;
                self.begun(producer);
            }
        }
    }

    fn begun(&mut self, producer: Option<Producer>) {
        if self.producer != producer {
            self.sequences.clear();
        }
        self.producer = producer;
    }
}
