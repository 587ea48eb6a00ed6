//! Service Log: reads without a subscription, and where a log begins and ends.
//!
//! `service` is the two calls and the task behind a read, `message` cuts what was read into messages, `room` is what they
//! take until they are sent.

mod message;
mod room;
mod service;

pub(super) use room::Room;
pub(super) use service::LogService;
