//! The log of a partition as a chain of ledgers: linking, finding and reading.
//!
//! `chain` is the list of ledgers in metadata (both of the log and of the state), `view` what the owner knows of the log's
//! ledgers and recent entries (`tail`) and of where entries stand (`index`), `reader` answers reads from it,
//! `by_time` finds records by their time, `retained` says which may go, `losses` passes over what is recorded as lost.

mod backlog;
mod by_time;
mod chain;
mod index;
mod losses;
mod reader;
mod retained;
mod tail;
mod view;

pub(crate) use by_time::TimeTurns;
pub(crate) use chain::{Chain, ChainError};
pub(crate) use reader::LogReader;
pub use reader::{ReadBatch, ReadChunk, SkipReason};
pub(crate) use tail::{LogEntry, TailBudget};
pub(crate) use view::{LedgerSpan, LogView};
