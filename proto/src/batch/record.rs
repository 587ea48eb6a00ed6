//! Records as a client sees them, owned and borrowed.

use bytes::Bytes;

/// One header of a record. Keys may repeat; order is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Header {
    /// Usually UTF-8, which nothing here requires.
    pub key: Bytes,
    /// Absent is not the same as empty.
    pub value: Option<Bytes>,
}

/// One decoded record. Cheap to clone: key, value and headers are slices of the batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its offset minus the batch's base offset.
    pub offset_delta: u32,
    /// ms; the producer's, or the owner's where the batch says log append time.
    pub timestamp: i64,
    /// Absent is not the same as empty.
    pub key: Option<Bytes>,
    /// Absent: a tombstone in compacted topics.
    pub value: Option<Bytes>,
    /// In the order sent.
    pub headers: Vec<Header>,
}

/// One record to be put into a batch, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct RecordRef<'a> {
    /// ms.
    pub timestamp: i64,
    /// Decides partition and order.
    pub key: Option<&'a [u8]>,
    /// The content.
    pub value: Option<&'a [u8]>,
    /// In order.
    pub headers: &'a [Header],
}

impl Record {
    /// The same record, borrowed, for [`super::BatchBuilder::push`].
    pub fn view(&self) -> RecordRef<'_> {
        RecordRef {
            timestamp: self.timestamp,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &self.headers,
        }
    }
}
