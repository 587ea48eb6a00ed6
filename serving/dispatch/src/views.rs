//! What people see: counters, and why nothing flows (serving.md B2.7, B4.10, B9.2).

use std::collections::BTreeMap;

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use crate::dispatcher::Dispatcher;
use crate::effect::{BlockedReason, Effect};
use crate::facts::{SessionId, Skip};
use crate::runs::State;
use crate::session::Block;

/// A block is told when it lasted so long; one by storage at once.
const TOLD_AFTER_MS: TimestampMs = 500;

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
    /// Records it may be sent; below 0: overdrawn.
    pub records: i64,
    /// Bytes likewise.
    pub bytes: i64,
    /// Why nothing flows to it, if that was told.
    pub blocked: Option<BlockedReason>,
}

impl Dispatcher {
    /// Where the cursor stands, and the state epoch of what is delivered now.
    pub fn stands(&self) -> (Offset, u32) {
        (Offset(self.runs.base()), self.state_epoch)
    }

    /// All of it. O(runs).
    pub fn stats(&self) -> Stats {
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
            ..Stats::default()
        };
        if let Some(slots) = &self.slots {
            stats.slots_draining = slots.draining();
            stats.slots_held = slots.held_total();
        }
        for (_, run) in self.runs.iter() {
            let records = u64::from(run.len);
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
        let doubt = self.is_in_doubt(now);
        let more = self.waiting > 0 || self.runs.next() < self.readable;
        let capped = self.capped().filter(|_| self.waiting == 0);
        let unacked_max = self.policy.unacked_max;
        for (id, session) in &mut self.sessions {
            let reason = match session.has_credit() && more {
                false => None,
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
            let at_once = reason == BlockedReason::AcksWait;
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
