//! One open partition.
//!
//! [`PartitionHandle`] is what the listener holds; behind it one task (`task`; `resting`: none while there is nothing to do; `shown`:
//! what handles see of it; `stopping`: its end) drives the state machine (`core`) which judges, numbers, coalesces and answers
//! (`rolling`: when its ledger is rolled, `refusing`: how it turns batches away, `owed`: what must come again before anything behind it).
//! `ledgers` makes, rolls and closes log ledgers for the task. `trimming` moves its log start, `retaining` does what retention asks,
//! `snapshots` writes its state chain, `cursors` are its subscriptions' (`consuming`: how a listener asks for them), `sharing` gives
//! records of QUEUE and KEYED subscriptions to their consumers, `replicating` gives its ledgers the copies that its topic asks for.
//!
//! `takeover` makes a partition ready (`claim`: its epoch, `spans`: its ledgers); `certain` is what can be read of one that does not open.
//! Whether it is still ours: `ownership` is for work that failed or is about to be done, and takes silence for no answer; `tenure` is for
//! those who are told where the log ends, and says nothing in silence. `traffic` counts what it has to do; `ahead` and `brief` make a
//! hand-over short.

mod accepted;
mod ahead;
mod brief;
mod certain;
mod claim;
mod consuming;
#[cfg(test)]
mod consuming_tests;
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
mod sharing;
mod shown;
mod snapshots;
mod spans;
mod stopping;
#[cfg(test)]
mod stopping_tests;
mod takeover;
mod task;
mod tenure;
#[cfg(test)]
mod tests;
mod traffic;
#[cfg(test)]
mod trim_tests;
mod trimming;

pub(crate) use ahead::{ReadAhead, differs, read_ahead};
pub(crate) use certain::{CertainParts, handle as certain_handle};
pub(crate) use claim::{Claim, win_epoch};
pub use consuming::{CursorStart, Tie};
pub use cursors::{
    AckKind, AckStatus, Acked, Begin, Cause, ConsumerId, ConsumerView, CursorMove, CursorView,
    Handed, LaneView, Moved, NewConsumer, Rates, Stand,
};
pub use handle::{LogOffsets, PartitionHandle, ProduceFuture, Produced};
pub(crate) use ownership::moved;
pub use replicating::Replication;
pub(crate) use resting::RestingPartitions;
pub(crate) use sharing::{Letterbox, Posted};
pub use sharing::{NewSharer, Said, ShareItem, SharePlan, ShareTie};
pub use takeover::PartitionPolicy;
pub(crate) use takeover::{Collaborators, take_over};
pub(crate) use task::spawn;
