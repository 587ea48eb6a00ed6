//! The coordinator of transactional ids (serving.md C5), as a machine: inputs in, effects out.
//!
//! A change counts when it is proposed, and what rests on it is answered when it is durable. When an append fails, the machine ends with
//! all that waits, and the next one begins from what the chain holds, which decides whether the append had landed: so no id is left with
//! a change that nobody will ever end. Meanwhile the id answers CONCURRENT.
//!
//! # Invariants
//! 1. [`TransactionsShard::apply`] is the only way that what is durable changes: `live == replay`.
//! 2. The decision is the durable Prepare: no marker leaves before it, and nobody hears of it before.
//! 3. A transaction is complete when every participant has its marker durably; until then they are sent again for ever, also by the
//!    next coordinator. Participants whose topic is deleted are passed over, by the topic's identity.
//! 4. Whoever is fenced gets no transaction on: each fence bumps the epoch before its abort is decided.
//!
//! Reading order: `transaction` (one id), `change`, `shard` (what is durable); `request`, `answer`; `core` (one input), `init`, `add`,
//! `end`, `markers`, `timers`, `admin`.

mod add;
mod admin;
mod answer;
mod change;
mod core;
mod end;
mod init;
mod markers;
mod request;
mod shard;
#[cfg(test)]
mod tests;
mod timers;
mod transaction;

pub use answer::{Added, Answer, Effect, Listing};
pub use change::{Change, Delta};
pub use core::{Coordinator, CoordinatorConfig};
pub use request::{Input, MarkerOutcome, Request, RequestId};
pub use shard::TransactionsShard;
pub use transaction::{Participant, Parts, Transaction, TxnState};
