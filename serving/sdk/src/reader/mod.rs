//! The reader: records out, without a subscription and without state on the server.
//!
//! One task per partition ([`fetch`]) keeps a stream open, reopens it where it stood, and checks that each offset is delivered or
//! explained ([`cursor`]); the [`handle`] merges them.
//!
//! # Invariants
//! 1. Records of a partition come in order of offsets, none twice, none left out without [`crate::Error::gap`].
//! 2. Bytes that were fetched and not taken yet are bounded by `max_bytes_in_flight` and one message per partition.
//! 3. A partition that has much to say does not silence another: whoever waits for room is served first come, first served.

mod builder;
mod cursor;
mod fetch;
mod handle;
mod record;

pub(crate) use builder::ReaderConfig;
pub use builder::{ReaderBuilder, Start};
pub(crate) use cursor::Chunk;
pub(crate) use fetch::{Channels, Fetch, Fetched, Source};
pub use handle::{Reader, ReaderStats};
pub use record::{ReadRecord, RecordBatch};
