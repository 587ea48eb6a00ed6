//! `bookie-tier`: sealed ledgers as segments in object storage, and the cache of their blocks.
//!
//! Way out: [`protocol::AttemptCore`] → [`store::upload`] ([`segment::SegmentWriter`] makes the bytes) → [`store::verify`] → commit in
//! metadata → [`protocol::DropCore`] → [`store::read_back`] → bookies drop their copies. Way back: [`TierReads::reader`] →
//! [`TieredReader::read`] → [`cache::BlockCache`] → [`store::Fetcher`].
//!
//! # Invariants
//! 1. No object without an owner and no ledger without its entries, wherever a process stops: see [`protocol`].
//! 2. Bytes that came from a store or a disk are untrusted: lengths are checked before allocation, checksums before belief.
//! 3. What is held is bounded: parts of an upload, ranges on their way, blocks and indexes in caches. A ledger that nobody reads costs
//!    nothing.
//!
//! Offsets in objects and lengths are bytes. Not here: metadata and bookies, which are the caller's ([`ObjectHands`] does the rest); what
//! is tiered when; when a log is trimmed.
//!
//! Reading order: [`mod@format`], [`segment`], [`name`], [`protocol`], [`store`], [`cache`], [`TieredReader`].

pub mod cache;
pub mod format;
mod hands;
pub mod name;
pub mod protocol;
mod reader;
pub mod segment;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use hands::ObjectHands;
pub use reader::{READ_AHEAD_DEFAULT, TierReadError, TierReads, TieredReader};
