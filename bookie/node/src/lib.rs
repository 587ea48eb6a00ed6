//! `bookie-node`: the storage node. Stores entries of ledgers in one append-only log per disk and keeps fences against their
//! writers.
//!
//! Main path of an add: [`BookieNode`] (checksum, lock, judge, copy into the collecting group) → log thread (write, sync) → index →
//! answer.
//!
//! # Reading order
//! 1. `ledger` — what is remembered of a ledger and by which rules it accepts.
//! 2. [`core`] — the node without threads, disk or clock: events in, effects out.
//! 3. [`log`] — format, groups, scan, recovery, writer; `index` — where the entries of a ledger lie in it.
//! 4. [`disk`] — the seam and its two implementations.
//! 5. `start` — lock, identity, registration, limbo.
//! 6. [`reclaim`] — which ledgers are gone, and how the space of dead records comes back.
//! 7. `server` — threads and [`hulse_proto::bookie::BookieCalls`].
//!
//! # Three ways to run it
//! * [`BookieNode`] with [`Threads::Dedicated`]: production.
//! * [`BookieNode`] with [`Threads::Inline`]: each call writes and syncs before it returns; for tests of async shells on a paused
//!   runtime.
//! * `step::StepNode` (feature `testing`): the same core, writer and recovery in one thread without a runtime; the caller decides
//!   when a group is taken, written and synced, and when the disk crashes.
//!
//! # Invariants
//! 1. Nothing is confirmed before it lies in the durable prefix of the log (storage.md B5), or the written one in relaxed modes.
//! 2. A negative answer is a promise (B11): fence durable, nothing under way, no limbo.
//! 3. After the log failed this boot confirms nothing more (B14, E1).
//!
//! Sizes and offsets are bytes. Not here: what a partition or topic is; the client's protocol.

pub mod config;
pub mod core;
pub mod disk;
mod identity;
mod index;
pub mod ledger;
pub mod log;
mod metrics;
pub mod reclaim;
mod server;
mod start;
#[cfg(any(test, feature = "testing"))]
pub mod step;
#[cfg(test)]
mod tests;

pub use config::{DiskReserve, NodeConfig, PanicHook, SyncMode, Threads};
pub use disk::{Disk, DiskError, DiskErrorKind, OsDisk};
pub use identity::{IdentityError, identity_faults};
pub use index::{FileSummary, LedgerShare, Location, Locator, Slot};
pub use metrics::NodeMetrics;
pub use server::{BookieNode, NodeSeams, NodeStatus};
pub use start::{StartError, format, replace};
