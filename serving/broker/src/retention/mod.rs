//! How long records stay: by the time of their append and by bytes per partition, whichever is reached first.
//!
//! `policy` is what a topic or the cluster says; `sweep` goes over all partitions from time to time, opens those where something has
//! fallen due, and has their owners trim whole ledgers ([`crate::PartitionHandle::trim`]).
//!
//! # Invariants
//! 1. Only append times count, which are of the owner's clock and never go back (ARCHITECTURE D2): no date that a producer gives makes
//!    a record go early or stay.
//! 2. By size, the newest ledgers that hold at least the limit together stay.
//! 3. Ledgers go whole, oldest first; the one that is written to never goes.

mod policy;
mod sweep;

pub use policy::{Limits, RetentionPolicy, Setting};
pub(crate) use sweep::Sweep;
