//! The node as others call it: queues, threads and answers around the core.
//!
//! A call locks the core, is judged and placed in the log's order, and returns; the log thread writes, syncs and answers; a thread of
//! its own makes, seals and names whole log files. Reads
//! look up their places under the lock and read on the read threads; a thread behind all others frees space and checks what is stored.
//! Nothing holds the lock over I/O.

mod bookie_calls;
mod collector;
mod file_thread;
mod freeing;
mod lease;
mod log_thread;
mod node;
mod read_entries;
mod read_pool;
mod reclaimer;
mod shared;
mod verify;
mod withdrawing;

pub use node::{BookieNode, NodeSeams, NodeStatus};
pub use read_entries::read_records;
#[cfg(any(test, feature = "testing"))]
pub use read_entries::{digest_of, digest_of_run, heads, read_entry, read_heads, read_run};
#[cfg(any(test, feature = "testing"))]
pub use read_pool::{same_bytes, slots_of};
