//! When a log ledger is rolled, and when it is looked at first (storage.md W15).
//!
//! A ledger without DATA never rolls by size, age or wear, but when new ones have other quorums. One that rested is verified before it is
//! written to: still its owner's in metadata, and on bookies that still exist. That is no matter of safety: fences and incarnations stop
//! a writer that lost its ledger (B0, B3). It keeps the first batches after a rest from an unknown fate, and an ensemble that died
//! meanwhile from being found out member by member. So silence of metadata does not hold the write back for longer than the look takes
//! (ARCHITECTURE D6).

use std::time::Duration;

use hulse_proto::time::TimestampMs;

use super::core::{Effect, Ledger, PartitionCore};
use crate::state::MetaState;

/// A ledger that was not written to for this long is looked at first.
const REST: TimestampMs = 60_000;
/// After a worn ledger could not be rolled, the next try waits this long.
const WORN_RETRY: TimestampMs = 5_000;

impl<M: MetaState, T> PartitionCore<M, T> {
    pub(super) fn roll_due(&self, now: TimestampMs) -> bool {
        let age = now.saturating_sub(self.ledger_opened_at);
        let old = age >= self.config.roll_age.as_millis() as TimestampMs;
        let may = now >= self.worn_not_before;
        let worn = self.worn && may;
        let outdated = self.outdated && may;
        self.ledger_bytes >= self.config.roll_bytes
            || outdated
            || (self.ledger_bytes > 0 && (old || worn))
    }

    /// Ends the open ledger behind what was sent.
    pub(super) fn roll(&mut self) {
        self.ledger = Ledger::Coming;
        self.effects.push(Effect::RollLog {
            base: self.sent_end,
        });
    }

    pub(super) fn verify_due(&self, now: TimestampMs) -> bool {
        self.in_flight.is_empty() && now.saturating_sub(self.active_at) >= REST
    }

    /// From now on ledgers are rolled at this age.
    pub(crate) fn set_roll_age(&mut self, age: Duration) {
        self.config.roll_age = age;
    }

    /// True when the open log ledger may be closed now: nobody waits for it. Entries wait until it is; answer with `log_rested`, or with
    /// `log_verified` when it stays.
    pub(crate) fn rest(&mut self) -> bool {
        let may = self.ledger == Ledger::Open
            && self.full.is_none()
            && self.failed.is_none()
            && self.is_idle();
        if may {
            self.ledger = Ledger::Coming;
        }
        may
    }

    /// The log ledger is closed and had confirmed everything. The next batch makes another one.
    pub(crate) fn log_rested(&mut self, now: TimestampMs) {
        self.ledger = Ledger::None;
        self.ledger_bytes = 0;
        self.first_entry_pending = false;
        self.flush(now);
    }

    /// What the ledger's writer says of its ensemble.
    pub(crate) fn note_worn(&mut self, worn: bool) {
        self.worn = worn;
    }

    /// A new log ledger is ready: the first one, or the next one.
    pub(crate) fn log_opened(&mut self, now: TimestampMs) {
        self.ledger_bytes = 0;
        self.worn = false;
        self.first_entry_pending = true;
        self.go_on(now);
    }

    /// The old log ledger goes on: a roll was not possible now. Asked again only after as much as a quarter of a ledger more.
    pub(crate) fn log_kept(&mut self, now: TimestampMs) {
        self.ledger_bytes -= self.ledger_bytes.min(self.config.roll_bytes / 4);
        self.worn_not_before = now + WORN_RETRY;
        self.go_on(now);
    }

    fn go_on(&mut self, now: TimestampMs) {
        self.ledger = Ledger::Open;
        self.ledger_opened_at = now;
        self.active_at = now;
        self.flush(now);
    }

    /// The log ledger may be written to again after its rest.
    pub(crate) fn log_verified(&mut self, now: TimestampMs) {
        self.ledger = Ledger::Open;
        self.active_at = now;
        self.flush(now);
    }
}
