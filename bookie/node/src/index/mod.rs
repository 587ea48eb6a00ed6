//! Where each entry lies: per ledger, runs of consecutive entries. All in memory; rebuilt by the scan at start.

mod runs;

pub use runs::{Location, Runs, Slot};
