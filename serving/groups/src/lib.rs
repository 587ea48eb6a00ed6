//! `serving-groups`: the coordinator of consumer groups (serving.md B2, B6 to B8, B10), as a state machine without I/O.
//!
//! A group belongs to one shard, and a shard has one [`Coordinator`]: requests, time and what it needs to know of topics go in,
//! answers and what is to be durable come out. Its shell appends [`Delta`]s to the shard's state chain, says when they are durable,
//! and replays the chain into a [`ShardState`] when the shard moves.
//!
//! Main path: [`Coordinator::on_input`] → `classic` or `consumer` → [`ShardState::apply`] → [`Effect::Append`] → confirmed → [`Effect::Answer`].
//!
//! # Invariants
//! 1. What is durable changes only by `apply`, live and in replay alike (B2.2).
//! 2. An answer leaves when everything is durable that was said of its group before.
//! 3. In a group of the newer protocol no partition is held by two members: one gives up before another gets (B7).
//! 4. Who is fenced commits nothing.
//! 5. Bytes of classic members are handed on unchanged (case KA-06).
//! 6. Everything has a bound (`limits`); the same inputs, times and seed give the same effects.
//!
//! Times are ms: passing time for timers, the date for committed offsets only. Not here: transactions, which shard and broker has a
//! group, what authorises, and Kafka's numbers of errors.
//!
//! Reading order: `request`, `answer`, `state`, `coordinator`, `classic`, `assignors`, `consumer`, `offsets`; `embedded` reads bytes of
//! classic consumers.

mod answer;
mod assignors;
mod classic;
mod config;
mod consumer;
mod coordinator;
mod embedded;
mod error;
pub mod limits;
mod offsets;
mod request;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod simulation;
mod state;
#[cfg(test)]
mod testing;
mod topics;

pub use answer::{
    Answer, Description, Effect, GroupState, GroupType, Joined, JoinedMember, Listing,
    MemberAnswer, MemberDescription, PerPart, Synced,
};
pub use assignors::{RANGE, UNIFORM};
pub use config::GroupsConfig;
pub use coordinator::Coordinator;
pub use error::GroupError;
pub use request::{
    Beat, Begin, Client, Commit, FetchOffsets, Input, Join, Leave, Leaver, MemberBeat, NewOffset,
    Now, Progress, Protocol, Request, RequestId, Sync,
};
pub use state::{
    Change, ClassicFacts, ClassicGroup, ClassicMember, CommittedOffset, ConsumerGroup,
    ConsumerMember, Current, Delta, DurableGroup, GroupKind, MemberFacts, MemberState, RecordError,
    ShardState,
};
pub use topics::{Partitions, TopicFacts, TopicsView};
