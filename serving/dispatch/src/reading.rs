//! What is read, and what is remembered of it (serving.md B3.2, B4.5, B4.8, B4.9).

use std::collections::BTreeMap;

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use crate::dispatcher::Dispatcher;
use crate::effect::{Effect, Hashes, ReadWanted};
use crate::facts::{Batch, Keys, ReadDone, Skip};
use crate::marks::Why;
use crate::policy::{KeyOrder, Kind};
use crate::range::OffsetRange;
use crate::runs::{KEYED, NO_HOLD, Run, State};
use crate::slots::NOBODY;

/// Bytes of one read.
const READ_BYTES: u64 = 1 << 20;
/// Reads of records that were read before, under way at once.
const AGAIN_MAX: usize = 8;
/// A read that failed is tried again after this.
const READ_RETRY_MS: TimestampMs = 1_000;
/// Bytes of batches that wait for a consumer; those with the highest offsets are read again.
const BUFFER_BYTES: u64 = 8 << 20;

/// Reads under way.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    next_id: u64,
    tail: Option<u64>,
    /// By number, from where.
    again: BTreeMap<u64, u64>,
    pub(crate) tail_retry_at: Option<TimestampMs>,
    /// From where it is not read again before a time.
    again_not_before: BTreeMap<u64, TimestampMs>,
    /// Mean size of what was read last.
    record_bytes: u64,
}

impl Reads {
    fn number(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// What is under way is void.
    pub(crate) fn clear(&mut self) {
        self.tail = None;
        self.again.clear();
        self.tail_retry_at = None;
        self.again_not_before.clear();
    }

    /// Time passed.
    pub(crate) fn tick(&mut self, now: TimestampMs) {
        self.again_not_before.retain(|_, at| *at > now);
        if self.tail_retry_at.is_some_and(|at| at <= now) {
            self.tail_retry_at = None;
        }
    }

    /// When something may be read again.
    pub(crate) fn next_retry(&self) -> Option<TimestampMs> {
        let again = self.again_not_before.values().copied();
        again.chain(self.tail_retry_at).min()
    }
}

impl Dispatcher {
    /// What was asked for was read.
    pub fn read_done(&mut self, done: ReadDone, now: TimestampMs) {
        if self.reads.tail == Some(done.id) {
            self.reads.tail = None;
            self.take_tail(done, now);
        } else if let Some(from) = self.reads.again.remove(&done.id) {
            self.take_again(done, from, now);
        } else {
            // Asked for before a move.
            for batch in &done.batches {
                self.forget_void(batch.range);
            }
        }
    }

    /// What was asked for could not be read now. Records that were to come again wait for a moment, so that others go on.
    pub fn read_failed(&mut self, id: u64, now: TimestampMs) {
        if self.reads.tail == Some(id) {
            self.reads.tail = None;
            self.reads.tail_retry_at = Some(now + READ_RETRY_MS);
        } else if let Some(from) = self.reads.again.remove(&id) {
            self.postpone(from, now);
        }
    }

    /// A record with a key keeps its place, and so its slot waits (K2); others give way.
    fn postpone(&mut self, offset: u64, now: TimestampMs) {
        if let Some((first, run)) = self.runs.at(offset)
            && run.state.is_waiting()
        {
            if run.has(KEYED) {
                let until = now + READ_RETRY_MS;
                self.reads.again_not_before.insert(offset, until);
                return;
            }
            self.take_out(first);
            self.put(first, State::Delayed, now + READ_RETRY_MS);
        }
    }

