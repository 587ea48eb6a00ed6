//! Ledgers on their way into object storage, and those that leave it (storage.md 7): what of it is done now, and by whose hands.
//!
//! Path: [`TierRound`] reads all ledgers → `plan` chooses → each [`TierWork`] is a machine of `bookie-tier`, driven by [`TierHands`]
//! against metadata, bookies and buckets. Any number of planners may do so at once: each change compares what it was made from.
//!
//! Reading order: `plan` (what), `hands` (how), `round` (again and again).

mod hands;
mod plan;
mod round;
mod source;
#[cfg(test)]
mod tests;

pub use hands::{TierHands, TierWork};
pub use plan::TierConfig;
pub use round::{TierRound, TierTotals};
