//! Tests of the crate: what goes over the wire, and both ends over a pipe.

mod breaks;
mod codec;
mod node;
mod openings;
mod order;
mod room;
mod script;
mod simulated;

pub(crate) use node::{Node, add, address, bookie, read, sealed};
