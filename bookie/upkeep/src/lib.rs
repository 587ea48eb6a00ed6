//! `bookie-upkeep`: sees to it that every closed ledger has all its copies, on bookies that are there.
//!
//! Main path: [`Upkeep::run`] → elected by a lease → [`audit::Auditor::pass`] (metadata against who is there, and against what each
//! bookie says that it holds) → [`repair::repair`] of each place that lacks something → the swap in metadata. It runs inside the
//! processes of bookies, knows ledgers and never topics, and fences nothing.
//!
//! # Invariants
//! 1. Only fragments that change no more are touched (storage.md X2).
//! 2. A copy counts when the bookie that confirmed it also proved that it holds it, and not before (X5).
//! 3. Whoever gets copies is named in metadata first (X4), so that deletion reaches it and removal passes it over.
//! 4. Every change of metadata compares the exact version that it was made from (X6): races with owners, recoverers, deletions and
//!    other planners are lost, never won by accident.
//!
//! Ledgers that their owners settled go into object storage by [`tiering`], and those that are deleted leave it.
//!
//! Not here: what a ledger is for; closing one (that is its next owner's, X3); removing copies that nobody names (a bookie does
//! so by itself).
//!
//! Reading order: [`audit`], [`repair`], [`tiering`], [`Upkeep`].

pub mod audit;
mod metrics;
mod pace;
mod planner;
pub mod repair;
#[cfg(test)]
mod tests;
pub mod tiering;

pub use metrics::UpkeepMetrics;
pub use pace::Pace;
pub use planner::{Upkeep, UpkeepConfig, UpkeepSeams};
