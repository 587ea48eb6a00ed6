//! Requests and answers as messages, and the codec that carries them.
//!
//! Reading order: `request`, `answer`, `fault` (every `BookieError`), `pieces` (entries), `frame` (the codec).
//!
//! A decoder takes whatever arrives: what is no request or answer is [`Malformed`], and never a panic.

mod answer;
mod fault;
mod frame;
mod held;
mod pieces;
mod request;

pub use answer::{
    Answer, Refusal, Run, decode_answer, encode_answer, encode_entries, encode_heads,
};
pub use fault::{decode_fault, encode_fault};
pub use frame::{FIELDS_MAX, check_fields};
pub(crate) use frame::{FrameCodec, METHOD, SERVICE};
pub use pieces::{decode_entries, decode_heads};
pub use request::{Call, Request, decode_request, encode_call, encode_open};

/// Why a message is none of ours: the other end is broken, or of a version that should not have been let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed: {0}")]
pub struct Malformed(pub String);

impl Malformed {
    fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}
