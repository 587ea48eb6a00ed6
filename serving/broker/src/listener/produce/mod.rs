//! Service Produce: one session per (client, broker), lanes inside it.
//!
//! `lane` is the state machine of one lane: order, refusals, answers; no I/O, no async. `session` is the one task of a session:
//! it reads, hands batches to partitions, and sends what the lanes say. `items` is what it does with each thing a client sends,
//! `pending` a batch under way, `room` what a session holds, `service` the call.
//!
//! # Invariants
//! 1. Each batch of an ACKS_QUORUM lane is answered exactly once, in the order of its lane, by its own outcome; after a lane was
//!    closed with a fault nothing more is said of it.
//! 2. Lanes never wait for each other, except for the session's and the broker's bound on bytes.
//! 3. What is read and not answered is bounded by `max_inflight_bytes` plus one batch per session, and by the broker's ingress
//!    room; beyond that nothing is read, so HTTP/2 stops the sender. Heartbeats of the broker go on meanwhile.
//!
//! More batches in flight than `Welcome.max_inflight_batches` on an ACKS_QUORUM lane are refused with OVERLOADED, not held back:
//! to stop reading for one lane would stop all lanes of the session. An ACKS_NONE client cannot count what is in flight, so for
//! it only the bounds of the session hold.

mod items;
mod lane;
mod pending;
mod room;
mod service;
mod session;

#[cfg(test)]
mod lane_tests;

pub(super) use service::ProduceService;
