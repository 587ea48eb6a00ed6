//! Producer and reader against the broker in memory, over real sockets.

mod cases;
mod common;
mod delivery;
mod reading;
