//! `serving-kafka`: the Kafka wire over a broker, so that Kafka's producers and consumers work unchanged.
//!
//! Main path of a request: `wire::inbox` (length, room, bytes) → `wire::request` (header, walk) → `requests` or `fetch` in two stages →
//! `wire::outbox`. The first stage (decode, authorise, hand over to the broker) is awaited before the next request is looked at; the
//! second (wait, encode) goes on beside later ones. `connection` holds these together and keeps the order; `listener` accepts.
//!
//! # Invariants
//! 1. No length, count or version of a peer is believed before it is checked: `wire::schema` says how. What all connections hold in
//!    memory is bounded, by budgets of the broker (frames, records that are read) and of the listener (decoded requests, fetches that
//!    wait, answers of many rows that are made), each taken before the memory is. Beside these a connection has what is small: 16 KiB
//!    of a frame, as much of a decoded request, 256 rows or 64 KiB of an answer, and one fetch of 64 KiB while there is no room.
//! 2. Answers leave a connection in the order of its requests, and its batches reach each partition in that order.
//! 3. Batches are never decoded or encoded: stored bytes are sent bytes but for base offset and leader epoch (ARCHITECTURE D1), and
//!    fetched bytes are stored bytes, whichever wire brought them.
//! 4. What is advertised is served (`wire::api`); every error code comes from the table of `error_code`.
//!
//! Not here: transactions, which come with their coordinator; who may ask what (`serving_broker::authorise`).
//!
//! Reading order: `listener`, `link`, `connection`, `wire`, `requests`, `fetch`, `groups`; `names`, `brokers` and `error_code` are looked up.

mod brokers;
mod connection;
mod error_code;
mod fetch;
mod groups;
mod link;
mod listener;
mod names;
mod requests;
#[cfg(test)]
mod tests;
mod wire;

pub use link::Advertise;
pub use listener::{KafkaListener, ListenerConfig};

/// What is fuzzed from outside.
#[cfg(feature = "testing")]
pub mod testing {
    pub use crate::wire::decodes;
}
