//! The elected planner: audits, repairs what is lacking, moves away what is to leave, and says how far it is.
//!
//! `election` finds the one; `plan` decides what is tried and when again, without I/O; `work` does it; `report` writes it down.

mod election;
mod plan;
mod report;
#[cfg(test)]
mod tests;
mod work;

pub use work::{Upkeep, UpkeepConfig, UpkeepSeams};
