//! The consumer of a QUEUE or KEYED subscription: it shares the records with others, and answers each by itself.
//!
//! One task per partition ([`lane`]) keeps it attached at its owner; `book` brings answers to their receipts, `shared` holds what waits
//! for the application, `held_up` why nothing comes.
//!
//! # Invariants
//! 1. A record that was acknowledged and got its receipt never comes again, except after a seek. Any other one may: it is delivered until
//!    it is acknowledged, rejected, or has failed too often.
//! 2. A record that the application has is its own as long as its handle lives: its lock is renewed meanwhile, for at most an hour.
//! 3. An answer without a receipt is sent again after a break, and counts if nobody else was given the record meanwhile.
//! 4. An interceptor that refuses a record fails that record alone.
//! 5. What waits for the application is bounded by the receive queue, but for one stored batch per partition.

mod ahead;
mod book;
mod builder;
mod handle;
mod held_up;
mod lane;
mod link;
mod message;
mod shared;

pub use book::QueueReceipt;
pub use builder::QueueConsumerBuilder;
pub use handle::QueueConsumer;
pub use held_up::HeldUp;
pub use message::QueueMessage;
