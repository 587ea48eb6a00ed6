//! What is lacking: metadata compared with who is there and with what they say that they hold (storage.md X1, X2, X8).
//!
//! `fleet` decides on whom to count; `examine` compares one ledger, `pass` all of them.

mod examine;
mod fleet;
mod pass;
mod ranges;
#[cfg(test)]
mod tests;

pub use examine::{Finding, Holdings, Want, examine};
pub use fleet::{Fleet, GoneWhy, Trust};
pub use pass::{Audited, Auditor, LedgersOf};
