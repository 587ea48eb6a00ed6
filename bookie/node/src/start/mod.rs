//! From a directory to a node that may serve: lock, identity, registration, recovery, limbo.
//!
//! Order matters (storage.md 2.8, 4.3): the log's recovery and any limbo are durable in the log before the boot file names this
//! kernel boot, and that before metadata hears of it; a crash in between repeats the step.

mod boot;
mod error;
mod registration;

pub use boot::{BootFacts, Booted, open_log, recover_log};
pub use error::StartError;
pub use registration::{boot_in_metadata, check_numbers, format, identify, limbo_scope, replace};
