//! Ledgers under fire: writers that live on, up to three recoverers at once, repair, crashing bookies, silent metadata.
//!
//! `plan` draws a run, `start` builds the state it begins with, `writer` and `recoverer` are its processes, `book` what they were told,
//! `judge` the oracle.

mod book;
mod judge;
mod plan;
mod recoverer;
mod start;
mod writer;

pub use book::Book;
pub use judge::judge;
pub use plan::{finish, run, run_with};
pub use recoverer::recover_all;
pub use writer::{append, entry, new_ledger};
