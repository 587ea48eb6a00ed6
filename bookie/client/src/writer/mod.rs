//! The writer of a ledger (storage.md W1–W16).

mod handle;

pub use handle::{Appended, LedgerWriter};
