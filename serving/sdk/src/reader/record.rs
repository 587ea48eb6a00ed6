//! What a reader yields.

use bytes::Bytes;
use hulse_proto::batch::{self, BatchHeader, Header};
use hulse_proto::id::Offset;

use crate::error::Error;

/// A record and where it stands. Cheap to clone: key, value and headers are slices of its batch, which they keep in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadRecord {
    /// Index of the partition.
    pub partition: u32,
    /// Its number in the partition.
    pub offset: Offset,
    /// The producer's, ms since 1970; the broker's where the topic says so.
    pub timestamp: i64,
    /// When the broker appended it, ms since 1970.
    pub append_time: i64,
    /// Absent is not the same as empty.
    pub key: Option<Bytes>,
    /// Absent: a tombstone.
    pub value: Option<Bytes>,
    /// In the order sent; names may repeat.
    pub headers: Vec<Header>,
}

/// A batch as it is stored: one Kafka RecordBatch v2.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordBatch {
    /// Index of the partition.
    pub partition: u32,
    /// What the batch says of itself.
    pub header: BatchHeader,
    /// The whole batch.
    pub bytes: Bytes,
    /// When the broker appended it, ms since 1970.
    pub append_time: i64,
}

impl RecordBatch {
    /// Checks and decodes the records, in order. Those of a control batch are the broker's own.
    ///
    /// # Errors
    /// Corrupt: the batch is damaged.
    pub fn records(&self) -> Result<Vec<ReadRecord>, Error> {
        let records = batch::decode(&self.bytes)?;
        let records = records.into_iter().map(|record| ReadRecord {
            partition: self.partition,
            offset: Offset(self.header.base_offset.0 + u64::from(record.offset_delta)),
            timestamp: record.timestamp,
            append_time: self.append_time,
            key: record.key,
            value: record.value,
            headers: record.headers,
        });
        Ok(records.collect())
    }
}
