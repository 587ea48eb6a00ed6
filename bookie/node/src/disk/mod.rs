//! The disk seam: what the log asks of a directory of files (style.md §4.3).
//!
//! Names are flat. All calls block; they are made by the log thread, the read threads and the start, never by an async task
//! (in [`crate::Threads::Inline`] mode by whoever calls). Every implementation passes the suite in `conformance`.
//!
//! # Contract
//! 1. Bytes written and not yet covered by a [`DiskFile::sync`] may survive a crash in any subset.
//! 2. A create, rename or remove is durable only after [`Disk::sync_dir`].
//! 3. After a failed sync nothing is known of the bytes it should have covered; syncing again proves nothing.
//! 4. Bytes that were preallocated and never written read as zero.

#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod error;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod os;
mod seam;

pub use error::{DiskError, DiskErrorKind};
#[cfg(any(test, feature = "testing"))]
pub use memory::{Calls, DiskCounts, Fault, MemoryDisk, Survival};
pub use os::OsDisk;
pub use seam::{Disk, DiskFile, DiskLock, Space};
