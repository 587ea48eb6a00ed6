//! A shell for tests: a log, storage that writes at once or when it is told to, and what came out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hulse_proto::id::Offset;

use super::invariants;
use crate::*;

/// A stored batch.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) range: OffsetRange,
    pub(super) keys: Vec<Option<u16>>,
    pub(super) stamp: Option<(u16, u16)>,
}

/// Bytes of each record.
pub(super) const RECORD_BYTES: u64 = 100;

pub(super) struct World {
    pub(super) d: Dispatcher,
    pub(super) policy: Policy,
    pub(super) now: i64,
    pub(super) log: Vec<Stored>,
    pub(super) readable: u64,
    pub(super) durable: QueueState,
    pub(super) units: Vec<Unit>,
    pub(super) receipts: BTreeMap<u64, Vec<Status>>,
    pub(super) reads: VecDeque<ReadWanted>,
    pub(super) write: Option<(u64, QueueDelta)>,
    pub(super) letters: Vec<LetterWanted>,
    pub(super) blocked: Vec<(SessionId, BlockedReason, bool)>,
    pub(super) restarts: Vec<(SessionId, u32, u64)>,
    pub(super) moved: Vec<u64>,
    pub(super) reads_seen: Vec<ReadWanted>,
    /// First offsets of batches whose bytes are kept.
    pub(super) kept: BTreeSet<u64>,
    pub(super) reads_wait: bool,
    pub(super) writes_wait: bool,
    tickets: u64,
    is_told: bool,
}

pub(super) fn range(first: u64, end: u64) -> OffsetRange {
    OffsetRange::new(first, end)
}

pub(super) fn named(name: &str) -> NewSession {
    NewSession {
        name: name.into(),
        priority: 0,
        weight: 1,
        slots: Vec::new(),
    }
}

/// A policy whose changes are written at once.
pub(super) fn quick(kind: Kind) -> Policy {
    Policy {
        gather_ms: 0,
        reattach_grace_ms: 0,
        ..Policy::new(kind)
    }
}

/// Records of a unit.
pub(super) fn offsets(unit: &Unit) -> Vec<u64> {
    let ranges = unit.acquired.iter();
    ranges
        .flat_map(|it| it.range.first.0..it.range.end.0)
        .collect()
}

impl World {
    pub(super) fn new(policy: Policy) -> Self {
        let state = QueueState::default();
        Self {
            d: Dispatcher::open(policy.clone(), state.clone(), Offset(0), 1),
            policy,
            now: 1_000,
            log: Vec::new(),
            readable: 0,
            durable: state,
            units: Vec::new(),
            receipts: BTreeMap::new(),
            reads: VecDeque::new(),
            write: None,
            letters: Vec::new(),
            blocked: Vec::new(),
            restarts: Vec::new(),
            moved: Vec::new(),
            reads_seen: Vec::new(),
            kept: BTreeSet::new(),
            reads_wait: false,
            writes_wait: false,
            tickets: 0,
            is_told: std::env::var_os("HULSE_SEED").is_some(),
        }
    }

    /// Says what happens, of a history that is run by itself.
    pub(super) fn tell(&self, what: std::fmt::Arguments<'_>) {
        if self.is_told {
            eprintln!("{}: {what}", self.now);
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.log.last().map_or(0, |batch| batch.range.end.0)
    }

    /// Appends a batch without keys.
    pub(super) fn append(&mut self, records: u64) {
        self.append_keyed(&vec![None; records as usize]);
    }

    pub(super) fn append_keyed(&mut self, keys: &[Option<u16>]) {
        let first = self.end();
        self.log.push(Stored {
            range: range(first, first + keys.len() as u64),
            keys: keys.to_vec(),
            stamp: None,
        });
        self.readable = self.end();
        self.d.readable(Offset(self.readable));
    }

    pub(super) fn append_stamped(&mut self, keys: &[u16]) {
        let known: Vec<_> = keys.iter().copied().map(Some).collect();
        self.append_keyed(&known);
        let (min, max) = (keys.iter().min(), keys.iter().max());
        let last = self.log.last_mut().unwrap();
        last.stamp = min.copied().zip(max.copied());
    }

    /// Another owner takes over: what is not durable is gone.
    pub(super) fn reopen(&mut self) {
        self.tell(format_args!("another owner opens {:?}", self.durable));
        let state = self.durable.clone();
        self.d = Dispatcher::open(self.policy.clone(), state, Offset(self.readable), 2);
        self.reads.clear();
        self.write = None;
        self.kept.clear();
        self.letters.clear();
        self.receipts.clear();
        self.step();
    }

    /// Pumps until nothing happens at this moment.
    pub(super) fn step(&mut self) {
        loop {
            self.d.pump(self.now);
            invariants::check(&self.d);
            let effects = self.d.take_effects();
            let idle = effects.is_empty();
            for effect in effects {
                self.take(effect);
            }
            let mut more = false;
            if !self.reads_wait {
                while let Some(wanted) = self.reads.pop_front() {
                    self.answer_read(&wanted);
                    more = true;
                }
            }
            if !self.writes_wait && self.write.is_some() {
                self.written(Written::Done);
                more = true;
            }
            if idle && !more {
                return;
            }
        }
    }

    fn take(&mut self, effect: Effect) {
        self.tell(format_args!("{effect:?}"));
        match effect {
            Effect::Deliver(unit) => {
                assert!(
                    self.kept.contains(&unit.batch.first.0),
                    "{unit:?}: no bytes"
                );
                self.units.push(unit);
            }
            Effect::Read(wanted) => {
                self.reads_seen.push(wanted.clone());
                self.reads.push_back(wanted);
            }
            Effect::Forget(batch) => drop(self.kept.remove(&batch.first.0)),
            Effect::Write { seq, delta } => {
                assert!(self.write.is_none(), "two writes at once");
                self.write = Some((seq, delta));
            }
            Effect::Receipt {
                ticket, statuses, ..
            } => {
                let twice = self.receipts.insert(ticket, statuses);
                assert!(twice.is_none(), "two receipts for {ticket}");
            }
            Effect::Moved { ticket, .. } => self.moved.push(ticket),
            Effect::Restart {
                session,
                state_epoch,
                base,
            } => self.restarts.push((session, state_epoch, base.0)),
            Effect::Blocked {
                session,
                reason,
                over,
            } => self.blocked.push((session, reason, over)),
            Effect::Letter(letter) => self.letters.push(letter),
        }
    }

    /// Reads as the log has it.
    pub(super) fn answer_read(&mut self, wanted: &ReadWanted) {
        let mut batches = Vec::new();
        let (mut bytes, mut records, mut end) = (0, 0, wanted.from);
        for stored in &self.log {
            if stored.range.end <= wanted.from || stored.range.first >= wanted.to {
                continue;
            }
            let length = stored.range.len() * RECORD_BYTES;
            let full = bytes + length > wanted.bytes_max || records >= wanted.records_max;
            if full && !batches.is_empty() {
                break;
            }
            bytes += length;
            records += stored.range.len();
            let keys = match (wanted.hashes, stored.stamp) {
                (Hashes::No, _) => Keys::Unknown,
                (Hashes::Stamp, Some((min, max))) => Keys::Stamp(min, max),
                _ => Keys::Each(stored.keys.clone()),
            };
            batches.push(Batch {
                range: stored.range,
                bytes: length as u32,
                keys,
            });
            self.kept.insert(stored.range.first.0);
            end = stored.range.end;
        }
        let done = ReadDone {
            id: wanted.id,
            batches,
            skipped: Vec::new(),
            end,
        };
        self.d.read_done(done, self.now);
    }

    /// The write that is under way comes to this.
    pub(super) fn written(&mut self, outcome: Written) {
        let (seq, delta) = self.write.take().expect("a write is under way");
        self.tell(format_args!("write {seq} is {outcome:?}"));
        if outcome == Written::Done {
            self.durable.apply(&delta);
        }
        self.d.written(seq, outcome, self.now);
    }

    /// Time passes, deadline by deadline.
    pub(super) fn pass(&mut self, ms: i64) {
        let until = self.now + ms;
        self.step();
        while let Some(at) = self.d.next_deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.step();
        }
        self.now = until;
        self.step();
    }

