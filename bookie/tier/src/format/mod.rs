//! The bytes of a segment: one object that holds one or several ledgers, each as blocks of entries and an index (storage.md O4, O17).
//!
//! ```text
//! segment   := (block* index)+ directory trailer      one (block* index) for each ledger
//! block     := header entries                         whole entries, as the ledger's writer made them
//! ```
//!
//! A reader that has the ledger's metadata needs none but its index and blocks; directory and trailer say the same without metadata, for
//! the check before a commit and for rebuilding. All numbers are little-endian. Version 1 is frozen: a change of any byte is version 2,
//! which this build refuses.
//!
//! # Invariants
//! 1. Nothing is believed before its checksum, and nothing is allocated before its length was checked.
//! 2. An entry's bytes are those of its ledger, header and payload, never changed (ARCHITECTURE D1).

mod block;
mod directory;
mod error;
mod index;
#[cfg(test)]
mod tests;

pub use block::{BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, Block, BlockHeader, Entries};
pub use directory::{DIRECTORY_LEDGERS_MAX, Directory, DirectoryRow, TRAILER_BYTES, Trailer};
pub use error::FormatError;
pub use index::{BlockRow, Index, IndexHead};

pub(crate) use block::encode_header as encode_block_header;
pub(crate) use error::seal_of;

/// The version that is written, and the only one that is read.
pub(crate) const FORMAT_VERSION: u8 = 1;
