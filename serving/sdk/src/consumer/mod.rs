//! The consumers of subscriptions: records out, acknowledgements back. Below: the one that has a partition for itself; [`queue`] is the
//! one that shares; [`stream`] is the member of a group.
//!
//! Path of a record: broker → `link/session` (a stream) → `core` (does it follow? what of it is new?) → [`handle`] (decode, hand out) →
//! the application → `ack` → `core/acks` → broker → receipt.
//!
//! # Invariants
//! 1. Each offset of a partition is handed out, named as skipped, or was acknowledged before; anything else is [`crate::Error::gap`].
//! 2. What was acknowledged and got its receipt never comes again, except after a seek. What was not comes again after a break, marked
//!    as a redelivery if it was handed out by this consumer before.
//! 3. A broken link, a restarted broker and a new owner are no errors: everything goes on where it was.
//! 4. Bytes and records that wait to be handed out are bounded by the receive queue, but for one stored batch per broker.
//! 5. Records of a partition come in order; a redelivery begins the order anew.

mod builder;
mod core;
mod handle;
mod kind;
mod link;
mod opened;
mod queue;
mod record;
mod stream;

pub use self::core::{Acknowledgement, BlockedReason, ConsumerNote, SkipReason};
pub use builder::SubscriptionConsumerBuilder;
pub use handle::SubscriptionConsumer;
pub(crate) use kind::start_at;
pub use kind::{SubscriptionType, UnknownSubscriptionType};
pub use queue::{HeldUp, QueueConsumer, QueueConsumerBuilder, QueueMessage, QueueReceipt};
pub use record::{Consumed, ConsumerStats, ReceivedRecord, Unacknowledged};
pub use stream::{
    Commit, StreamConsumer, StreamConsumerBuilder, StreamItem, StreamNote, StreamPartition,
    StreamRecord, StreamStats,
};
