//! A record that was handed out, with a value to be decoded.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use hulse_proto::error::ErrorKind;

use super::codec::Schema;
use crate::consumer::{QueueMessage, ReceivedRecord};
use crate::error::Error;
use crate::reader::ReadRecord;

mod sealed {
    /// Records of this crate alone.
    pub trait Sealed {}
    impl Sealed for crate::reader::ReadRecord {}
    impl Sealed for crate::consumer::ReceivedRecord {}
    impl Sealed for crate::consumer::QueueMessage {}
    impl<T: Sealed> Sealed for &T {}
}

/// A record as a handle hands it out.
pub trait Payload: sealed::Sealed {
    /// Its bytes and its place.
    fn read_record(&self) -> &ReadRecord;
}

impl Payload for ReadRecord {
    fn read_record(&self) -> &ReadRecord {
        self
    }
}

impl Payload for ReceivedRecord {
    fn read_record(&self) -> &ReadRecord {
        self
    }
}

impl Payload for QueueMessage {
    fn read_record(&self) -> &ReadRecord {
        self
    }
}

impl<T: Payload> Payload for &T {
    fn read_record(&self) -> &ReadRecord {
        (*self).read_record()
    }
}

/// A record and how its value is read. It reads as the record itself: key, headers, offset, and what its handle takes to acknowledge it.
pub struct TypedMessage<M, S> {
    message: M,
    schema: S,
}

impl<M: Payload, S: Schema> TypedMessage<M, S> {
    pub(super) fn new(message: M, schema: S) -> Self {
        Self { message, schema }
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// Corrupt: these bytes are none, with the schema's word as source; Invalid: the record has no value (a tombstone). Nothing else is
    /// touched: return the record, reject it or acknowledge it.
    pub fn value(&self) -> Result<S::Value, Error> {
        let value = self.optional_value()?;
        value.ok_or_else(|| {
            let record = self.message.read_record();
            Error::invalid(format!(
                "the record at offset {} of partition {} has no value: it is a tombstone",
                record.offset, record.partition
            ))
        })
    }

    /// As [`TypedMessage::value`]; `None`: a tombstone.
    ///
    /// # Errors
    /// Corrupt: these bytes are no value.
    pub fn optional_value(&self) -> Result<Option<S::Value>, Error> {
        let record = self.message.read_record();
        let Some(bytes) = &record.value else {
            return Ok(None);
        };
        let decoded = self.schema.decode(bytes).map_err(|why| {
            let name = self.schema.descriptor().name;
            let words = format!(
                "the record at offset {} of partition {} is no {name}: {why}",
                record.offset, record.partition
            );
            Error::local(ErrorKind::Corrupt, words).with_source(Arc::from(why))
        });
        decoded.map(Some)
    }

    /// The bytes.
    pub fn bytes(&self) -> Option<&Bytes> {
        self.message.read_record().value.as_ref()
    }

    /// The record without a schema.
    pub fn into_inner(self) -> M {
        self.message
    }
}

impl<M, S> Deref for TypedMessage<M, S> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.message
    }
}

impl<M: fmt::Debug, S> fmt::Debug for TypedMessage<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedMessage").field(&self.message).finish()
    }
}
