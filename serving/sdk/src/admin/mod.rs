//! Administration of topics and ledgers: typed forms of service Admin.

mod handle;
mod types;

pub use handle::Admin;
pub use types::{Ledger, Partition, Topic};
