//! The consumer's shell: it does what the core says.
//!
//! [`shared`] lets one at a time into the core and carries out what it leaves; [`control`] is the task that finds owners and attaches;
//! [`session`] is a stream to one broker, and its task.

mod control;
mod session;
mod shared;

pub(super) use control::run as control;
pub(super) use shared::{Parts, Shared};
