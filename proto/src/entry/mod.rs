//! What a ledger stores: the writer's fixed header, an envelope, and what the envelope describes.
//!
//! The header and the payload (envelope + body) are made once by the owner and never change afterwards, through every copy; their
//! two checksums are the entry's digest (storage.md W3, B7). What a bookie adds of its own stands in the bookie's frame around it.

mod checksum;
mod envelope;
mod header;
#[cfg(test)]
mod tests;

pub use checksum::{Crc32c, crc32c};
pub use envelope::{BatchSummary, EntryKind, Envelope, EnvelopeError};
pub use header::{
    Entry, EntryClass, EntryDigest, EntryError, EntryHeader, HEADER_BYTES, NewEntry, Totals,
};
