//! A record to be sent.

use bytes::Bytes;
use hulse_proto::batch::Header;

/// What one record takes in memory beside its bytes, for the budget.
const OVERHEAD_BYTES: usize = 32;

/// A record to be sent. Made from its value; the rest is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
    pub(super) headers: Vec<Header>,
    pub(super) timestamp: Option<i64>,
    pub(super) partition: Option<u32>,
}

impl Record {
    /// A record without a key.
    pub fn new(value: impl Into<Bytes>) -> Self {
        Self {
            value: Some(value.into()),
            ..Self::default()
        }
    }

    /// A record without a value: it deletes its key in compacted topics.
    pub fn tombstone(key: impl Into<Bytes>) -> Self {
        Self {
            key: Some(key.into()),
            ..Self::default()
        }
    }

    /// The value, in place of the one that it has.
    #[must_use]
    pub fn value(mut self, value: impl Into<Bytes>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// The key: records of one key go to one partition, in order.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a header. Names may repeat; order is kept.
    #[must_use]
    pub fn header(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.headers.push(Header {
            key: name.into(),
            value: Some(value.into()),
        });
        self
    }

    /// Adds headers as they are, absent values included.
    #[must_use]
    pub fn headers(mut self, headers: impl IntoIterator<Item = Header>) -> Self {
        self.headers.extend(headers);
        self
    }

    /// When it happened, ms since 1970. Default: the client's clock when it is queued.
    #[must_use]
    pub fn timestamp(mut self, timestamp: i64) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// The partition, past any partitioner.
    #[must_use]
    pub fn partition(mut self, partition: u32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// The key that was set.
    pub fn key_bytes(&self) -> Option<&Bytes> {
        self.key.as_ref()
    }

    /// The value that was set.
    pub fn value_bytes(&self) -> Option<&Bytes> {
        self.value.as_ref()
    }

    /// The headers that were added, in order.
    pub fn header_slice(&self) -> &[Header] {
        &self.headers
    }

    /// What it takes of the memory budget.
    pub(super) fn cost(&self) -> usize {
        let blob = |blob: &Option<Bytes>| blob.as_ref().map_or(0, Bytes::len);
        let headers = self.headers.iter();
        let headers = headers.map(|header| header.key.len() + blob(&header.value) + 2);
        OVERHEAD_BYTES + blob(&self.key) + blob(&self.value) + headers.sum::<usize>()
    }
}
