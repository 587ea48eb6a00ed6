//! `bookie-transport`: [`BookieCalls`](hulse_proto::bookie::BookieCalls) over a network, both ends. What a call means is the storage
//! node's business, and when to send it again the caller's.
//!
//! Main path of an add: [`RemoteBookie`] (its place in the lane, room, a number) → outbound stream → [`serve`]'s stream of answers
//! (decode, call the node, wait) → inbound stream → the caller's future.
//!
//! # Invariants
//! 1. A call has its place in the order of its lane when the method returns, and reaches the node in that order.
//! 2. A call is sent at most once. One whose answer will not come is answered `NoAnswer`, which says that it may or may not have
//!    happened; so a stream that breaks answers all calls that are out.
//! 3. No call is sent before the peer has said that it is the bookie that is meant. Cell and incarnation are in every call, and the
//!    node judges them (storage.md B0).
//! 4. Bytes and calls that wait are bounded at both ends. A caller is refused `Busy`; a node that has too much of one stream reads no
//!    further, and HTTP/2 stops the sender.
//! 5. Lengths and counts of a message are looked at before anything is allocated for them.
//!
//! Payloads are copied into the codec's buffer of the sender and are slices of the codec's buffer at the receiver: whoever keeps one
//! for long copies it (dependencies.md §1.6).
//!
//! Reading order: [`wire`] (requests and answers as messages), `serve` (at the bookie), `remote` (at the caller).

mod remote;
mod serve;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod wire;

pub use remote::{Connect, Connecting, RemoteBookie, RemoteConfig, TcpConnect, Transport};
pub use serve::{ServeLimits, Served, serve};
