//! Producer, reader and consumer against the broker in memory, over real sockets.

mod cases;
mod common;
mod consuming;
mod delivery;
mod reading;
