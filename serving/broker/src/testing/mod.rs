//! A broker for tests: its ledgers lie in a memory bookie, its metadata in memory. For this crate's tests, and with the feature
//! `testing` for those of listeners.

mod bookie;
mod broker;
mod owners;

pub use crate::subscriptions::Orphans;
pub use crate::topics::testing_topic as topic;
pub use bookie::MemoryBookie;
pub use broker::{MemoryBroker, Wall, refuse_batches};
pub use owners::{HandedOver, follow, hand_over, knows_owners, take};
