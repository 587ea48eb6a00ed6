//! One open partition.
//!
//! [`PartitionHandle`] is what the listener holds; behind it one task (`task`) drives the state machine (`core`) which judges, numbers, coalesces
//! and answers. `takeover` makes a partition ready, `snapshots` writes its state chain.

mod accepted;
mod core;
mod handle;
mod snapshots;
mod takeover;
mod task;
#[cfg(test)]
mod tests;

pub use handle::{LogOffsets, PartitionHandle, ProduceFuture, Produced};
pub use takeover::PartitionPolicy;
pub(crate) use takeover::{Collaborators, take_over, win_epoch};
pub(crate) use task::spawn;
