//! The listener through real sockets, over real partitions whose ledgers lie in a memory bookie.

mod admin;
mod faults;
mod produce;
mod reading;
mod room;
mod session;
mod world;
