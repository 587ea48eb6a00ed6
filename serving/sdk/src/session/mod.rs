//! Produce sessions: one bidirectional stream per (client, broker), shared by all lanes to that broker.
//!
//! A lane submits without waiting; what it submits leaves in order as far as the broker's credit reaches ([`outbound`]).
//! A task per session ([`run`]) hands each answer to its lane's mailbox.
//!
//! # Invariants
//! 1. Items of a lane leave in the order in which they were submitted.
//! 2. When a session ends, each of its lanes hears of it exactly once, as its last message.
//! 3. Batches never exceed the granted credit, except one batch that is larger than all credit there is.

mod outbound;
mod registry;
mod run;

pub(crate) use outbound::Up;
pub(crate) use registry::Sessions;
pub(crate) use run::{Attachment, Down};
