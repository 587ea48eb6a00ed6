//! The store in memory: for tests and simulation. Deterministic: ordered maps, tokio's time, no task and no thread.
//!
//! Leases that are due are ended by whoever asks next, or by a watch that waits for the moment.

mod store;
#[cfg(test)]
mod tests;

pub use store::MemoryStore;
