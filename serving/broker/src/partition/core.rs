//! The partition's state machine: judges, numbers, coalesces, answers. No I/O, no clock, no task.
//!
//! # Invariants
//! 1. Offsets are assigned in the order in which batches are accepted, without gaps (storage.md W1).
//! 2. Judging looks at what was *accepted* (`accepted`), answering at what is *confirmed* (`state`): a duplicate of a batch that is
//!    not durable yet waits for it and never gets a success from memory alone (serving.md C2.4).
//! 3. After a failure nothing more is accepted or sent: entries of unknown fate are decided by the next take-over (C3).
//!
//! `T` names who waits for an answer: a channel in production, a number in simulation.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hulse_proto::batch::{self, BatchHeader};
use hulse_proto::entry::{EntryClass, EntryKind, Envelope, NewEntry};
use hulse_proto::error::Fault;
use hulse_proto::id::{EntryId, Offset, OwnerEpoch, PartitionId};
use hulse_proto::limits::ENTRY_BATCHES_MAX;
use hulse_proto::mutant::{Mutant, Mutation};
use hulse_proto::time::TimestampMs;

use super::accepted::{Accepted, batch_summary};
use super::handle::Produced;
use super::owed::Owed;
use super::refusing::not_applied;
use crate::log::LogEntry;
use crate::state::{MetaRecord, MetaState, PartitionState, Producers, Verdict};

/// An entry is closed at this size; a single batch may be larger.
const COALESCE_BYTES_MAX: usize = 2 << 20;
/// With appends in flight, a further one is sent only when this much waits: small batches coalesce, large ones pipeline.
const PIPELINE_BYTES_MIN: usize = 256 << 10;
/// Entries sent and not confirmed.
const IN_FLIGHT_MAX: usize = 8;
/// A snapshot is due after so many confirmed entries (serving.md, amendment to C4.2) …
const SNAPSHOT_ENTRIES: u64 = 10_000;
/// … or bytes.
const SNAPSHOT_BYTES: u64 = 64 << 20;
/// After a snapshot failed, the next try waits this long.
const SNAPSHOT_RETRY: TimestampMs = 5_000;

/// What the state machine wants done, in order.
#[derive(Debug)]
pub(crate) enum Effect<T> {
    /// Tell who waits.
    Answer {
        ticket: T,
        result: Result<Produced, Fault>,
    },
    /// Append to the open log ledger.
    Append(NewEntry),
    /// Make the first log ledger of this owner; answer with `log_opened`.
    OpenLog { base: Offset },
    /// Close the log ledger after what was sent and make the next; answer with `log_opened`, or with `log_kept` when that cannot
    /// be done now.
    RollLog { base: Offset },
    /// The log ledger rested: look whether it is still good before it is written to (storage.md W15), and roll it if its bookies are
    /// gone; answer with `log_verified` or `log_opened`.
    VerifyLog { base: Offset },
    /// The entry is confirmed: readers may see it.
    Confirmed(LogEntry),
    /// Write [`PartitionCore::snapshot_records`], taken when no delta is in flight; answer with `snapshot_done`.
    Snapshot,
}

