//! The consumer's state machine. Events in, effects out; no I/O, no clock of its own, chance from a seeded generator.
//!
//! [`consumer_core`] is the whole: sessions with their [`credit`], partitions ([`lane`], [`lane_acks`]), and what waits for the application
//! ([`event`]); [`application`] is its other side. [`cover`] checks that each offset is delivered or explained; [`acks`] brings acknowledgements to their receipts
//! ([`fate`]); [`ranges`] is a set of offsets.

mod acks;
mod application;
mod consumer_core;
mod cover;
mod credit;
mod down;
mod event;
mod fate;
mod lane;
mod lane_acks;
mod ranges;
mod session;
#[cfg(test)]
mod tests;
mod verdict;

pub(super) use application::{Handed, Next, Place};
pub(super) use consumer_core::{ConsumerCore, Due, Wanted};
pub(super) use credit::{Amount, Credit};
pub use event::{BlockedReason, ConsumerNote, SkipReason};
pub(super) use event::{SessionId, Unit};
pub use fate::Acknowledgement;
