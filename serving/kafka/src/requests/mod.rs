//! What each request does: decode, authorise, act on the broker, encode. One file per request or family.

mod about;
mod all_topics;
mod alter;
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

pub(crate) use about::{NO_OPERATIONS, older_versions};
pub(crate) use metadata::epoch_number;
pub(crate) use offsets::ended;
pub(crate) use owed::Owed;
pub(crate) use rows::{Rows, once};
pub(crate) use stage::{
    DECODED_BYTES, FirstStage, Outcome, count, first_stage, millis, rows_room, throttle,
};
