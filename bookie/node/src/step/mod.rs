//! The node in one thread, step by step: for simulation and for tests of recovery.
//!
//! The caller submits requests, decides when a group is taken, written and synced, answers metadata's questions, and crashes the
//! disk whenever it likes: dropping the node at any point is a crash of the process.
//!
//! `node` is all but reclaim, which `reclaiming` does one piece at a time, and `inventory`, which says what is held.

mod inventory;
mod node;
mod reclaiming;

pub use node::{StepAnswer, StepNode, StepOutput};
pub use reclaiming::Reclaimed;
