//! What may become of a call.

use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha12Rng;

use crate::store::Txn;

/// A call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub enum Call<'a> {
    /// `get` of a key.
    Get(&'a str),
    /// `list` of a prefix.
    List(&'a str),
    /// `watch` of a prefix.
    Watch(&'a str),
    /// `txn`.
    Txn(&'a Txn),
    /// `grant_lease`, `renew_lease` or `end_lease`.
    Lease,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nothing special.
    Pass,
    /// Answers `Unavailable`; the store never heard of it.
    Unavailable,
    /// No answer for this long, then `Unavailable`; the store never heard of it.
    Silent(Duration),
    /// Passes, and the answer takes this long.
    Slow(Duration),
    /// The store did it; the answer is `OutcomeUnknown`. A read answers `Unavailable`.
    UnknownCommitted,
    /// Answers `OutcomeUnknown`; the store does it later, if its compares hold then. Not for reads and leases.
    UnknownLater(Late),
    /// Answers `OutcomeUnknown`; the store never hears of it. A read answers `Unavailable`.
    UnknownNever,
}

/// When a late transaction reaches the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// At [`super::FaultyStore::land_next`] or [`super::FaultyStore::land_all`].
    OnDemand,
    /// Right after this many later reads were answered, which do not show it.
    AfterReads(u32),
    /// After this time.
    After(Duration),
}

/// How often things go wrong, each from 0 to 1; what is left passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultRates {
    /// [`Fate::Unavailable`].
    pub unavailable: f64,
    /// [`Fate::Slow`] of up to `delay_max`.
    pub slow: f64,
    /// One of the unknown fates; for transactions only.
    pub unknown: f64,
    /// Longest delay.
    pub delay_max: Duration,
}

impl FaultRates {
    /// Draws a fate.
    pub(super) fn draw(&self, rng: &mut ChaCha12Rng, call: Call<'_>) -> Fate {
        let delay_us = u64::try_from(self.delay_max.as_micros()).unwrap_or(u64::MAX);
        let delay = Duration::from_micros(rng.random_range(0..=delay_us));
        let point: f64 = rng.random();
        if point < self.unavailable {
            return Fate::Unavailable;
        }
        if point < self.unavailable + self.slow {
            return Fate::Slow(delay);
        }
        if !matches!(call, Call::Txn(_)) || point >= self.unavailable + self.slow + self.unknown {
            return Fate::Pass;
        }
        match rng.random_range(0..4) {
            0 => Fate::UnknownCommitted,
            1 => Fate::UnknownNever,
            2 => Fate::UnknownLater(Late::AfterReads(rng.random_range(1..4))),
            _ => Fate::UnknownLater(Late::After(delay)),
        }
    }
}
