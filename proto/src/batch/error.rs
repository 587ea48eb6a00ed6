//! Why bytes are not a batch, or not one that may be taken.

use super::Compression;
use crate::error::Reason;
use crate::limits::{BATCH_DECOMPRESSED_BYTES_MAX, BATCH_RECORDS_MAX, RECORD_BYTES_MAX};

/// What is wrong with a batch. Nothing was taken and nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Shorter than a header, or than the header says.
    #[error("batch is cut off: {found} bytes of {expected}")]
    CutOff {
        /// There.
        found: usize,
        /// Needed.
        expected: usize,
    },
    /// Bytes behind the one batch that should be there.
    #[error("{found} bytes hold a batch of {length} bytes and something behind it; send one batch")]
    Trailing {
        /// There.
        found: usize,
        /// Of the batch.
        length: usize,
    },
    /// A length field that no batch can have.
    #[error("batch length field is {found}; at least {min} is needed")]
    Length {
        /// Stored.
        found: i32,
        /// Of a batch without records.
        min: i32,
    },
    /// An older or unknown format.
    #[error("batch has magic {found}; only 2 (RecordBatch v2) is taken")]
    Magic {
        /// Stored.
        found: i8,
    },
    /// A header field that is negative or contradicts another.
    #[error("batch header field {field} is {found}: {why}")]
    Field {
        /// Its name.
        field: &'static str,
        /// Stored.
        found: i64,
        /// The rule it breaks.
        why: &'static str,
    },
    /// The checksum is wrong.
    #[error("batch checksum is {found:#010x}, its bytes give {computed:#010x}")]
    Crc {
        /// Stored.
        found: u32,
        /// Computed.
        computed: u32,
    },
    /// A produced batch whose offsets are not as many as its records.
    #[error(
        "batch claims {count} records over {span} offsets; a produced batch has as many of both"
    )]
    Span {
        /// Claimed records.
        count: u32,
        /// Last offset delta + 1.
        span: u32,
    },
    /// More records than allowed.
    #[error("batch claims {count} records; at most {BATCH_RECORDS_MAX} are allowed")]
    Count {
        /// Claimed.
        count: u32,
    },
    /// More records than the bytes can hold.
    #[error(
        "batch claims {count} records in {bytes} bytes ({compression}), which cannot hold them"
    )]
    Implausible {
        /// Claimed.
        count: u32,
        /// There, after the header.
        bytes: usize,
        /// How they are packed.
        compression: Compression,
    },
    /// Larger than allowed.
    #[error("batch of {bytes} bytes is larger than {max}; send smaller batches")]
    TooLarge {
        /// Found.
        bytes: usize,
        /// Allowed.
        max: usize,
    },
    /// A producer sent a control batch.
    #[error("batch is a control batch; only brokers write those")]
    Control,
    /// Producer fields that do not fit together.
    #[error("batch of producer {id} has epoch {epoch} and base sequence {base_sequence}: {why}")]
    Producer {
        /// Stored.
        id: i64,
        /// Stored.
        epoch: i16,
        /// Stored.
        base_sequence: i32,
        /// The rule they break.
        why: &'static str,
    },
    /// A codec that does not exist.
    #[error("batch has compression code {0}; 0 to 4 (none, gzip, snappy, lz4, zstd) exist")]
    UnknownCompression(u8),
    /// A codec that this build opens but does not make.
    #[error("{0} batches are not made here; use none, lz4 or zstd")]
    UnsupportedCompression(Compression),
    /// The compressed bytes are damaged.
    #[error("batch does not decompress as {compression}: {why}")]
    Decompress {
        /// The codec.
        compression: Compression,
        /// Its words.
        why: String,
    },
    /// More memory than one batch may take.
    #[error("batch would take more than {max} bytes decoded")]
    DecodedTooLarge {
        /// Allowed.
        max: usize,
    },
    /// A record that cannot be.
    #[error("record {index} of the batch: {what}")]
    Record {
        /// From 0.
        index: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// A single record larger than allowed.
    #[error("record of {bytes} bytes is larger than {RECORD_BYTES_MAX}")]
    RecordTooLarge {
        /// Key, value and headers together.
        bytes: usize,
    },
    /// The batch being built takes no more records; build it and begin another.
    #[error(
        "batch is full: at most {BATCH_RECORDS_MAX} records and {BATCH_DECOMPRESSED_BYTES_MAX} bytes decoded"
    )]
    Full,
}

impl BatchError {
    /// The row of the error table.
    pub fn reason(&self) -> Reason {
        match self {
            Self::TooLarge { .. }
            | Self::DecodedTooLarge { .. }
            | Self::RecordTooLarge { .. }
            | Self::Full => Reason::BatchTooLarge,
            Self::Control | Self::Producer { .. } | Self::UnsupportedCompression(_) => {
                Reason::InvalidRecord
            }
            Self::CutOff { .. }
            | Self::Trailing { .. }
            | Self::Length { .. }
            | Self::Magic { .. }
            | Self::Field { .. }
            | Self::Crc { .. }
            | Self::Span { .. }
            | Self::Count { .. }
            | Self::Implausible { .. }
            | Self::UnknownCompression(_)
            | Self::Decompress { .. }
            | Self::Record { .. } => Reason::BatchCorrupt,
        }
    }
}
