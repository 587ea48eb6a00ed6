//! The callers' end: a bookie elsewhere as `BookieCalls`.
//!
//! Reading order: `bookie` (the trait), `lane` (the calls that are out: order, numbers, room, deadlines), `outbound` (what is sent),
//! `link` (dial, open, take answers, break), `reply` (what an answer means to its caller), `connect` and `config`.

mod bookie;
mod config;
mod connect;
mod lane;
mod link;
mod outbound;
mod reply;

pub use bookie::RemoteBookie;
pub use config::RemoteConfig;
pub use connect::{Connect, Connecting, TcpConnect, Transport};
pub(crate) use link::{FRAME_BYTES_MAX, WINDOW_BYTES};
