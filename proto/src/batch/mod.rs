//! Kafka RecordBatch v2: the one encoding of records on every wire and every disk (ARCHITECTURE D1).
//!
//! Servers touch the 61-byte header only: [`BatchHeader::view`] (no checksum), [`verify_produced`] (serving.md C2, check 2, once, at
//! ingress), [`place`] (base offset and leader epoch, which lie before the checksummed bytes), [`split`]. Clients build
//! ([`BatchBuilder`], [`stamp`]) and read ([`decode`], [`find_record`]) records.
//!
//! Reading order: `header`, `verify`, `place`, `record`, `varint`, `builder`, `decode`, `compression`, `snappy`.
//!
//! # Invariants
//! 1. Every length and count is checked against the bytes that are there before anything is allocated.
//! 2. What one batch may take in memory is bounded by `limits::BATCH_DECOMPRESSED_BYTES_MAX`, decompressed bytes and decoded
//!    records together; [`BatchBuilder`] refuses to build a batch that [`decode`] would refuse.
//! 3. Big-endian, as Kafka has it. All codecs of Kafka are opened; gzip and snappy batches are made for measurements only.

mod builder;
mod compression;
mod decode;
mod error;
mod header;
mod place;
mod record;
mod snappy;
#[cfg(test)]
mod tests;
mod varint;
mod verify;

pub use builder::{BatchBuilder, ProducerStamp};
pub use compression::Compression;
pub use decode::{decode, find_record};
pub use error::BatchError;
pub use header::{BATCH_HEADER_BYTES, BatchHeader};
pub use place::{Split, empty_batch, place, split, stamp, stamp_append_time};
pub use record::{Header, Record, RecordRef};
pub use verify::{verify_crc, verify_produced};
