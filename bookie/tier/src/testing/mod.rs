//! For tests of this crate and of others: closed ledgers with entries, uploads of them, and what is in a store already.

mod ledger;
mod source;
mod stored;

pub use ledger::{ClosedLedger, closed_ledger};
pub use source::MemorySource;
pub use stored::{StoredLedgers, stored};