    fn take_tail(&mut self, done: ReadDone, now: TimestampMs) {
        let mut skipped = done.skipped.into_iter().peekable();
        for batch in done.batches {
            while let Some((range, why)) =
                skipped.next_if(|(range, _)| range.first < batch.range.first)
            {
                self.skip_ahead(range, why, now);
            }
            if batch.range.end.0 <= self.runs.next() {
                self.forget_void(batch.range);
                continue;
            }
            let covered = OffsetRange {
                first: Offset(self.runs.next()),
                end: batch.range.first,
            };
            self.skip_ahead(covered, Skip::Compacted, now);
            self.counts.bytes_read += u64::from(batch.bytes);
            self.reads.record_bytes = u64::from(batch.bytes) / batch.range.len().max(1);
            self.enter_batch(&batch, now);
        }
        for (range, why) in skipped {
            self.skip_ahead(range, why, now);
        }
        let rest = OffsetRange {
            first: Offset(self.runs.next()),
            end: done.end,
        };
        self.skip_ahead(rest, Skip::Compacted, now);
    }

    /// The shell keeps the bytes of a batch; what was to be forgotten of the same one before is not.
    fn keep(&mut self, batch: &Batch, wanted: u64) {
        self.effects
            .retain(|effect| *effect != Effect::Forget(batch.range));
        self.buffer.insert(batch, wanted);
    }

    /// What was read is of no use, unless another read brought the same batch.
    fn forget_void(&mut self, batch: OffsetRange) {
        let here = self.buffer.at(batch.first.0);
        if here.is_none_or(|(other, _)| other != batch) {
            self.effects.push(Effect::Forget(batch));
        }
    }

    /// KEYED: something that nobody had is processed, and that is not durable yet. What is behind it is not delivered until then:
    /// the next owner would deliver it first (K2). What a read explains is explained to the next owner too, and needs no wait.
    pub(crate) fn doubt_order(&mut self) {
        if self.policy.is_keyed() {
            self.order_doubt = Some(self.next_write);
        }
    }

    /// The part of a range behind the window is passed over. Answers whether anything was.
    pub(crate) fn skip_ahead(&mut self, range: OffsetRange, why: Skip, now: TimestampMs) -> bool {
        let beyond = OffsetRange {
            first: range.first.max(Offset(self.runs.next())),
            end: range.end,
        };
        let new: u64 = self
            .ahead
            .missing(beyond)
            .iter()
            .map(OffsetRange::len)
            .sum();
        if new > 0 {
            *self.counts.skipped.entry(why).or_default() += new;
            self.gathering.skips.insert(beyond);
            self.gathering.note(now);
            self.ahead.insert(beyond);
            self.catch_up();
        }
        new > 0
    }

    /// A consumer acked what this owner has not read yet.
    pub(crate) fn process_ahead(&mut self, beyond: OffsetRange, now: TimestampMs) {
        self.gathering.acks.insert(beyond);
        self.gathering.note(now);
        self.doubt_order();
        self.counts.acked += self.ahead.insert(beyond);
        self.catch_up();
    }

    /// The window passes over what is processed right behind it.
    pub(crate) fn catch_up(&mut self) {
        while let Some(end) = self.ahead.take_first_at(Offset(self.runs.next())) {
            self.runs.advance(end.0);
        }
    }

    /// The records of a batch enter the window.
    fn enter_batch(&mut self, batch: &Batch, now: TimestampMs) {
        self.keep(batch, 0);
        let within = OffsetRange {
            first: batch.range.first.max(Offset(self.runs.next())),
            end: batch.range.end,
        };
        let mut firsts = Vec::new();
        for piece in self.ahead.missing(within) {
            for (first, run) in runs_of(batch, piece, self.policy.is_keyed()) {
                self.runs.push(first, run);
                firsts.push(first);
            }
        }
        self.runs.advance(within.end.0);
        self.ahead.remove(OffsetRange::new(0, self.runs.next()));
        self.catch_up();
        for first in firsts {
            self.settle_new(first, now);
        }
    }

    /// A new run gets its place. Old ones wait for the grace; their slots are blocked meanwhile (B3.14).
    fn settle_new(&mut self, first: u64, now: TimestampMs) {
        if self.policy.kind == Kind::Keyed(KeyOrder::OneInFlight) {
            self.remember_order(first);
        }
        self.remember_returned(first);
        let straddles = self.span(first).contains(Offset(self.old_end)) && first < self.old_end;
        if straddles {
            self.split(self.old_end);
            self.free(self.old_end, now);
        }
        if first < self.old_end {
            self.runs.get_mut(first).state = State::Grace;
            self.count(first, NOBODY);
        } else {
            self.free(first, now);
        }
    }

