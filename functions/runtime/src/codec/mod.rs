//! What a task writes down of itself: records of its changelog, and snapshots (compute.md B6).
//!
//! Every piece stands in a frame ([`frame`]) with a version, a fingerprint, a length and a checksum. Deltas and watermarks go into
//! the changelog ([`changelog`]), whole states into objects ([`snapshot`]). Integers are little endian.
//!
//! # Invariants
//! 1. No length is believed before it is held against what is there.
//! 2. A piece that does not hold its checksum, or that leaves bytes over, is refused whole.

pub mod changelog;
pub mod frame;
mod reader;
pub mod snapshot;

pub use reader::{CodecError, Reader};
