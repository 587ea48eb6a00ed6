//! What each request does: decode, authorise, act on the broker, encode. One file per request or family.

mod about;
mod all_topics;
mod alter;
mod committed;
mod configs;
mod copies;
mod delete_records;
mod grow;
mod metadata;
mod offsets;
mod owed;
mod produce;
mod retained;
mod rows;
mod stage;
mod topics;

pub(crate) use about::older_versions;
pub(crate) use metadata::epoch_number;
pub(crate) use owed::Owed;
pub(crate) use stage::{
    DECODED_BYTES, FirstStage, Outcome, count, first_stage, millis, rows_room, throttle,
};
