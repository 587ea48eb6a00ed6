//! Client commands and `config`. Each returns a typed value and lets [`crate::output`] render it; the server is reached through the SDK
//! only.

pub(crate) mod bench;
pub(crate) mod config;
mod confirm;
pub(crate) mod consume;
mod input;
pub(crate) mod ledgers;
pub(crate) mod produce;
pub(crate) mod session;
mod tickets;
pub(crate) mod topics;
