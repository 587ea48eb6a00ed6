//! Configuration of a node: what stands in `hulse.toml`, in `conf.d`, in the environment and on the command line.
//!
//! Built-in defaults < `hulse.toml` < `conf.d/*.toml` (sorted) < `HULSE_A__B` < flags (operations.md C). Reading order: [`model`] (the
//! values), [`keys`] (what is said about each), [`mod@load`] (the layers), [`faults`] (everything that is wrong, at once), [`units`].
//!
//! # Invariants
//! 1. An unknown key stops the start, wherever it stands, and all of them are named together with the nearest right one.
//! 2. Sizes and durations carry a unit; a bare number is refused.
//! 3. A loaded [`Config`] is valid and never changes.

mod faults;
mod kafka;
mod keys;
mod load;
mod model;
mod reference;
#[cfg(test)]
mod tests;
mod units;

pub(crate) use faults::{ConfigFaults, Place};
pub(crate) use kafka::KafkaListen;
pub(crate) use load::{Defaults, Loaded, Sources, load};
#[cfg(test)]
pub(crate) use model::Replication;
pub(crate) use model::{BacklogQuota, Balance, Config, Groups, Retention};
pub(crate) use reference::{reference, show, show_json};
pub(crate) use units::{ByteSize, MemoryBudget, OrOff, Period, SyncMode};
