//! Fakes for this crate's tests: a partition as its owner judges it ([`partition`]) and a broker around it ([`server`]).

mod consume;
mod end_to_end;
mod log;
mod partition;
mod produce;
mod server;

pub(crate) use partition::{Partition, Verdict};
pub(crate) use server::{Faults, Server};
