//! Topics by name and identity, over the metadata store.
//!
//! Key `topic/{tenant}/{namespace}/{name}` holds identity, number of partitions and state; it is the only truth. `cache` is a
//! hint fed by a watch and by every answer; whatever decides (create, change, delete, open) reads again (storage.md Z4).
//!
//! # Invariants
//! 1. One name has at most one identity at a time, and an identity never comes back: a topic that is made again is another one.
//! 2. The number of partitions never falls: keys would change their partition.
//! 3. A deletion is decided by one compare-and-set to DELETING and then only goes on, here or after the next start; the name
//!    is free when no data of the topic is left.
//! 4. A change of unknown outcome is resent as it was while its key has the old version, and judged by identity afterwards
//!    (storage.md, amendment to M3).
//!
//! Reading order: `topic` (the record; `copies`: how many of each record), `change` (one safe compare-and-set), `registry` (create, find,
//! list, grow; `unknown` spares it work), `pins`, `deletion`.

mod cache;
mod change;
mod copies;
mod deletion;
mod demand;
mod pins;
mod refusals;
mod registry;
mod topic;
mod unknown;

#[cfg(test)]
mod tests;

pub(crate) use change::{Changed, Expected, change, read};
pub use copies::{BookieCount, Copies};
pub use deletion::PartitionRemover;
pub(crate) use demand::most_acknowledge;
pub use registry::{Topics, TopicsConfig};
#[cfg(any(test, feature = "testing"))]
pub use topic::testing_topic;
pub use topic::{NewTopic, Topic, TopicPage, TopicRules, TopicState};
