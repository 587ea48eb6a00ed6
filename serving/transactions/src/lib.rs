//! `serving-transactions`: the protocol cores of transactions (serving.md C, ARCHITECTURE D10), as state machines without I/O.
//!
//! A transaction's coordinator decides; partitions and shards of groups hold what is undecided, and settle it when the marker comes. Each
//! is a machine of its own, with time passed in: its shell appends what it proposes to a chain, says when that is durable, carries
//! questions and markers between brokers, and replays the chain when the place moves.
//!
//! | machine | place | durable | live |
//! |---|---|---|---|
//! | [`coordinator`] | shard of transactional ids, a state chain | [`coordinator::TransactionsShard`] | [`coordinator::Coordinator`] |
//! | [`partition`] | any partition: L and M | [`partition::LogTransactions`], [`partition::StateTransactions`] | [`partition::Door`] |
//! | [`group`] | shard of groups | [`group::OffsetStages`] | [`group::StageDoor`] |
//! | [`staging`] | partition of the staging store | [`staging::StagingState`] | [`staging::Staging`] |
//!
//! Main path of a transaction: Init → Add (from the client, or from a place that saw its first part and holds a [`Ticket`]) → batches,
//! acks and offsets are taken → End → durable Prepare → answer and [`Marker`]s → Complete.
//!
//! # Invariants
//! 1. All or nothing: what a transaction wrote, acknowledged and committed becomes visible with its commit, or never.
//! 2. The decision is one durable record; whatever dies after it, its markers reach everybody.
//! 3. Whoever is fenced changes nothing: by epoch at each place, by the coordinator's word before a place opens a transaction.
//! 4. No last stable offset waits for ever: each open transaction has a coordinator that ends it, by its time-out at the latest.
//! 5. `apply` is the only way that anything durable changes: `live == replay`.
//! 6. Everything has a bound ([`limits`]).
//!
//! Not here: which shard has an id, who may do what, Kafka's numbers of errors, the table of sequences, membership of groups.
//!
//! Reading order: `producer`, `marker`, `coordinator`, `guard`, `partition`, `group`, `staging`.

pub mod coordinator;
mod error;
mod fields;
#[cfg(test)]
mod golden;
pub mod group;
mod guard;
pub mod limits;
mod marker;
pub mod partition;
mod producer;
#[cfg(test)]
mod simulation;
pub mod staging;

pub use error::TxnError;
pub use fields::RecordError;
pub use guard::{Guarded, Guards, Ticket};
pub use marker::Marker;
pub use producer::{NO_EPOCH, Producer, Version};
