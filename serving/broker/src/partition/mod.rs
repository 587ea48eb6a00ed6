//! One open partition.
//!
//! [`PartitionHandle`] is what the listener holds; behind it one task (`task`; `resting`: none while there is nothing to do; `shown`:
//! what handles see of it) drives the state machine (`core`) which judges,
//! numbers, coalesces and answers (`rolling`: when its ledger is rolled, `refusing`: how it turns batches away, `owed`: what must
//! come again before anything behind it). `ledgers` makes, rolls and closes log ledgers for the task. `takeover` makes a partition
//! ready, `trimming` moves its log start, `retaining` does what retention asks, `snapshots` writes its state chain, `replicating` gives
//! its ledgers the copies that its topic asks for, `ownership` looks whether it is still ours.

mod accepted;
mod consuming;
mod core;
mod cursors;
mod handle;
#[cfg(test)]
mod kept_tests;
mod ledgers;
#[cfg(test)]
mod loss_tests;
mod owed;
mod ownership;
mod refusing;
mod replicating;
mod resting;
#[cfg(test)]
mod resting_tests;
mod retaining;
mod rolling;
#[cfg(test)]
mod room_tests;
mod shown;
mod snapshots;
mod stopping;
#[cfg(test)]
mod stopping_tests;
mod takeover;
mod task;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trim_tests;
mod trimming;

pub use consuming::{CursorStart, Tie};
pub use cursors::{
    AckKind, AckStatus, Acked, Begin, Cause, ConsumerId, ConsumerView, CursorMove, CursorView,
    Handed, LaneView, Moved, NewConsumer, Stand,
};
pub use handle::{LogOffsets, PartitionHandle, ProduceFuture, Produced};
pub(crate) use ownership::moved;
pub use replicating::Replication;
pub(crate) use resting::RestingPartitions;
pub use takeover::PartitionPolicy;
pub(crate) use takeover::{Claim, Collaborators, take_over, win_epoch};
pub(crate) use task::spawn;
