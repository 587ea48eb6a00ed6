//! What a shard must remember: groups, members, assignments, offsets (serving.md B1, B2).
//!
//! # Invariants
//! 1. [`ShardState::apply`] is the only way that it changes, live and in replay alike (B2.2): `live == replay`.
//! 2. A delta is applied as a whole, and means the same whatever came before: it says what is, never what to add.
//! 3. No partition is held by two members of a group of the newer protocol (B7); `held` is derived, and never encoded.
//! 4. Bytes are versioned; counts and lengths are checked before anything is allocated.
//!
//! Reading order: `classic` and `consumer` (the two kinds of group), `group`, `change` (what a delta says), `shard`; `fields`,
//! `members` and `encode` are its form on disk.

mod change;
mod classic;
mod consumer;
mod encode;
mod fields;
#[cfg(test)]
mod golden;
mod group;
mod members;
mod shard;
#[cfg(test)]
mod tests;

pub use change::{Change, Delta};
pub use classic::{ClassicGroup, ClassicMember};
pub(crate) use consumer::LEFT_STATIC;
pub use consumer::{
    ClassicFacts, ConsumerGroup, ConsumerMember, Current, MemberFacts, MemberState,
};
pub use fields::RecordError;
pub use group::{CommittedOffset, DurableGroup, GroupKind};
pub use shard::ShardState;
