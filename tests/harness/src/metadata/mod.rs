//! The metadata store of a simulation: one truth, watched by an oracle, behind faults, behind the gate of each process.

mod observed;
mod poor_store;
mod process_store;

pub use observed::{ObservedStore, owner_epoch};
pub use poor_store::{PoorStore, Poverty};
pub use process_store::{ProcessStore, Role};
