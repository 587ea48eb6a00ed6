//! Interceptors: code of the user's that sees each record on its way out and in.
//!
//! [`hooks`] says what one is told and when; [`chain`] calls several in order; [`numbers`] is a ready pair that proves that nothing
//! was lost, doubled or reordered on the way; [`trace_context`] carries traces across records.
//!
//! # Invariants
//! 1. Sending calls them in the order in which they were given, the client's before those of the producer; answers and delivery in the
//!    reverse order, so that whoever touched a record last is the first to take it back.
//! 2. Without interceptors nothing is copied and nothing is called.

mod chain;
mod hooks;
pub mod numbers;
pub mod trace_context;

pub(crate) use chain::{Chain, Placing};
pub use hooks::{Interceptor, PLACED_HEADER_BYTES_MAX, Placed, Produced, Refusal};
