//! Fakes for tests (feature `testing`): a store whose answers go wrong as told.
//!
//! [`FaultyStore`] wraps any store. A test steers it exactly (`plan_txns`, `plan_reads`, `plan_leases`, [`FaultyStore::choose`]),
//! from a seed ([`FaultyStore::seed`]), or as a whole ([`FaultyStore::silence`]).

mod fate;
mod faulty;

pub use fate::{Call, Fate, FaultRates, Late};
pub use faulty::FaultyStore;
