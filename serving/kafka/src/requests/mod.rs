//! What each request does: decode, authorise, act on the broker, encode. One file per request or family.

mod about;
mod alter;
mod begin;
mod configs;
mod delete_records;
mod grow;
mod metadata;
mod offsets;
mod produce;
mod topics;

pub(crate) use about::older_versions;
pub(crate) use begin::{Begun, Outcome, begin, count, millis, throttle};
pub(crate) use metadata::epoch_number;
