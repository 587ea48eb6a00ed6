//! Changes of ledger metadata: exact compares, nonces, and unknown outcomes resolved (storage.md M1–M6).
//!
//! `proposal` is the core: one change and how its outcome becomes known. `commit` drives it against the store. `ids` gives
//! numbers to ledgers.

mod commit;
mod ids;
mod proposal;
#[cfg(test)]
mod tests;

pub use commit::{Committed, NotCommitted, commit, read_ledger};
pub use proposal::{NonceField, Proposal, ProposalOutcome, ProposalStep};

pub(crate) use ids::LedgerIds;
