//! A partition with its two chains, at an owner that may die: records, one subscription's acks, and a reader of committed records.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hulse_proto::entry::{BatchSummary, EntryKind, Envelope};
use hulse_proto::id::{Offset, ProducerId, SubscriptionId};
use hulse_proto::mutant::Mutation;
use serving_dispatch::{OffsetRange, OffsetRanges};
use uuid::Uuid;

use super::message::{Message, Part, Reply, Sent, To, What, answer, data, question, unknown};
use crate::coordinator::{MarkerOutcome, Participant, Parts};
use crate::partition::{
    BatchFacts, BatchVerdict, Door, Half, LogTransactions, OnItsWay, StateChange,
    StateTransactions, View,
};
use crate::{Marker, Producer, Ticket, TxnError};

const EXPIRY: Duration = Duration::from_secs(24 * 3600);

/// An entry of the log.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) first: u64,
    pub(super) envelope: Envelope,
    /// `None`: a marker.
    pub(super) value: Option<u64>,
}

/// An entry of the state: a change, and what the cursor acknowledges with it.
pub(super) type StateEntry = (StateChange, Vec<OffsetRange>);

pub(super) struct Marking {
    pub(super) told: (To, Message),
    log: u64,
    state: u64,
}

pub(super) struct Partition {
    index: usize,
    pub(super) log: Vec<Entry>,
    pub(super) states: Vec<StateEntry>,
    pub(super) l: LogTransactions,
    pub(super) m: StateTransactions,
    pub(super) acked: OffsetRanges,
    table: BTreeMap<ProducerId, (i16, i32)>,
    pub(super) door: Door,
    pub(super) log_way: VecDeque<(u64, Entry, Option<Reply>)>,
    pub(super) state_way: VecDeque<(u64, StateEntry, Option<Reply>)>,
    /// Numbers of appends so far.
    logged: u64,
    stated: u64,
    pub(super) marking: Vec<Marking>,
    pub(super) waiting: BTreeMap<(bool, Ticket), Vec<Part>>,
    pub(super) life: u32,
    stable: Offset,
    pub(super) position: Offset,
    /// What the reader was given.
    pub(super) seen: Vec<u64>,
    pub(super) mutation: Mutation,
}

pub(super) fn subscription() -> SubscriptionId {
    SubscriptionId(Uuid::from_u128(9))
}

