//! What people see: counters, and why nothing flows (serving.md B2.7, B4.10, B9.2).

use std::collections::BTreeMap;

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use crate::dispatcher::Dispatcher;
use crate::effect::{BlockedReason, Effect};
use crate::facts::{SessionId, Skip};
use crate::marks::Marks;
use crate::runs::{Run, State};
use crate::session::Block;

/// A block is told when it lasted so long; one by storage, or by somebody's word, at once.
const TOLD_AFTER_MS: TimestampMs = 500;

/// A record that was tried less often is not worth a word.
pub const TRIES_TOLD: u16 = 3;

/// A cursor's dispatch, at this moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// Everything below is processed.
    pub base: Offset,
    /// Everything below was read.
    pub window_end: Offset,
    /// Of the moves.
    pub state_epoch: u32,
    /// Records that were read and are not processed.
    pub unacked: u64,
    /// Of them: held by consumers.
    pub acquired: u64,
    /// Could go out now.
    pub waiting: u64,
    /// Wait for their time.
    pub delayed: u64,
    /// Wait for blocked slots.
    pub stalled: u64,
    /// Are on their way to the dead-letter topic.
    pub dying: u64,
    /// Dead, and they stay.
    pub parked: u64,
    /// Acked ranges above the base.
    pub ack_ranges: usize,
    /// Runs of the window.
    pub runs: usize,
    /// Deliveries that something still names.
    pub holds: usize,
    /// KEYED: slots whose consumer waits for another one.
    pub slots_draining: usize,
    /// KEYED: records held, by slot, summed; 0 when nobody holds anything.
    pub slots_held: u64,
    /// Bytes of batches that wait for consumers.
    pub buffered_bytes: u64,
    /// Records acked by consumers so far.
    pub acked: u64,
    /// Records delivered so far, each time.
    pub delivered: u64,
    /// Failed attempts so far.
    pub failed: u64,
    /// Dead letters copied so far.
    pub letters: u64,
    /// Of batches that were read.
    pub bytes_read: u64,
    /// Of batches that were delivered; more than were read: batches go to several consumers (B4.8).
    pub bytes_sent: u64,
    /// Records passed over so far.
    pub skipped: BTreeMap<Skip, u64>,
    /// The record that was tried most often and is not processed, and how often: at least [`TRIES_TOLD`] times.
    pub most_tried: Option<(Offset, u16)>,
    /// Nothing is delivered before.
    pub paused_until: Option<TimestampMs>,
    /// Those that are attached.
    pub sessions: Vec<SessionStats>,
}

/// A consumer, at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStats {
    /// Who.
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// Held by it.
    pub unacked: u64,
    /// It has held something for so long without an answer, ms; 0: it holds nothing.
    pub silent_ms: TimestampMs,
    /// Records it may be sent; below 0: overdrawn.
    pub records: i64,
    /// Bytes likewise.
    pub bytes: i64,
    /// Why nothing flows to it, if that was told.
    pub blocked: Option<BlockedReason>,
}

impl Stats {
    fn note_tries(&mut self, first: u64, run: &Run, marks: &Marks) {
        if matches!(run.state, State::Acking | State::Parked | State::Dying) {
            return;
        }
        let tries = run.seen.max(marks.get(first).failed);
        let most = self.most_tried.map_or(TRIES_TOLD - 1, |(_, most)| most);
        if tries > most {
            self.most_tried = Some((Offset(first), tries));
        }
    }
}

impl Dispatcher {
    /// Where the cursor stands, and the state epoch of what is delivered now.
    pub fn stands(&self) -> (Offset, u32) {
        (Offset(self.runs.base()), self.state_epoch)
    }

    /// As [`Dispatcher::stats_at`], at the last pump.
    pub fn stats(&self) -> Stats {
        self.stats_at(self.pumped_at)
    }

