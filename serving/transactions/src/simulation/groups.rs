//! A shard of groups with its chain: one group, one partition, one offset.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hulse_proto::id::{Offset, PartitionId};
use hulse_proto::mutant::Mutation;
use rand::Rng;
use rand_chacha::ChaCha12Rng;

use super::message::{
    Message, Part, Reply, Sent, To, What, answer, data, groups, question, unknown,
};
use crate::coordinator::{MarkerOutcome, Participant, Parts};
use crate::group::{OffsetStages, StageChange, StageDoor, StagedOffset};
use crate::{Producer, Ticket};

/// What the chain has.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Record {
    Change(StageChange),
    Plain(u64),
}

/// A record with its bytes.
type Written = (Bytes, Record);

pub(super) struct GroupShard {
    stages: OffsetStages,
    pub(super) offset: Option<u64>,
    door: StageDoor,
    pub(super) chain: Vec<Written>,
    way: VecDeque<(Written, Sent)>,
    waiting: BTreeMap<Ticket, Vec<Part>>,
    life: u32,
    mutation: Mutation,
}

pub(super) fn group() -> (Arc<str>, PartitionId) {
    ("g".into(), data(0))
}

fn apply(stages: &mut OffsetStages, offset: &mut Option<u64>, record: &Record) {
    match record {
        Record::Change(change) => {
            let before = StageChange::decode_from(&mut &encode(change)[..]).unwrap();
            for committed in stages.apply(&before) {
                *offset = Some(committed.offset.offset.0);
            }
        }
        Record::Plain(value) => {
            let (group, partition) = group();
            stages.apply(&StageChange::Overtaken { group, partition });
            *offset = Some(*value);
        }
    }
}

fn encode(change: &StageChange) -> Bytes {
    let mut out = BytesMut::new();
    change.encode_into(&mut out);
    out.freeze()
}

impl GroupShard {
    pub(super) fn new(mutation: Mutation) -> Self {
        Self {
            stages: OffsetStages::default(),
            offset: None,
            door: StageDoor::mutated(mutation),
            chain: Vec::new(),
            way: VecDeque::new(),
            waiting: BTreeMap::new(),
            life: 1,
            mutation,
        }
    }

    fn propose(&mut self, record: Record, told: Sent) {
        apply(&mut self.stages, &mut self.offset, &record);
        let bytes = match &record {
            Record::Change(change) => encode(change),
            Record::Plain(_) => Bytes::new(),
        };
        self.way.push_back(((bytes, record), told));
    }

    /// When all that was proposed is durable.
    fn tell(&mut self, told: (To, Message)) -> Sent {
        match self.way.back_mut() {
            Some((_, waits)) => {
                waits.push(told);
                Vec::new()
            }
            None => vec![told],
        }
    }

    pub(super) fn hear(&mut self, now: i64, message: Message) -> Sent {
        match message {
            Message::Part(part) => self.stage(now, part),
            Message::Plain(value) => {
                self.propose(Record::Plain(value), Vec::new());
                Vec::new()
            }
            Message::Verified {
                life,
                producer,
                ticket,
                answer: said,
                ..
            } if life == self.life => {
                let takes_part = said.is_ok();
                let waiting = self.waiting.remove(&ticket).unwrap_or_default();
                if self.door.verified(producer, ticket, takes_part) {
                    return waiting
                        .into_iter()
                        .flat_map(|part| self.stage(now, part))
                        .collect();
                }
                let error = said.err().unwrap_or(crate::TxnError::Concurrent);
                let told = waiting
                    .iter()
                    .map(|part| answer(&part.reply, Err(error.clone())));
                told.collect()
            }
            Message::Mark {
                shard,
                id,
                to,
                marker,
                ..
            } => {
                let outcome = |outcome| {
                    let message = Message::Outcome {
                        epoch: marker.coordinator_epoch as u32,
                        id,
                        serial: marker.serial,
                        to,
                        outcome,
                    };
                    (To::Coordinator(shard), message)
                };
                match self.door.judge_marker(&self.stages, &marker) {
                    Err(error) => vec![outcome(MarkerOutcome::Refused(error))],
                    Ok(true) => {
                        let settled = StageChange::Settled { at: now, marker };
                        let told = vec![outcome(MarkerOutcome::Applied)];
                        self.propose(Record::Change(settled), told);
                        Vec::new()
                    }
                    Ok(false) => self.tell(outcome(MarkerOutcome::Applied)),
                }
            }
            _ => Vec::new(),
        }
    }

    fn stage(&mut self, now: i64, part: Part) -> Sent {
        let What::Offset(value) = part.what else {
            panic!("{part:?} is not for groups");
        };
        match self.door.judge(&self.stages, part.producer, 1) {
            Err(error) => vec![answer(&part.reply, Err(error))],
            Ok(None) => {
                let (group, partition) = group();
                let offset = StagedOffset {
                    offset: Offset(value),
                    leader_epoch: 1,
                    metadata: None,
                    at: now,
                };
                let staged = StageChange::Staged {
                    at: now,
                    producer: part.producer,
                    group,
                    offsets: vec![(partition, offset)],
                };
                self.propose(Record::Change(staged), vec![answer(&part.reply, Ok(None))]);
                self.door.staged(part.producer);
                Vec::new()
            }
            Ok(Some(ticket)) => {
                let reply = Reply::Owner {
                    place: To::Groups,
                    life: self.life,
                    producer: part.producer,
                    ticket,
                    acks: false,
                };
                let participant = Participant::Groups(groups());
                let asked = question(&part, participant, Parts::default(), reply);
                self.waiting.entry(ticket).or_default().push(part);
                vec![asked]
            }
        }
    }

    pub(super) fn confirm(&mut self) -> Sent {
        match self.way.pop_front() {
            Some((record, told)) => {
                self.chain.push(record);
                told
            }
            None => Vec::new(),
        }
    }

    pub(super) fn kill(&mut self, rng: &mut ChaCha12Rng) -> Sent {
        let all = self.way.len();
        let landed = rng.random_range(0..=all);
        let mut sent = Vec::new();
        for (number, (record, told)) in self.way.drain(..).enumerate() {
            if number < landed {
                self.chain.push(record);
            }
            sent.extend(told.into_iter().filter_map(unknown));
        }
        let (mut stages, mut offset) = (OffsetStages::default(), None);
        for (_, record) in &self.chain {
            apply(&mut stages, &mut offset, record);
        }
        stages = OffsetStages::decode(&stages.encode()).unwrap();
        if landed == all {
            assert_eq!(stages, self.stages, "live is not replay");
        }
        (self.stages, self.offset) = (stages, offset);
        self.door = StageDoor::mutated(self.mutation);
        self.waiting.clear();
        self.life += 1;
        sent
    }

    /// Whose offsets are staged.
    pub(super) fn open(&self) -> impl Iterator<Item = (Participant, Producer, Parts)> {
        let open = self.stages.producers().filter(|(_, known)| known.open);
        open.map(|(id, known)| {
            let epoch = known.epoch;
            let producer = Producer { id: *id, epoch };
            (Participant::Groups(groups()), producer, Parts::default())
        })
    }

    pub(super) fn is_quiet(&self) -> bool {
        let (group, partition) = group();
        self.way.is_empty() && !self.stages.is_unstable(&group, partition)
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.chain.iter().map(|(_, record)| record)
    }
}
