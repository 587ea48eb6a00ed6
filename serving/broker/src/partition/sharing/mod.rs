//! QUEUE and KEYED subscriptions of one open partition: their records are shared out by a dispatcher each (`serving-dispatch`).
//!
//! `share` is one of them: the dispatcher, its consumers, and the bytes of the batches that it asked for. `reading` turns what was read
//! into what a dispatcher understands, `changes` turns its deltas into those of the state chain, `letters` copies what failed too often. The task of the partition drives them
//! (`task_side`): what a dispatcher wants written goes into the delta of all cursors, and it hears when that is durable. `door` is what a
//! consumer holds, `asking` what administration asks.
//!
//! # Invariants
//! 1. A dispatcher begins with what was accepted of its cursor, and from then on alone changes it.
//! 2. A delta of a dispatcher is never given up: it is written, with all others, until it is durable or the partition ends.
//! 3. What a consumer was sent is bounded by the credit it gave; what a dispatcher keeps of batches, by its own bound.
//! 4. A consumer that goes with its partition failed at nothing: nobody counts it (serving.md B3.8).
//!
//! Reading order: `door`, `asking`, `share`, `reading`, `changes`, `letters`, `task_side`.

mod asking;
mod changes;
mod door;
mod letters;
mod reading;
mod share;
mod task_side;

pub(crate) use door::ShareCommand;
pub use door::{NewSharer, Said, ShareItem, SharePlan, ShareTie};
pub(crate) use letters::{Letterbox, Posted};
pub(crate) use share::Shares;
