//! Administration of topics and ledgers: typed forms of service Admin.

mod handle;
mod offsets;
mod types;

pub use handle::Admin;
pub use offsets::Offsets;
pub use types::{Ledger, Partition, Topic};