/// Fixed facts of an open partition.
#[derive(Debug, Clone)]
pub(crate) struct CoreConfig {
    pub(crate) partition: PartitionId,
    pub(crate) epoch: OwnerEpoch,
    pub(crate) producer_expiry: Duration,
    pub(crate) roll_bytes: u64,
    pub(crate) roll_age: Duration,
    /// Entries that a take-over would replay from which on the first entry of a ledger is followed by a snapshot.
    pub(crate) snapshot_entries_min: u64,
    /// Records are given the time of their append.
    pub(crate) log_append_time: bool,
    /// Payload bytes in flight from which on nothing more is sent: the permits of a ledger's writer (storage.md W2). An append
    /// that finds no room there would end the partition.
    pub(crate) in_flight_bytes_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ledger {
    /// None yet: nothing was produced under this owner.
    None,
    /// Not to be written to now: being made, rolled, looked at or closed. Entries wait.
    Coming,
    /// Takes entries.
    Open,
}

#[derive(Debug)]
pub(super) struct InFlight<T> {
    pub(super) entry: LogEntry,
    pub(super) tickets: Vec<(Offset, T)>,
}

/// One open partition.
#[derive(Debug)]
pub(crate) struct PartitionCore<M, T> {
    pub(super) config: CoreConfig,
    /// Confirmed.
    pub(super) state: PartitionState<M>,
    /// Producers as of the last accepted batch.
    pub(super) accepted: Producers,
    /// What was refused of producers that `accepted` does not know.
    pub(super) owed: Owed,
    pub(super) next_offset: Offset,
    pub(super) sent_end: Offset,
    pub(super) last_append_time: TimestampMs,
    pub(super) running_max: TimestampMs,
    pub(super) queue: VecDeque<Accepted<T>>,
    pub(super) queue_bytes: usize,
    pub(super) in_flight: VecDeque<InFlight<T>>,
    pub(super) in_flight_bytes: usize,
    /// Duplicates of batches that are not confirmed yet, by the batch's base offset.
    pub(super) duplicates: BTreeMap<Offset, Vec<T>>,
    pub(super) ledger: Ledger,
    pub(super) ledger_bytes: u64,
    pub(super) ledger_opened_at: TimestampMs,
    /// The ledger's ensemble changed too often (W15).
    pub(super) worn: bool,
    /// New ledgers have other quorums.
    pub(super) outdated: bool,
    /// A roll of a worn ledger was not possible: not tried again before.
    pub(super) worn_not_before: TimestampMs,
    /// The last sign of life of the log ledger.
    pub(super) active_at: TimestampMs,
    pub(super) first_entry_pending: bool,
    pub(super) since_snapshot: (u64, u64),
    pub(super) snapshot_running: Option<(u64, u64)>,
    pub(super) snapshot_not_before: TimestampMs,
    /// Up to where the snapshot goes that is being written …
    pub(super) snapshot_end: Offset,
    /// … and the newest one that is confirmed.
    pub(super) covered: Offset,
    /// Boxed, as `full`: thousands of partitions are open, and nearly none has one.
    pub(super) failed: Option<Box<Fault>>,
    /// Storage takes no records (amended D1).
    pub(super) full: Option<Box<Fault>>,
    pub(super) effects: Vec<Effect<T>>,
    pub(super) mutation: Mutation,
}

impl<M: MetaState, T> PartitionCore<M, T> {
    /// A partition after its take-over. `replayed` is how many entries the replay read: the length the next one would have.
    pub(crate) fn new(
        config: CoreConfig,
        state: PartitionState<M>,
        next_offset: Offset,
        replayed: u64,
    ) -> Self {
        Self {
            config,
            accepted: state.log.producers.clone(),
            owed: Owed::default(),
            last_append_time: state.log.append_time,
            running_max: state.log.running_max_timestamp,
            state,
            next_offset,
            sent_end: next_offset,
            queue: VecDeque::new(),
            queue_bytes: 0,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            duplicates: BTreeMap::new(),
            ledger: Ledger::None,
            ledger_bytes: 0,
            ledger_opened_at: 0,
            worn: false,
            outdated: false,
            worn_not_before: 0,
            active_at: 0,
            first_entry_pending: false,
            since_snapshot: (replayed, 0),
            snapshot_running: None,
            snapshot_not_before: 0,
            snapshot_end: Offset(0),
            covered: Offset(0),
            failed: None,
            full: None,
            effects: Vec::new(),
            mutation: Mutation::default(),
        }
    }

    /// The same with a rule switched off.
    pub(crate) fn mutated(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    /// What was confirmed.
    pub(crate) fn state(&self) -> &PartitionState<M> {
        &self.state
    }

    /// Takes what is to be done, in order.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect<T>> {
        std::mem::take(&mut self.effects)
    }

    /// True when nothing waits and nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty()
    }

    /// Accepts or refuses one batch whose own checks have passed (serving.md C2.3–C2.6). `now` is the owner's clock. Call
    /// [`PartitionCore::flush`] after a run.
    pub(crate) fn produce(
        &mut self,
        header: BatchHeader,
        batch: &Bytes,
        ticket: T,
        now: TimestampMs,
    ) {
        if let Some(fault) = &self.failed {
            let fault = not_applied(fault);
            return self.refuse(ticket, fault);
        }
        match self.judge(&header) {
            Verdict::Duplicate(stored) if stored.base < self.state.log.end => {
                // What was accepted does not know when it was appended.
                let append_time = match self.state.log.producers.judge(&header) {
                    Verdict::Duplicate(first) => first.append_time,
                    _ => stored.append_time,
                };
                let produced = Produced {
                    base_offset: stored.base,
                    append_time,
                    duplicate: true,
                };
                self.effects.push(Effect::Answer {
                    ticket,
                    result: Ok(produced),
                });
            }
            Verdict::Duplicate(stored) if self.full.is_none() || stored.base < self.sent_end => {
                self.duplicates.entry(stored.base).or_default().push(ticket);
            }
            Verdict::Append if self.full.is_none() => self.accept(header, batch, ticket, now),
            Verdict::Refuse(fault) if self.full.is_none() => self.refuse(ticket, fault),
            Verdict::Append => {
                self.owed.refused(&batch_summary(&header));
                self.refuse_full(ticket);
            }
            _ => self.refuse_full(ticket),
        }
    }

