//! Transactions at the owner of a partition (serving.md C2.7, C6, C7; ARCHITECTURE D3, D10).
//!
//! [`LogTransactions`] belongs to L: it folds confirmed log entries and knows open transactions, epochs, and what was aborted.
//! [`StateTransactions`] belongs to M: it folds META deltas and knows acks that transactions have staged, with their own epochs. Neither
//! looks at the other; [`View`] is both. [`Door`] is what only a live owner has: guards, and what is on its way.
//!
//! # Invariants
//! 1. The last stable offset follows from confirmed entries alone, and moves with the entry that settles the transaction: marker, epoch
//!    and index of aborted ranges are applied in one step (C6.3). It never falls.
//! 2. A transaction is opened only behind a coordinator's word that no marker overtook (C2.7).
//! 3. A marker that comes again changes nothing, at either half.
//! 4. What comes from a producer is held against the higher of L's and M's epoch (D10).
//! 5. A range of offsets of one cursor is staged by at most one transaction.
//!
//! Reading order: `log`, `aborted`, `state`, `staged`, `view`, `door`, `encode`; `conditional` stands alone.

mod aborted;
mod conditional;
mod door;
mod encode;
mod log;
mod staged;
mod state;
#[cfg(test)]
mod tests;
mod view;

pub use aborted::{Aborted, AbortedIndex};
pub use conditional::Condition;
pub use door::{BatchFacts, BatchVerdict, Door, Half, MarkerPlan, OnItsWay};
pub use log::{LogProducer, LogTransactions};
pub use staged::{Stage, StagedAcks};
pub use state::{StateChange, StateProducer, StateTransactions};
pub use view::View;
