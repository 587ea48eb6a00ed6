//! Buckets: where segments are put and read. The only door to object storage in this crate.
//!
//! # Invariants
//! 1. Correctness rests on names that are never used again and on metadata, not on conditional requests (storage.md O15).
//! 2. Memory is bounded: an upload holds a few parts, and all reads together hold what their permits allow (K1).
//!
//! Reading order: `bucket`, `upload`, `verify`, `fetch`.

mod bucket;
mod fetch;
#[cfg(test)]
mod tests;
mod upload;
mod verify;

pub use bucket::{Bucket, BucketConfig, Buckets, OpenError};
pub use fetch::Fetcher;
pub use upload::{EntrySource, UploadLimits, upload};
pub use verify::{ReadBack, read_back, verify};
pub(crate) use verify::{checked_block, read_index};
