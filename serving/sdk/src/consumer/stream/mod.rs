//! The member of a group: partitions are shared with the other members, and what is processed is committed as "everything below".
//!
//! Path of a record: `member` (a stream to the coordinator) hears of an assignment → [`book`] (what is ours, and what goes) → `feed` (reads
//! each partition from where the group is) → [`handle`] (hands out) → the application → `commit` → `book` → `member` → receipt.
//!
//! # Invariants
//! 1. Each offset of a partition that is ours is handed out or named as skipped; anything else is [`crate::Error::gap`].
//! 2. Of a partition that goes nothing more is handed out. It is given back when the application has had the chance to commit what it
//!    had, and when those commits have their answers; or when its time for that is over.
//! 3. What the group does to other partitions does not disturb those that stay: they are read on.
//! 4. Bytes that wait to be handed out are bounded.

mod book;
mod builder;
mod commits;
mod feed;
mod handle;
mod item;
mod link;
mod member;
mod shared;
#[cfg(test)]
mod tests;

pub use builder::StreamConsumerBuilder;
pub use commits::Commit;
pub use handle::StreamConsumer;
pub use item::{StreamItem, StreamNote, StreamPartition, StreamRecord, StreamStats};