    /// A record that came back by itself before this owner stops its slot all the same, if its mark says so (B4.7).
    fn remember_returned(&mut self, first: u64) {
        if self.policy.kind != Kind::Keyed(KeyOrder::BlockOnNack) || self.marks.is_empty() {
            return;
        }
        let Some(key) = self.order_key(&self.runs.get(first)) else {
            return;
        };
        for (piece, mark) in self.marks.pieces(self.span(first)) {
            if mark.retry_at > 0 || matches!(mark.why, Why::Rejected | Why::LockExpired) {
                let offsets = piece.first.0..piece.end.0;
                self.order.extend(offsets.map(|offset| (key, offset)));
            }
        }
    }

    fn take_again(&mut self, done: ReadDone, from: u64, now: TimestampMs) {
        let mut there = false;
        for batch in &done.batches {
            there |= batch.range.contains(Offset(from));
            self.learn_hashes(batch);
            let firsts = self.overlapping(batch.range).into_iter();
            let wanted: u64 = firsts
                .map(|first| self.runs.get(first))
                .filter(|run| run.state.is_waiting())
                .filter(|run| !matches!(run.state, State::Stalled | State::StalledStamp))
                .map(|run| u64::from(run.len))
                .sum();
            match wanted {
                0 => {
                    self.buffer.remove(batch.range.first.0);
                    self.effects.push(Effect::Forget(batch.range));
                }
                wanted => {
                    self.counts.bytes_read += u64::from(batch.bytes);
                    self.keep(batch, wanted);
                }
            }
        }
        for (range, why) in done.skipped {
            there |= range.contains(Offset(from));
            self.skip(range, why, now);
        }
        if !there {
            // Neither there nor known to be gone: nothing is lost by asking again.
            self.postpone(from, now);
        }
    }

    /// Runs of which only a stamp was known get the hashes of their records.
    fn learn_hashes(&mut self, batch: &Batch) {
        if !matches!(batch.keys, Keys::Each(_)) {
            return;
        }
        for first in self.overlapping(batch.range) {
            let run = self.runs.get(first);
            if run.hashes.0 == run.hashes.1 || !run.state.is_available() {
                continue;
            }
            let delayed = self.queues.delayed.get(&first).copied();
            self.take_out(first);
            self.unorder(first);
            let span = self.span(first);
            for (at, known) in runs_of(batch, span, true) {
                self.split(at + u64::from(known.len));
                let run = self.runs.get_mut(at);
                run.hashes = known.hashes;
                run.flags = known.flags;
                if self.policy.kind == Kind::Keyed(KeyOrder::OneInFlight) {
                    self.remember_order(at);
                }
                match delayed {
                    Some(until) => self.put(at, State::Delayed, until),
                    None => self.place(at),
                }
            }
        }
    }

    /// Asks for a batch again, unless it is asked for.
    pub(crate) fn want_again(&mut self, from: u64, hashes: Hashes) {
        let asked = self.reads.again.values().any(|other| *other == from);
        let waits = self.reads.again_not_before.contains_key(&from);
        if asked || waits || self.reads.again.len() >= AGAIN_MAX {
            return;
        }
        let id = self.reads.number();
        self.reads.again.insert(id, from);
        self.effects.push(Effect::Read(ReadWanted {
            id,
            from: Offset(from),
            to: Offset(self.runs.next()),
            bytes_max: READ_BYTES,
            records_max: self.policy.look_ahead_records,
            hashes,
            again: true,
        }));
    }

