//! Blocks that were read from segments: in memory, and behind that on disk (storage.md K5).
//!
//! It is a cache of its own: whoever catches up through it takes nothing from what serves the tail (K7).
//!
//! # Invariants
//! 1. A block is checked against its index at every hit, by our own checksum; one that does not fit counts as a miss and is read anew.
//! 2. A block that many want is read once.
//! 3. A cache that fails, whatever way, costs time and never a read.
//! 4. Memory and disk are bounded; what another version of the format wrote is removed before it is looked at.

mod blocks;
mod folder;
#[cfg(test)]
mod tests;
mod value;

pub use blocks::{BlockCache, CacheConfig, CacheCounts, CacheError, DiskConfig};
