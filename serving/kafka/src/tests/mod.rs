//! The listener over a broker in memory, as a client of another hand's messages sees it.

mod about;
mod brokers;
mod connection;
mod copies;
mod doubt;
mod fetching;
mod groups;
mod offsets;
mod openings;
mod producing;
mod sessions;
mod topics;
mod trimming;
mod versions;
mod world;
