//! What subscriptions have not processed: counted, and kept within the quota of their topic (serving.md B9.3).
//!
//! `policy` is what a topic or the cluster says; `kept` is the measure of one subscription on one partition, and its limits; `watch`
//! looks at the open partitions and does what the policy says; `board` is what it saw last, for people; `refusal` is what producers
//! hear.
//!
//! # Invariants
//! 1. Only subscriptions that hold count, each by itself, on each partition by itself: the owner alone decides.
//! 2. A subscription without a backlog keeps nothing: zero bytes, age zero.
//! 3. Records are given up only where the policy is to evict, in the order of their offsets, by a durable move of the cursor.
//! 4. Producers are refused from the look that finds a subscription over its limit to the look that finds none.

mod board;
mod kept;
mod policy;
mod refusal;
#[cfg(test)]
mod tests;
mod watch;

pub(crate) use board::{Board, Standing};
pub(crate) use kept::{Aged, Kept};
pub use policy::{BacklogLimits, BacklogPolicy, QuotaAction};
pub(crate) use refusal::Refusal;
pub(crate) use watch::Watch;
