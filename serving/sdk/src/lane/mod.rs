//! A lane: what one producer has under way to one partition.
//!
//! [`core`] is the state machine (window, answers, refusals, resumption, epochs, time-outs) without I/O, [`event`] its words;
//! [`task`] is its shell; [`link`] finds the owner and opens the lane there; [`batch`] is what travels; [`barriers`] are the flushes
//! of an acks-none lane.
//!
//! # Invariants
//! 1. Batches are stored in the order in which they were sealed.
//! 2. A batch that may have reached the wire keeps its bytes, and with them its sequence, until its fate is known.
//! 3. Only batches that were certainly never stored are stamped anew.
//! 4. Every batch is settled exactly once.

mod barriers;
mod batch;
mod core;
mod event;
mod link;
mod task;
#[cfg(test)]
mod tests;

pub(crate) use event::{Cause, Failure, Room, Stored};
pub(crate) use task::LaneTask;
