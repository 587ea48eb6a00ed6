//! A bookie behind a pipe in memory: the whole of both ends without a socket, also on paused time.

mod pipe;
mod wire;

pub use pipe::Pipe;
pub use wire::{Loopback, Wire};
