//! Groups of the newer protocol, KIP-848 (serving.md B7), of Kafka and gRPC members (B8), and of classic members among them.
//!
//! A group has an epoch, which grows with what is wanted; a target at an epoch; and members on their way to it, each at an epoch of
//! its own. A member gives up before its epoch grows, and gets only what nobody else holds: so no partition is ever at two members.
//!
//! Reading order: `reconcile` (one step of one member), `beat` (a heartbeat), `target`, `leave`, `clock`, `idle`; `migrate` (from
//! classic and back) and `classic_member` (a classic client in such a group).

mod beat;
mod classic_member;
mod clock;
mod idle;
mod leave;
mod migrate;
#[cfg(test)]
mod mixed_tests;
mod reconcile;
mod target;
#[cfg(test)]
mod tests;

pub(crate) use idle::Idle;
