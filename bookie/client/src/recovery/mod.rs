//! Recovery of a ledger (storage.md R1–R14): fence, find the end, write back, close for ever.
//!
//! [`RecoveryCore`] is one attempt as a state machine without I/O: `core` (life and metadata), `fencing` (R3–R5), `reading`
//! (R6, R7, R13), `accepting` (R14), `write_back` (R8), `closing` (R10). `attempt` is its shell, which starts anew when another recoverer
//! was faster.
//!
//! A member that fails during write-back is retried, and replaced when that does not help: `local_change` (R9).

mod accepting;
mod asked;
mod attempt;
mod closing;
mod core;
mod event;
mod fencing;
mod local_change;
mod reading;
#[cfg(test)]
mod tests;
mod write_back;

pub use core::RecoveryCore;
pub use event::{BookieAsk, Policy, RecoveryConfig, RecoveryEffect, RecoveryEvent};

pub(crate) use attempt::recover;