    /// Asks for what comes behind the window, if somebody could take it and no cap forbids it (B2.7, B4.5).
    pub(crate) fn want_tail(&mut self, now: TimestampMs) {
        self.forget_unwanted();
        self.want_hashes(now);
        let next = self.runs.next();
        let idle = self.reads.tail.is_none() && self.reads.tail_retry_at.is_none_or(|at| at <= now);
        if !idle || next >= self.readable || self.capped().is_some() {
            return;
        }
        let Some(room) = self.look_ahead_room(now) else {
            return;
        };
        let id = self.reads.number();
        self.reads.tail = Some(id);
        self.reads.tail_retry_at = None;
        self.effects.push(Effect::Read(ReadWanted {
            id,
            from: Offset(next),
            to: Offset(match self.is_crowded() {
                true => self.known_end().min(self.readable),
                false => self.readable,
            }),
            bytes_max: READ_BYTES,
            records_max: room,
            hashes: match (self.policy.is_keyed(), self.policy.is_strict()) {
                (false, _) => Hashes::No,
                (true, false) => Hashes::Stamp,
                (true, true) => Hashes::Each,
            },
            again: false,
        }));
    }

    /// How many records may be read ahead; `None`: none, or nobody could take them.
    fn look_ahead_room(&self, now: TimestampMs) -> Option<u64> {
        let keyed = self.policy.is_keyed();
        let free = self.sessions.values().filter(|session| {
            session.is_able(self.policy.unacked_max, now) && (!keyed || session.queue.is_empty())
        });
        let free = free.count() as u64;
        let per_consumer = free.saturating_mul(self.policy.look_ahead_per_consumer);
        // What waits for blocked slots must not keep the next consumer waiting; QUEUE has nothing that is blocked.
        let limit = match keyed {
            true => per_consumer.max(self.policy.look_ahead_records),
            false => per_consumer.min(self.policy.look_ahead_records),
        };
        let bytes = self.waiting.saturating_mul(self.reads.record_bytes);
        let fits = self.waiting < limit && bytes < self.policy.look_ahead_bytes;
        let window = self.policy.window_max.saturating_sub(self.runs.records());
        (free > 0 && fits).then(|| (limit - self.waiting).min(window).max(1))
    }

    fn want_hashes(&mut self, now: TimestampMs) {
        let Some(first) = self.queues.hashless.first().copied() else {
            return;
        };
        let max = self.policy.unacked_max;
        if self
            .sessions
            .values()
            .any(|session| session.is_able(max, now))
        {
            self.want_again(first, Hashes::Each);
        }
    }

    fn forget_unwanted(&mut self) {
        let gone = self.buffer.trim(BUFFER_BYTES);
        self.effects.extend(gone.into_iter().map(Effect::Forget));
    }
}

/// The runs that a part of a batch has.
fn runs_of(batch: &Batch, piece: OffsetRange, keyed: bool) -> Vec<(u64, Run)> {
    let run = |first: u64, end: u64, hashes: Option<(u16, u16)>| Run {
        len: (end - first) as u32,
        hold: NO_HOLD,
        seen: 0,
        hashes: hashes.unwrap_or((0, 0)),
        state: State::Loose,
        flags: if hashes.is_some() { KEYED } else { 0 },
    };
    let (first, end) = (piece.first.0, piece.end.0);
    let known = match (&batch.keys, keyed) {
        (_, false) => return vec![(first, run(first, end, None))],
        (Keys::Each(known), _) => known,
        (Keys::Stamp(from, to), _) if from <= to => {
            return vec![(first, run(first, end, Some((*from, *to))))];
        }
        // A stamp that is upside down says nothing.
        _ => return vec![(first, run(first, end, Some((0, u16::MAX))))],
    };
    let hash = |offset: u64| {
        let at = (offset - batch.range.first.0) as usize;
        known.get(at).copied().flatten()
    };
    let (mut runs, mut at) = (Vec::new(), first);
    while at < end {
        let here = hash(at);
        let mut until = at + 1;
        while until < end && hash(until) == here {
            until += 1;
        }
        runs.push((at, run(at, until, here.map(|hash| (hash, hash)))));
        at = until;
    }
    runs
}
