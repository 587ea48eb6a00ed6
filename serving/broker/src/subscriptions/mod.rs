//! Subscriptions by name, over the metadata store (ARCHITECTURE D8).
//!
//! Key `subscription/{tenant}/{namespace}/{name}` holds identity, type, policies and topics. It says what a subscription is; where it
//! stands is in the state of each partition, under a name that the record has for each topic and that is never given again.
//!
//! # Invariants
//! 1. One name has at most one identity at a time, and an identity never comes back.
//! 2. A topic is in the record before any of its partitions has a cursor, and leaves it after the last one is gone.
//! 3. A deletion is decided by one compare-and-set to DELETING and then only goes on.
//! 4. Who makes a cursor looks at the record afterwards, and removes what it made where the record has it no more. What slips
//!    through is removed by `orphans`: a request that is late harms no subscription of the same name.
//!
//! Reading order: `name`, `sharing`, `record`, `registry`, `cursors`, `orphans`.

mod cursors;
mod name;
mod orphans;
mod record;
mod registry;
mod sharing;
#[cfg(test)]
mod tests;

pub(crate) use cursors::{not_called, not_of_topic};
pub use name::SubscriptionName;
pub(crate) use name::namespace_of;
pub use orphans::Orphans;
pub use record::{StartPoint, SubscribedTopic, Subscription, SubscriptionKind, SubscriptionPage};
pub(crate) use registry::not_shared;
pub use registry::{NewSubscription, SubscriptionUpdate, Subscriptions};
pub use sharing::{Dead, Order, Sharing};
