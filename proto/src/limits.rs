//! Every cap that two processes must agree on. Bytes unless named otherwise.

/// Largest record batch a broker takes (ARCHITECTURE §5).
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// Largest single record, key, value and headers together.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Largest entry: header, envelope and batches together.
pub const ENTRY_BYTES_MAX: usize = 8 << 20;
/// Most batches one entry may hold (the owner coalesces up to this).
pub const ENTRY_BATCHES_MAX: usize = 1024;
/// Most records one batch may claim.
pub const BATCH_RECORDS_MAX: u32 = 1 << 20;
/// Largest uncompressed size that a decoder will produce from one batch.
pub const BATCH_DECOMPRESSED_BYTES_MAX: usize = 64 << 20;
/// Largest gRPC message: a batch and room for what surrounds it.
pub const MESSAGE_BYTES_MAX: usize = ENTRY_BYTES_MAX + (256 << 10);
/// Longest full topic name, `tenant/namespace/topic`.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;
/// Most partitions one topic may have.
pub const TOPIC_PARTITIONS_MAX: u32 = 10_000;
/// Batches in flight per producer and partition (the duplicate window of Kafka, serving.md C2.4).
pub const BATCHES_IN_FLIGHT_MAX: usize = 5;
/// Version of the session protocols, named in Hello and Welcome (serving.md E1.7).
pub const PROTOCOL_VERSION: u32 = 1;
/// Most bookies that a ledger is asked to have (E): what names them must fit into its metadata, also after many of them were replaced.
pub const ENSEMBLE_MAX: u32 = 16;
