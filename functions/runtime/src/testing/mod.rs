//! A log with transactions in memory, behind the seams of a task, with faults by seed.

mod cluster;
mod doors;

pub use cluster::{Cluster, Stored};
pub use doors::{Doors, Faults, ready};
