//! One repair: a member of one fragment is given what it lacks, or is replaced by another that was given everything (storage.md X2–X6).
//!
//! Reading order: `event` (what goes in and comes out), `core` (the order of things), `copying` (one range), `changes` (what is written
//! into metadata), `shell` (the calls).

mod changes;
mod copying;
mod core;
mod event;
mod shell;
#[cfg(test)]
mod tests;

pub use core::RepairCore;
pub use event::{RepairEffect, RepairEnd, RepairEvent, RepairFailure, RepairLimits, RepairTask};
pub use shell::{Hands, repair};
