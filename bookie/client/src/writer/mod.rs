//! The writer of a ledger (storage.md W1–W16).
//!
//! [`WriterCore`] is the protocol as a state machine without I/O: `core` (appends, sends, time), `acks` (what answers mean),
//! `ending` (close, fence, failure), over `pending` (entries and their copies), `position` (members) and `sequence` (numbers).
//! `task` is its shell, a task per ledger that is being written to; `handle` is what the owner holds, with `permits` for what is in
//! flight and `shown` for what is watched; `closing` writes the close into metadata.
//!
//! A member that fails is retried, and replaced when that does not help: `change` (W7–W12) surveys and proposes, `resolve` learns
//! what became of the proposal, `surveying` asks metadata for both. `full` tells the owner when nothing helps, because disks are
//! full (amended D1). `open_writers` knows them all, for what is said to everybody.

mod acks;
mod change;
mod closing;
mod core;
mod ending;
mod event;
mod full;
mod handle;
mod open_writers;
mod pending;
mod permits;
mod position;
mod resolve;
mod sequence;
mod shown;
mod surveying;
mod task;
#[cfg(test)]
mod tests;

pub use core::WriterCore;
pub use event::{AddCall, AddTag, Sealing, Survey, WriterConfig, WriterEffect, WriterEvent};
pub use handle::{Appended, LedgerWriter};
pub use sequence::Sequence;

pub(crate) use closing::{CloseGuard, commit_close, end_of};
pub(crate) use handle::Opened;
pub(crate) use open_writers::OpenWriters;