impl Partition {
    pub(super) fn new(index: usize, mutation: Mutation) -> Self {
        Self {
            index,
            log: Vec::new(),
            states: Vec::new(),
            l: LogTransactions::default(),
            m: StateTransactions::default(),
            acked: OffsetRanges::default(),
            table: BTreeMap::new(),
            door: Door::mutated(mutation),
            log_way: VecDeque::new(),
            state_way: VecDeque::new(),
            logged: 0,
            stated: 0,
            marking: Vec::new(),
            waiting: BTreeMap::new(),
            life: 1,
            stable: Offset(0),
            position: Offset(0),
            seen: Vec::new(),
            mutation,
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        View {
            log: &self.l,
            state: &self.m,
        }
    }

    pub(super) fn hear(&mut self, now: i64, message: Message) -> Sent {
        match message {
            Message::Part(part) => self.part(now, part),
            Message::Mark {
                shard,
                id,
                to,
                parts,
                marker,
            } => {
                let judged = self.mark(now, &marker, parts);
                let outcome = match &judged {
                    Ok(_) => MarkerOutcome::Applied,
                    Err(error) => MarkerOutcome::Refused(error.clone()),
                };
                let message = Message::Outcome {
                    epoch: marker.coordinator_epoch as u32,
                    id,
                    serial: marker.serial,
                    to,
                    outcome,
                };
                let told = (To::Coordinator(shard), message);
                match judged {
                    Ok((log, state)) => {
                        self.marking.push(Marking { told, log, state });
                        self.tell_marked()
                    }
                    Err(_) => vec![told],
                }
            }
            Message::Verified {
                life,
                producer,
                ticket,
                acks,
                answer: said,
            } if life == self.life => {
                let takes_part = said.is_ok();
                let waiting = self.waiting.remove(&(acks, ticket)).unwrap_or_default();
                let may = match acks {
                    true => self.door.verified_acks(producer, ticket, takes_part),
                    false => self.door.verified_batches(producer, ticket, takes_part),
                };
                if may {
                    let parts = waiting.into_iter();
                    return parts.flat_map(|part| self.part(now, part)).collect();
                }
                let error = said.err().unwrap_or(TxnError::Concurrent);
                let told = waiting.iter();
                told.map(|part| answer(&part.reply, Err(error.clone())))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    fn part(&mut self, now: i64, part: Part) -> Sent {
        let judged = match part.what {
            What::Write { sequence, value } => self.write(now, &part, sequence, value),
            What::Ack(record) => self.ack(now, &part, record),
            What::Offset(_) => panic!("{part:?} is not for a partition"),
        };
        let acks = matches!(part.what, What::Ack(_));
        match judged {
            Err(error) => vec![answer(&part.reply, Err(error))],
            Ok(None) => Vec::new(),
            Ok(Some(BatchVerdict::Append)) => vec![answer(&part.reply, Ok(None))],
            Ok(Some(BatchVerdict::Verify(ticket))) => {
                let reply = Reply::Owner {
                    place: To::Partition(self.index),
                    life: self.life,
                    producer: part.producer,
                    ticket,
                    acks,
                };
                let parts = if acks { Parts::ACKS } else { Parts::DATA };
                let participant = Participant::Partition(data(self.index));
                let asked = question(&part, participant, parts, reply);
                self.waiting.entry((acks, ticket)).or_default().push(part);
                vec![asked]
            }
        }
    }

    /// `Ok(None)`: it is answered when it is durable; `Append`: it is so already.
    fn write(
        &mut self,
        now: i64,
        part: &Part,
        sequence: i32,
        value: u64,
    ) -> Result<Option<BatchVerdict>, TxnError> {
        let producer = part.producer;
        let view = View {
            log: &self.l,
            state: &self.m,
        };
        let epoch = self.door.epoch(view, producer.id);
        if producer.epoch < epoch {
            let known = Producer { epoch, ..producer };
            let found = producer;
            return Err(TxnError::Fenced { found, known });
        }
        let is_it = |batch: &BatchSummary| {
            let same = (batch.producer_id, batch.producer_epoch) == (producer.id, producer.epoch);
            same && batch.base_sequence == sequence
        };
        let same = |(_, entry, _): &&mut (u64, Entry, Option<Reply>)| {
            entry.value.is_some() && is_it(&entry.envelope.batches[0])
        };
        if let Some((_, _, reply)) = self.log_way.iter_mut().find(same) {
            *reply = Some(part.reply.clone());
            return Ok(None);
        }
        let way = self.log_way.iter().rev();
        let way = way.filter(|(_, entry, _)| entry.value.is_some());
        let mut way = way.map(|(_, entry, _)| &entry.envelope.batches[0]);
        let last = way.find(|batch| batch.producer_id == producer.id);
        let last = last.map(|batch| (batch.producer_epoch, batch.base_sequence));
        let last = last.or_else(|| self.table.get(&producer.id).copied());
        let expected = match last {
            Some((epoch, last)) if epoch == producer.epoch && sequence <= last => {
                return Ok(Some(BatchVerdict::Append));
            }
            Some((epoch, last)) if epoch == producer.epoch => last + 1,
            Some(_) => 0,
            None => sequence,
        };
        if sequence != expected {
            return Err(TxnError::Overtaken { first: expected });
        }
        let facts = BatchFacts {
            producer,
            first_sequence: sequence,
            transactional: true,
            version: part.version,
            known: last.is_some(),
        };
        let view = View {
            log: &self.l,
            state: &self.m,
        };
        match self.door.judge_batch(view, &facts)? {
            BatchVerdict::Append => {
                let batch = BatchSummary {
                    attributes: 1 << 4,
                    base_sequence: sequence,
                    hash_min: 0,
                    hash_max: 0,
                    expires_at: 0,
                    producer_id: producer.id,
                    producer_epoch: producer.epoch,
                    ..filler(now)
                };
                self.append(now, EntryKind::Data, batch, Some(value));
                self.log_way.back_mut().expect("it was put there").2 = Some(part.reply.clone());
                let number = self.logged;
                self.door.sent_to_log(number, OnItsWay::Batch(producer));
                Ok(None)
            }
            verify => Ok(Some(verify)),
        }
    }

    fn append(&mut self, now: i64, kind: EntryKind, batch: BatchSummary, value: Option<u64>) {
        self.logged += 1;
        let first = self.log.len() as u64 + self.log_way.len() as u64;
        let envelope = Envelope {
            kind,
            append_time: now,
            running_max_timestamp: now,
            batches: vec![batch],
        };
        let entry = Entry {
            first,
            envelope,
            value,
        };
        self.log_way.push_back((self.logged, entry, None));
    }

    fn ack(
        &mut self,
        now: i64,
        part: &Part,
        record: u64,
    ) -> Result<Option<BatchVerdict>, TxnError> {
        let range = OffsetRange::new(record, record + 1);
        let mut way = self.state_way.iter().flat_map(|(_, (_, acks), _)| acks);
        // It is nobody's any more: the dispatcher says so.
        if self.acked.within(range).next().is_some() || way.any(|acked| acked.contains(range.first))
        {
            return Err(TxnError::Conflict);
        }
        let stages = vec![(subscription(), vec![range])];
        let view = View {
            log: &self.l,
            state: &self.m,
        };
        match self.door.judge_acks(view, part.producer, &stages)? {
            BatchVerdict::Append => {
                let producer = part.producer;
                let staged = OnItsWay::Staged(producer, stages.clone());
                let at = now;
                let change = StateChange::Staged {
                    at,
                    producer,
                    stages,
                };
                self.write_state((change, Vec::new()), Some(part.reply.clone()));
                self.door.sent_to_state(self.stated, staged);
                Ok(None)
            }
            verify => Ok(Some(verify)),
        }
    }

    fn write_state(&mut self, entry: StateEntry, reply: Option<Reply>) {
        self.stated += 1;
        self.state_way.push_back((self.stated, entry, reply));
    }

    /// Up to where both chains must be confirmed.
    fn mark(&mut self, now: i64, marker: &Marker, parts: Parts) -> Result<(u64, u64), TxnError> {
        let view = View {
            log: &self.l,
            state: &self.m,
        };
        let plan = self.door.judge_marker(view, marker, parts)?;
        if plan.log == Half::Write {
            self.append(now, EntryKind::Control, marker.summary(now), None);
            self.door
                .sent_to_log(self.logged, OnItsWay::Marker(*marker));
        }
        if plan.state == Half::Write {
            let staged = self.m.staged_by(marker.producer.id).into_iter();
            let acks = match marker.commit {
                true => staged.flat_map(|(_, ranges)| ranges).collect(),
                false => Vec::new(),
            };
            let settled = StateChange::Settled {
                at: now,
                marker: *marker,
            };
            self.write_state((settled, acks), None);
            self.door
                .sent_to_state(self.stated, OnItsWay::Settled(*marker));
        }
        let until = |half, number| if half == Half::Done { 0 } else { number };
        Ok((until(plan.log, self.logged), until(plan.state, self.stated)))
    }

    fn tell_marked(&mut self) -> Sent {
        let log = self.log_way.front().map_or(u64::MAX, |(n, ..)| *n);
        let state = self.state_way.front().map_or(u64::MAX, |(n, ..)| *n);
        let (told, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.marking)
            .into_iter()
            .partition(|marking| marking.log < log && marking.state < state);
        self.marking = later;
        told.into_iter().map(|marking| marking.told).collect()
    }

    pub(super) fn confirm_log(&mut self) -> Sent {
        let Some((number, entry, reply)) = self.log_way.pop_front() else {
            return Vec::new();
        };
        self.fold(&entry);
        self.log.push(entry);
        self.door.log_confirmed(number);
        self.check_stable();
        let mut sent = self.tell_marked();
        sent.extend(reply.map(|reply| answer(&reply, Ok(None))));
        sent
    }

    pub(super) fn fold(&mut self, entry: &Entry) {
        apply_log(&mut self.l, entry);
        let batch = &entry.envelope.batches[0];
        if entry.value.is_some() {
            let last = (batch.producer_epoch, batch.base_sequence);
            self.table.insert(batch.producer_id, last);
        }
    }

    pub(super) fn confirm_state(&mut self) -> Sent {
        let Some((number, entry, reply)) = self.state_way.pop_front() else {
            return Vec::new();
        };
        apply_state(&mut self.m, &mut self.acked, &entry);
        self.states.push(entry);
        self.door.state_confirmed(number);
        let mut sent = self.tell_marked();
        sent.extend(reply.map(|reply| answer(&reply, Ok(None))));
        sent
    }

    pub(super) fn check_stable(&mut self) {
        let stable = self.door.stable(self.view());
        assert!(stable >= self.stable, "the last stable offset falls");
        self.stable = stable;
    }

    /// The storage refuses all that is on its way to the log, and goes on (C3).
    pub(super) fn log_fails(&mut self) -> Sent {
        let Some((number, ..)) = self.log_way.front() else {
            return Vec::new();
        };
        self.door.log_failed(*number);
        let failed: Vec<_> = self.log_way.drain(..).collect();
        // Whoever waits for a marker asks again.
        let marking = std::mem::take(&mut self.marking).into_iter();
        let mut sent: Sent = marking
            .filter_map(|marking| unknown(marking.told))
            .collect();
        let replies = failed.into_iter().filter_map(|(_, _, reply)| reply);
        sent.extend(replies.map(|reply| answer(&reply, Err(TxnError::Busy))));
        sent
    }

    pub(super) fn end(&self) -> Offset {
        self.l.end
    }

    /// What of transactions is open here, durably.
    pub(super) fn open(&self) -> impl Iterator<Item = (Participant, Producer, Parts)> {
        let place = Participant::Partition(data(self.index));
        let log = self.l.producers();
        let log = log.filter(|(_, known)| known.open.is_some());
        let log = log.map(|(id, known)| (*id, known.epoch, Parts::DATA));
        let state = self.m.producers().filter(|(_, known)| known.open);
        let state = state.map(|(id, known)| (*id, known.epoch, Parts::ACKS));
        log.chain(state)
            .map(move |(id, epoch, parts)| (place, Producer { id, epoch }, parts))
    }

    /// Nothing is open, and nothing on its way.
    pub(super) fn is_quiet(&self) -> bool {
        let staged = !self.m.staged_of(subscription()).is_empty();
        let ways = self.log_way.is_empty() && self.state_way.is_empty();
        ways && !staged && self.l.stable() == self.l.end
    }
}

pub(super) fn apply_log(l: &mut LogTransactions, entry: &Entry) {
    let (first, end) = (Offset(entry.first), Offset(entry.first + 1));
    l.apply(first, end, &entry.envelope, EXPIRY);
}

pub(super) fn apply_state(
    m: &mut StateTransactions,
    acked: &mut OffsetRanges,
    (change, acks): &StateEntry,
) {
    m.apply(change);
    for range in acks {
        assert_eq!(
            acked.insert(*range),
            range.len(),
            "{range:?} is acknowledged twice"
        );
    }
}

/// A batch of one record of nobody.
fn filler(now: i64) -> BatchSummary {
    BatchSummary {
        length: 70,
        span: 1,
        count: 1,
        producer_id: ProducerId::NONE,
        producer_epoch: -1,
        attributes: 0,
        base_sequence: -1,
        max_timestamp: now,
        hash_min: 0,
        hash_max: 0,
        expires_at: 0,
        base_timestamp: now,
    }
}
