//! The single-write log: write-ahead log and store at once (ARCHITECTURE D5).
//!
//! [`mod@format`], [`record`] and [`group`] are pure functions over bytes; [`scan`] reads one file's groups; [`recovery`] reads all
//! files at start and tells torn from damaged (storage.md 4.3); [`writer`] appends.
//!
//! # Invariants
//! 1. A block that was synced is never written again; each group begins on a new block.
//! 2. A recovered tail is never appended to: its end is made durable in a new file first.
//! 3. A group says what was durable before it, so a later valid group proves that a hole is damage and not a torn tail.

pub mod driver;
pub mod files;
pub mod format;
pub mod group;
pub mod record;
pub mod recovery;
pub mod scan;
pub mod writer;

pub use format::{BLOCK_BYTES, DiskIdentity, LogPosition, file_name};
pub use record::{DamagedRange, LimboKind, Record};
