//! Kafka's requests about groups (serving.md D1 set 2, B6 to B8): from the wire to the coordinator's words and back. The rules are in
//! `serving-groups`; where a group is, and what is durable of it, in the broker.
//!
//! A join and a sync wait for other members, so that the connection goes on beside them; everything else is answered in its turn.
//!
//! Reading order: `answers` (errors, and the way to the coordinator), `find`, `membership`, `newer` (KIP-848), `offsets`, `committed`,
//! `admin`, `described`.

mod admin;
mod answers;
mod committed;
mod described;
mod find;
mod membership;
mod newer;
mod offsets;

pub(crate) use admin::{delete_groups, delete_offsets, list};
pub(crate) use committed::fetch;
pub(crate) use described::{describe, describe_newer};
pub(crate) use find::coordinator;
pub(crate) use membership::{beat, join, leave, sync};
pub(crate) use newer::member_beat;
pub(crate) use offsets::commit;
