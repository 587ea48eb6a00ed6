//! A partition under fire: two brokers that take it from each other, producers that resend, readers that follow.

mod plan;

pub use plan::{finish, run, run_with};
