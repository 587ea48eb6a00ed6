//! The listener through real sockets, over real partitions whose ledgers lie in a memory bookie.

mod admin;
mod bookies;
mod consumer;
mod consuming;
mod cursors;
mod damage;
mod doubt;
mod effects;
mod faults;
mod frozen;
mod handing;
mod internal;
mod owners;
mod peers;
mod produce;
mod quotas;
mod reading;
mod room;
mod session;
mod sharing;
mod stream_groups;
mod world;