    fn judge(&self, header: &BatchHeader) -> Verdict {
        match self.accepted.judge(header) {
            Verdict::Append => match self.owed.judge(header) {
                Some(fault) if self.accepted.get(header.producer_id).is_none() => {
                    Verdict::Refuse(fault)
                }
                _ => Verdict::Append,
            },
            verdict => verdict,
        }
    }

    fn accept(&mut self, header: BatchHeader, batch: &Bytes, ticket: T, now: TimestampMs) {
        let base = self.next_offset;
        let parts = batch::place(batch, base, self.config.epoch);
        // Its activity is of now and not of the last entry, else the next entry would expire a producer that was idle (or is
        // new) while its batch is on its way, and a copy of that batch would be taken as another one.
        let at = self.last_append_time.max(now);
        self.accepted.apply(&batch_summary(&header), base, at);
        self.owed.accepted(header.producer_id);
        self.next_offset = Offset(base.0 + u64::from(header.span()));
        self.queue_bytes += header.length as usize;
        self.queue.push_back(Accepted {
            base,
            header,
            parts,
            ticket,
        });
    }

    /// Sends what waits, as far as the ledger and the window allow. `now` is the owner's clock.
    pub(crate) fn flush(&mut self, now: TimestampMs) {
        if self.failed.is_some() || self.full.is_some() || self.queue.is_empty() {
            return;
        }
        match self.ledger {
            Ledger::None => {
                self.ledger = Ledger::Coming;
                self.effects.push(Effect::OpenLog {
                    base: self.sent_end,
                });
            }
            Ledger::Coming => {}
            Ledger::Open if self.roll_due(now) => self.roll(),
            Ledger::Open if self.verify_due(now) => {
                self.ledger = Ledger::Coming;
                self.effects.push(Effect::VerifyLog {
                    base: self.sent_end,
                });
            }
            Ledger::Open => {
                while !self.queue.is_empty() && self.may_send() {
                    self.send_entry(now);
                    // What retention lets go, and what a roll costs, does not depend on how much came at once.
                    if self.roll_due(now) && !self.queue.is_empty() {
                        return self.roll();
                    }
                }
            }
        }
    }

    fn may_send(&self) -> bool {
        let in_flight = self.in_flight.len();
        in_flight == 0
            || (in_flight < IN_FLIGHT_MAX
                && self.in_flight_bytes < self.config.in_flight_bytes_max
                && self.queue_bytes >= PIPELINE_BYTES_MIN)
    }

    fn send_entry(&mut self, now: TimestampMs) {
        self.last_append_time = self.last_append_time.max(now);
        let first = self.sent_end;
        let (mut bytes, mut records) = (0, 0);
        let (mut batches, mut body, mut tickets) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(next) = self.queue.front() {
            let length = next.header.length as usize;
            if !batches.is_empty()
                && (bytes + length > COALESCE_BYTES_MAX || batches.len() == ENTRY_BATCHES_MAX)
            {
                break;
            }
            let mut next = self
                .queue
                .pop_front()
                .expect("the front was just looked at");
            if self.config.log_append_time {
                next.stamp(self.last_append_time);
            }
            bytes += length;
            records += next.header.count;
            self.running_max = self.running_max.max(next.header.max_timestamp);
            batches.push(batch_summary(&next.header));
            body.extend(next.parts);
            tickets.push((next.base, next.ticket));
            self.sent_end = Offset(next.base.0 + u64::from(next.header.span()));
        }
        self.queue_bytes -= bytes;
        self.accepted
            .expire(self.last_append_time, self.config.producer_expiry);
        // Kept as long as the entry is in the tail.
        batches.shrink_to_fit();
        let envelope = Envelope {
            kind: EntryKind::Data,
            append_time: self.last_append_time,
            running_max_timestamp: self.running_max,
            batches,
        };
        let new = NewEntry {
            class: EntryClass::Data,
            first_offset: first,
            offset_span: (self.sent_end.0 - first.0) as u32,
            record_count: records,
            envelope: envelope.encode(),
            body,
        };
        let payload_len = new.payload_len();
        self.ledger_bytes += payload_len as u64;
        let entry = LogEntry {
            entry: EntryId(0), // Named at confirmation.
            first,
            end: self.sent_end,
            envelope: Arc::new(envelope),
            body: new.body.clone(),
            payload_len,
        };
        self.active_at = now;
        self.in_flight_bytes += payload_len;
        self.in_flight.push_back(InFlight { entry, tickets });
        self.effects.push(Effect::Append(new));
    }

