//! The node as others call it: queues, threads and answers around the core.
//!
//! A call locks the core, is judged and placed in the log's order, and returns; the log thread writes, syncs and answers. Reads
//! look up their places under the lock and read on the read threads. Nothing holds the lock over I/O.

mod bookie_calls;
mod lease;
mod log_thread;
mod node;
mod read_entries;
mod read_pool;
mod shared;
mod verify;

pub use node::{BookieNode, NodeSeams, NodeStatus};
#[cfg(any(test, feature = "testing"))]
pub use read_entries::read_entry;
