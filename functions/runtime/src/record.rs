//! Records as a function sees them, and where its own go.

use bytes::Bytes;
use hulse_proto::time::TimestampMs;

use crate::id::InputPartition;

/// A header of a record. The value may be absent, as in Kafka.
pub type Header = (String, Option<Bytes>);

/// A record that was read with read_committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRecord {
    /// In its partition.
    pub offset: u64,
    /// By its producer.
    pub timestamp: TimestampMs,
    /// By the owner of the partition (ARCHITECTURE D2); what timestamps are held against (compute.md B7, future guard).
    pub append_time: TimestampMs,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value; none is a tombstone.
    pub value: Option<Bytes>,
    /// In their order.
    pub headers: Vec<Header>,
}

impl InputRecord {
    /// What it counts against a limit, bytes.
    pub fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(header_size).sum();
        RECORD_OVERHEAD + length(&self.key) + length(&self.value) + headers
    }
}

/// What one record costs besides its bytes.
const RECORD_OVERHEAD: usize = 64;

fn length(bytes: &Option<Bytes>) -> usize {
    bytes.as_ref().map_or(0, Bytes::len)
}

fn header_size((name, value): &Header) -> usize {
    name.len() + length(value)
}

/// What one fetch brought of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Of this one.
    pub partition: InputPartition,
    /// In the order of their offsets.
    pub records: Vec<InputRecord>,
    /// Where the next fetch goes on: behind the last record, and behind markers and aborted records that follow it.
    pub next: u64,
    /// Last stable offset of the partition at the time of the fetch. `next == end` proves that nothing was left to read: the only
    /// ground for idleness (compute.md B7).
    pub end: u64,
}

/// Where a record of a function goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// Output topic of this number, from 0. The sink chooses the partition by the key.
    Output(u16),
    /// The topic of dead letters (compute.md B10).
    DeadLetter,
    /// The topic of late records (compute.md B7).
    Late,
}

/// A record that a function writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputRecord {
    /// To here.
    pub destination: Destination,
    /// Time of the row.
    pub timestamp: TimestampMs,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value; none is a tombstone.
    pub value: Option<Bytes>,
    /// In their order.
    pub headers: Vec<Header>,
}

impl OutputRecord {
    /// What it counts against a limit, bytes.
    pub fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(header_size).sum();
        RECORD_OVERHEAD + length(&self.key) + length(&self.value) + headers
    }
}
