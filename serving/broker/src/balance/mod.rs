//! Partitions are spread over brokers by what they have to do (ARCHITECTURE D9, serving.md B11.5), by one elected balancer.
//!
//! Each broker counts the bytes of its partitions (`rate`) and tells them when it is asked (`state`, `asking`). The balancer (`run`) looks
//! three times in a period; when brokers were uneven in all three (`judge`), the moves that help (`plan`, over `model`) are made by planned
//! hand-over, a few at once; where nothing was moved for two cool-downs, when they were in all looks of six periods. `words` says why,
//! `metrics` counts.

mod asking;
mod judge;
mod metrics;
mod model;
mod plan;
mod rate;
mod run;
mod state;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use metrics::{BalanceMetrics, MoveReason};
pub use model::BalanceLimits;
pub(crate) use state::Balance;
