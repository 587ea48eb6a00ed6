//! The bookie's end: takes streams of calls and answers them.
//!
//! Reading order: `server` (settings, start, end), `service` (one method), `answers` (one stream).

mod answers;
mod server;
mod service;

#[cfg(test)]
pub(crate) use answers::Answers;
pub use server::{ServeLimits, Served, serve};
