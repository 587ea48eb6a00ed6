//! The writer of a ledger (storage.md W1–W16).
//!
//! [`WriterCore`] is the protocol as a state machine without I/O: `core` (appends, sends, time), `acks` (what answers mean),
//! `ending` (close, fence, failure), over `pending` (entries and their copies), `position` (members) and `sequence` (numbers).
//! `task` is its shell, one task per open ledger; `handle` is what the owner holds, with `permits` for what is in flight; `closing`
//! writes the close into metadata.
//!
//! A member that fails is retried, not replaced: ensemble change (W8) would enter where a position becomes useless.

mod acks;
mod closing;
mod core;
mod ending;
mod event;
mod handle;
mod pending;
mod permits;
mod position;
mod sequence;
mod task;
#[cfg(test)]
mod tests;

pub use core::WriterCore;
pub use event::{AddCall, AddTag, Sealing, WriterConfig, WriterEffect, WriterEvent};
pub use handle::{Appended, LedgerWriter};
pub use sequence::Sequence;

pub(crate) use closing::{CloseGuard, commit_close, end_of};
pub(crate) use handle::Opened;