    /// A consumer with credit for so many records.
    pub(super) fn join(&mut self, name: &str, records: u64) -> SessionId {
        self.join_as(&named(name), records)
    }

    pub(super) fn join_as(&mut self, new: &NewSession, records: u64) -> SessionId {
        let id = self.d.attach(new, Offset(0), self.now).unwrap();
        self.d.grant(id, records, 1 << 40);
        self.step();
        id
    }

    pub(super) fn leave(&mut self, id: SessionId, how: Leave) {
        self.d.detach(id, how, self.now);
        self.step();
    }

    pub(super) fn say(&mut self, id: SessionId, verdict: Verdict, ranges: &[(u64, u64)]) -> u64 {
        self.say_as(id, verdict, ranges, self.d.state_epoch, false)
    }

    pub(super) fn say_as(
        &mut self,
        session: SessionId,
        verdict: Verdict,
        ranges: &[(u64, u64)],
        state_epoch: u32,
        before: bool,
    ) -> u64 {
        self.tickets += 1;
        let ranges = ranges.iter().map(|(first, end)| range(*first, *end));
        let answer = Answer {
            session,
            ticket: self.tickets,
            state_epoch,
            ranges: ranges.collect(),
            verdict,
            before,
        };
        self.d.answer(&answer, self.now);
        self.step();
        self.tickets
    }

    /// Says it and does not pump.
    pub(super) fn note(
        &mut self,
        session: SessionId,
        verdict: Verdict,
        first: u64,
        end: u64,
    ) -> u64 {
        self.tickets += 1;
        let answer = Answer {
            session,
            ticket: self.tickets,
            state_epoch: self.d.state_epoch,
            ranges: vec![range(first, end)],
            verdict,
            before: false,
        };
        self.d.answer(&answer, self.now);
        self.tickets
    }

    pub(super) fn ack(&mut self, id: SessionId, first: u64, end: u64) -> Status {
        let ticket = self.say(id, Verdict::Ack, &[(first, end)]);
        self.status(ticket)
    }

    pub(super) fn nack(&mut self, id: SessionId, first: u64, end: u64) -> Status {
        let verdict = Verdict::Nack {
            failed: true,
            delay: Delay::None,
        };
        let ticket = self.say(id, verdict, &[(first, end)]);
        self.status(ticket)
    }

    /// The one status of a receipt that came.
    pub(super) fn status(&self, ticket: u64) -> Status {
        self.receipts[&ticket][0]
    }

    /// What was delivered since the last call: to whom, and which records.
    pub(super) fn got(&mut self) -> Vec<(SessionId, Vec<u64>)> {
        let units = std::mem::take(&mut self.units);
        units
            .iter()
            .map(|unit| (unit.session, offsets(unit)))
            .collect()
    }

    /// And how often each record failed.
    pub(super) fn got_counts(&mut self) -> Vec<(u64, u16, u16)> {
        let units = std::mem::take(&mut self.units);
        let items = units.iter().flat_map(|unit| &unit.acquired);
        items
            .map(|it| (it.range.first.0, it.acquired, it.failed))
            .collect()
    }
}
