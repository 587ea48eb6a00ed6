//! Client commands and `config`. Each returns a typed value and lets [`crate::output`] render it; the server is reached through the SDK
//! only.

pub(crate) mod bench;
mod beyond;
pub(crate) mod cluster;
pub(crate) mod completions;
pub(crate) mod config;
mod confirm;
pub(crate) mod consume;
pub(crate) mod doctor;
pub(crate) mod generate;
mod greeting;
mod input;
pub(crate) mod ledgers;
pub(crate) mod link;
pub(crate) mod produce;
pub(crate) mod profile;
pub(crate) mod session;
pub(crate) mod shapes;
pub(crate) mod subscriptions;
mod tickets;
pub(crate) mod topics;
pub(crate) mod verify;
