//! Ledgers under fire: writers that live on, one and two recoverers, crashing bookies, silent metadata.
//!
//! `plan` draws a run, `writer` and `recoverer` are its processes, `book` what they were told, `judge` the oracle.

mod book;
mod judge;
mod plan;
mod recoverer;
mod writer;

pub use book::Book;
pub use plan::{finish, run, run_with};
pub use recoverer::recover_all;
pub use writer::{Writer, entry};
