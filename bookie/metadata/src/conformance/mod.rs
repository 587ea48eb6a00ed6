//! What every [`crate::MetadataStore`] must do, as sentences (feature `testing`).
//!
//! A case gets a fresh, empty store. Times are tokio's: run it with the clock paused, or wait some seconds.

mod leases;
mod limits;
mod lists;
mod steps;
mod suite;
mod txns;
mod unknown;
mod watches;

pub use suite::{CASES, Case, run};
