//! Connections: how a socket is made (`dial`), how HTTP/2 is set (`settings`), which channel serves which purpose (`pool`).
//!
//! # Invariants
//! 1. Produce, consume and control never share a connection, so none can stall another (serving.md E1.3).
//! 2. A connection is never its own peer.

mod dial;
mod pool;
mod settings;

pub use dial::{Connect, Connecting, TcpConnect, Transport};
pub(crate) use pool::{Broker, Pool, Purpose};
pub(crate) use settings::MESSAGE_BYTES_MAX;
