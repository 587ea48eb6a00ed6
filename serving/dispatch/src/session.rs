//! Consumers that are attached: their credit, what they hold, and whether anything may be sent (serving.md B9.1, B9.2).

use std::collections::BTreeSet;
use std::sync::Arc;

use hulse_proto::time::TimestampMs;

use crate::effect::BlockedReason;
use crate::facts::NewSession;

/// A consumer.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) name: Arc<str>,
    pub(crate) priority: i32,
    /// May be sent; overdrawn by at most one unit.
    pub(crate) records: i64,
    pub(crate) bytes: i64,
    /// ACQUIRED by it.
    pub(crate) unacked: u64,
    /// It holds something and has answered nothing since.
    pub(crate) silent_since: TimestampMs,
    /// Deliveries so far.
    pub(crate) seq: u64,
    pub(crate) paused: bool,
    /// It holds suspects, and until then gets nothing more as long as it holds anything (B3.9).
    pub(crate) suspect_until: TimestampMs,
    /// It left; it is kept for the names in its holds.
    pub(crate) gone: bool,
    /// When it was served last, in turns.
    pub(crate) served: u64,
    /// KEYED: firsts of the runs that it may be sent.
    pub(crate) queue: BTreeSet<u64>,
    pub(crate) blocked: Option<Block>,
}

/// Nothing flows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) reason: BlockedReason,
    pub(crate) since: TimestampMs,
    pub(crate) told: bool,
}

impl Session {
    pub(crate) fn new(new: &NewSession) -> Self {
        Self {
            name: new.name.clone(),
            priority: new.priority,
            records: 0,
            bytes: 0,
            unacked: 0,
            silent_since: TimestampMs::MIN,
            seq: 0,
            paused: false,
            suspect_until: TimestampMs::MIN,
            gone: false,
            served: 0,
            queue: BTreeSet::new(),
            blocked: None,
        }
    }

    /// It lets records be sent.
    pub(crate) fn has_credit(&self) -> bool {
        !self.gone && !self.paused && self.records > 0 && self.bytes > 0
    }

    /// A unit may be sent to it.
    pub(crate) fn is_able(&self, unacked_max: u64, now: TimestampMs) -> bool {
        let alone = self.unacked > 0 && self.suspect_until > now;
        self.has_credit() && self.unacked < unacked_max && !alone
    }

    pub(crate) fn grant(&mut self, records: u64, bytes: u64) {
        let add =
            |left: i64, more: u64| left.saturating_add(i64::try_from(more).unwrap_or(i64::MAX));
        self.records = add(self.records, records);
        self.bytes = add(self.bytes, bytes);
    }

    pub(crate) fn spend(&mut self, records: u64, bytes: u64) {
        let take =
            |left: i64, less: u64| left.saturating_sub(i64::try_from(less).unwrap_or(i64::MAX));
        self.records = take(self.records, records);
        self.bytes = take(self.bytes, bytes);
    }

    /// It holds so many less.
    pub(crate) fn release(&mut self, records: u64) {
        self.unacked -= records;
    }
}
