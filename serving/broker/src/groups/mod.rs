//! Consumer groups (serving.md B2, B6, B7; ARCHITECTURE D8): each belongs to a shard, and each shard is a partition of an internal topic
//! that has a state chain and never a log. The owner of that partition is the coordinator of the shard's groups, for all wires.
//!
//! The rules are in `serving-groups`, without I/O. Here is what they stand on: `place` (which shard has a group, and where it is), `shard`
//! (the task beside an open shard), `names` (which topics there are), `claims` and `sweep` (one space of names with subscriptions),
//! `watching` (members that are told), `idle` (who has no partition).
//!
//! # Invariants
//! 1. A shard's deltas are written in order, one write at a time; its task ends with the partition, and with it whoever waits.
//! 2. Reads are answered by the owner only: while its lease stands, or after a look (storage.md, "ends of logs").

mod claims;
mod idle;
mod names;
mod place;
mod shard;
mod sweep;
mod watching;

pub(crate) use claims::group_of;
pub(crate) use names::called;
pub(crate) use place::{Groups, INTERNAL_TENANT};
pub(crate) use watching::{Told, Watch};