    /// All of it. O(runs + marks).
    pub fn stats_at(&self, now: TimestampMs) -> Stats {
        let mut stats = Stats {
            base: Offset(self.runs.base()),
            window_end: Offset(self.runs.next()),
            state_epoch: self.state_epoch,
            unacked: self.runs.records(),
            waiting: self.waiting,
            ack_ranges: self.ack_ranges(),
            runs: self.runs.len(),
            holds: self.holds.len(),
            buffered_bytes: self.buffer.bytes(),
            acked: self.counts.acked,
            delivered: self.counts.delivered,
            failed: self.counts.failed,
            letters: self.counts.letters,
            bytes_read: self.counts.bytes_read,
            bytes_sent: self.counts.bytes_sent,
            skipped: self.counts.skipped.clone(),
            paused_until: self.paused(now),
            ..Stats::default()
        };
        let end = Offset(self.runs.next());
        (stats.parked, stats.delayed) = self.policy.count_marked(&self.marks, end, now);
        if let Some(slots) = &self.slots {
            stats.slots_draining = slots.draining();
            stats.slots_held = slots.held_total();
        }
        for (first, run) in self.runs.iter() {
            let records = u64::from(run.len);
            stats.note_tries(first, run, &self.marks);
            match run.state {
                State::Held => stats.acquired += records,
                State::Delayed => stats.delayed += records,
                State::Stalled | State::StalledStamp => stats.stalled += records,
                State::Dying => stats.dying += records,
                State::Parked => stats.parked += records,
                _ => {}
            }
        }
        let here = self.sessions.iter().filter(|(_, session)| !session.gone);
        stats.sessions = here
            .map(|(id, session)| SessionStats {
                session: *id,
                name: session.name.to_string(),
                unacked: session.unacked,
                silent_ms: match session.unacked {
                    0 => 0,
                    _ => (now - session.silent_since).max(0),
                },
                records: session.records,
                bytes: session.bytes,
                blocked: session
                    .blocked
                    .filter(|block| block.told)
                    .map(|block| block.reason),
            })
            .collect();
        stats
    }

    pub(crate) fn ack_ranges(&self) -> usize {
        self.runs.gaps() + self.ahead.len()
    }

    /// The cap that forbids new reads (B2.7).
    pub(crate) fn capped(&self) -> Option<BlockedReason> {
        if self.runs.records() >= self.policy.window_max {
            return Some(BlockedReason::UnackedOfCursor);
        }
        let crowded = self.is_crowded() && self.known_end() <= self.runs.next();
        crowded.then_some(BlockedReason::AckRanges)
    }

    /// The cursor has as many acked ranges as it may have. Between them it is read all the same, or they would stay for ever.
    pub(crate) fn is_crowded(&self) -> bool {
        self.ack_ranges() >= self.policy.ack_ranges_max
    }

    /// Behind it nothing is acked.
    pub(crate) fn known_end(&self) -> u64 {
        self.ahead.last_end().map_or(0, |end| end.0)
    }

    /// Tells consumers why nothing flows, once, and when it does again (B9.2).
    pub(crate) fn look_blocked(&mut self, now: TimestampMs) {
        let (doubt, paused) = (self.is_in_doubt(now), self.is_paused(now));
        let more = self.waiting > 0 || self.runs.next() < self.readable;
        let capped = self.capped().filter(|_| self.waiting == 0);
        let unacked_max = self.policy.unacked_max;
        for (id, session) in &mut self.sessions {
            let reason = match session.has_credit() && more {
                false => None,
                true if paused => Some(BlockedReason::Paused),
                true if doubt => Some(BlockedReason::AcksWait),
                true if session.unacked >= unacked_max => Some(BlockedReason::UnackedOfConsumer),
                true => capped,
            };
            if let Some(block) = session.blocked.filter(|it| Some(it.reason) != reason) {
                session.blocked = None;
                if block.told {
                    self.effects.push(Effect::Blocked {
                        session: *id,
                        reason: block.reason,
                        over: true,
                    });
                }
            }
            let Some(reason) = reason else {
                continue;
            };
            let block = session.blocked.get_or_insert(Block {
                reason,
                since: now,
                told: false,
            });
            let at_once = matches!(reason, BlockedReason::AcksWait | BlockedReason::Paused);
            if !block.told && (at_once || block.since + TOLD_AFTER_MS <= now) {
                block.told = true;
                self.effects.push(Effect::Blocked {
                    session: *id,
                    reason,
                    over: false,
                });
            }
        }
    }

    pub(crate) fn next_blocked(&self) -> Option<TimestampMs> {
        let blocks = self.sessions.values().filter_map(|it| it.blocked);
        let untold = blocks.filter(|block| !block.told);
        untold.map(|block| block.since + TOLD_AFTER_MS).min()
    }
}
