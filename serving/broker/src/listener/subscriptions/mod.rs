//! Service Subscriptions: makes, shows, moves and deletes subscriptions.
//!
//! `starting` is what it shares with consumers that attach: the record in metadata and the cursors of all partitions. `moving` is
//! seek, skip and clear; `removing` deletes, in an order that can be cut short and begun again; `describing` is for people; `elsewhere` has all of it
//! done on partitions of other brokers; `groups` does the same for those whose offsets are a coordinator's.

mod describing;
mod elsewhere;
mod groups;
mod moving;
mod removing;
mod service;
mod starting;
#[cfg(test)]
mod tests;

pub(crate) use service::SubscriptionsService;