    /// The oldest entry in flight is confirmed.
    pub(crate) fn confirmed(&mut self, entry: EntryId, now: TimestampMs) {
        let Some(InFlight {
            entry: mut log_entry,
            tickets,
        }) = self.in_flight.pop_front()
        else {
            return;
        };
        self.active_at = now;
        self.in_flight_bytes -= log_entry.payload_len;
        log_entry.entry = entry;
        let append_time = log_entry.envelope.append_time;
        let (first, end) = (log_entry.first, log_entry.end);
        self.state
            .apply_log(first, end, &log_entry.envelope, self.config.producer_expiry);
        self.since_snapshot.0 += 1;
        self.since_snapshot.1 += log_entry.payload_len as u64;
        self.effects.push(Effect::Confirmed(log_entry));
        for (base_offset, ticket) in tickets {
            let produced = Produced {
                base_offset,
                append_time,
                duplicate: false,
            };
            self.effects.push(Effect::Answer {
                ticket,
                result: Ok(produced),
            });
        }
        while let Some(entry) = self
            .duplicates
            .first_entry()
            .filter(|entry| *entry.key() < end)
        {
            let (base_offset, waiting) = entry.remove_entry();
            for ticket in waiting {
                let produced = Produced {
                    base_offset,
                    append_time,
                    duplicate: true,
                };
                self.effects.push(Effect::Answer {
                    ticket,
                    result: Ok(produced),
                });
            }
        }
        let first_of_ledger = std::mem::take(&mut self.first_entry_pending);
        // Without producers and cursors there is nothing worth a state chain (serving.md, amendment to C4.2).
        let something = !self.state.log.producers.is_empty() || !self.state.meta.is_empty();
        let long = self.since_snapshot.0 >= self.config.snapshot_entries_min;
        let due = first_of_ledger && something && long;
        self.snapshot_if(due, now);
        self.flush(now);
    }

    /// Time passed: rolls by age and snapshots that failed before.
    pub(crate) fn tick(&mut self, now: TimestampMs) {
        if self.failed.is_some() {
            return;
        }
        let open = self.ledger == Ledger::Open && self.full.is_none();
        if open && self.in_flight.is_empty() && self.roll_due(now) {
            self.roll();
        }
        self.snapshot_if(false, now);
        self.cool();
    }

    pub(super) fn snapshot_if(&mut self, due: bool, now: TimestampMs) {
        let long =
            self.since_snapshot.0 >= SNAPSHOT_ENTRIES || self.since_snapshot.1 >= SNAPSHOT_BYTES;
        if (due || long) && self.snapshot_running.is_none() && now >= self.snapshot_not_before {
            self.snapshot_running = Some(std::mem::take(&mut self.since_snapshot));
            self.snapshot_end = self.state.log.end;
            self.effects.push(Effect::Snapshot);
        }
    }

    /// The bodies of a snapshot of what is confirmed, to be written one right after the other.
    pub(crate) fn snapshot_records(&self) -> Vec<MetaRecord> {
        let CoreConfig {
            partition, epoch, ..
        } = self.config;
        match self.mutation.is(Mutant::SnapshotOfUnconfirmed) {
            true => self.accepted_state().snapshot(partition, epoch),
            false => self.state.snapshot(partition, epoch),
        }
    }

    /// A delta is confirmed.
    pub(crate) fn apply_meta(&mut self, number: u64, delta: &M::Delta) {
        self.state.apply_meta(number, delta);
    }

    /// The snapshot is confirmed, or was given up.
    pub(crate) fn snapshot_done(&mut self, written: bool, now: TimestampMs) {
        let counted = self.snapshot_running.take();
        if written {
            self.covered = self.covered.max(self.snapshot_end);
        }
        if let Some((entries, bytes)) = counted.filter(|_| !written) {
            // Counted again, and due at once after the wait.
            self.since_snapshot.0 += entries.max(SNAPSHOT_ENTRIES);
            self.since_snapshot.1 += bytes;
            self.snapshot_not_before = now + SNAPSHOT_RETRY;
        }
    }
}
