//! Memory bookies and a static directory, for tests of this crate and of those above it.
//!
//! [`MemoryLedgers`] is a storage node without a disk as a state machine (storage.md B0–B13); a simulation drives it directly.
//! [`MemoryBookie`] puts it behind `BookieCalls`, with faults.

mod bookie;
mod directory;
mod fault;
mod ledgers;

pub use bookie::MemoryBookie;
pub use directory::{FixedClock, StaticDirectory};
pub use fault::Fault;
pub use ledgers::{Limbo, MemoryLedgers};
