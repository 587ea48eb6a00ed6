//! Bytes of the wire: frames in and out, and requests as they are read from them.
//!
//! `inbox` reads frames, with a limit before each allocation and room from the broker's budget before the bytes; `request` reads a
//! frame's header and checks its body with a walk (`schema`, over the tables of `requests` and `api`) before a message decoder sees
//! it; `answer` is a response as runs of bytes, which `outbox` writes.

mod answer;
mod api;
mod inbox;
mod outbox;
mod request;
mod requests;
mod schema;

pub(crate) use answer::{Answer, offset, put_header, put_varint, text};
pub(crate) use api::APIS;
pub(crate) use inbox::{Frame, Inbox, LargeFrames};
pub(crate) use outbox::Outbox;
#[cfg(feature = "testing")]
pub use request::decodes;
pub(crate) use request::{Asked, Broken, Incoming, Request, read};
#[cfg(test)]
pub(crate) use schema::{Refusal, walk};
