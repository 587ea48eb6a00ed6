//! The producer: records in, tickets out.
//!
//! Path of a record: [`handle`] (memory budget, [`partitioner`]) → [`queue`] (the batch that grows) → `lane` (compress, stamp, window)
//! → `session` (credit, wire) → back to the [`ticket`].
//!
//! # Invariants
//! 1. Records of one partition that are sent one after the other are stored in that order.
//! 2. No more than `max_unacked_bytes` wait for their fate; whoever sends more waits, first come, first served.
//! 3. Each record's fate is told exactly once: by its ticket, or, when that was dropped, by `flush` and `close`.

mod builder;
mod delivery_mode;
mod handle;
mod losses;
mod partitioner;
mod queue;
pub mod raw;
mod record;
mod shared;
mod stats;
mod ticket;
mod trouble;

pub use builder::ProducerBuilder;
pub use delivery_mode::{DeliveryMode, UnknownDeliveryMode};
pub use handle::Producer;
pub use partitioner::{Partitioner, murmur2, partition_of_key};
pub(crate) use queue::{Content, Queue, Request};
pub use record::Record;
pub(crate) use shared::Shared;
pub use shared::{Acks, ProducerIdentity};
pub use stats::ProducerStats;
pub(crate) use stats::count;
pub(crate) use ticket::BatchFate;
pub use ticket::{Receipt, Ticket};
