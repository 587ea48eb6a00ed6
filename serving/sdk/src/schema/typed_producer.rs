//! A producer of values.

use std::ops::Deref;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hulse_proto::batch::Header;
use hulse_proto::limits::RECORD_BYTES_MAX;

use super::codec::Schema;
use crate::error::Error;
use crate::producer::{Producer, Record, Ticket};

/// A value to be sent, with what a record has beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedRecord<T> {
    value: T,
    /// All but the value.
    rest: Record,
}

impl<T> TypedRecord<T> {
    /// Without a key.
    pub fn new(value: T) -> Self {
        Self {
            value,
            rest: Record::default(),
        }
    }

    /// As [`Record::key`].
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.rest = self.rest.key(key);
        self
    }

    /// As [`Record::header`].
    #[must_use]
    pub fn header(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.rest = self.rest.header(name, value);
        self
    }

    /// As [`Record::headers`].
    #[must_use]
    pub fn headers(mut self, headers: impl IntoIterator<Item = Header>) -> Self {
        self.rest = self.rest.headers(headers);
        self
    }

    /// As [`Record::timestamp`].
    #[must_use]
    pub fn timestamp(mut self, timestamp: i64) -> Self {
        self.rest = self.rest.timestamp(timestamp);
        self
    }

    /// As [`Record::partition`].
    #[must_use]
    pub fn partition(mut self, partition: u32) -> Self {
        self.rest = self.rest.partition(partition);
        self
    }

    /// The value.
    pub fn value(&self) -> &T {
        &self.value
    }

    fn encode<S: Schema<Value = T>>(self, schema: &S) -> Result<Record, Error> {
        let mut bytes = BytesMut::new();
        schema.encode(&self.value, &mut bytes).map_err(|why| {
            let name = schema.descriptor().name;
            Error::invalid(format!("a {name} cannot be encoded: {why}")).with_source(Arc::from(why))
        })?;
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a {} of {} bytes is larger than a record may be, {RECORD_BYTES_MAX}",
                schema.descriptor().name,
                bytes.len()
            )));
        }
        Ok(self.rest.value(bytes.freeze()))
    }
}

impl<T> From<T> for TypedRecord<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// Sends values. It is the producer that it was made from, for everything else. Cheap to clone; clones are one producer.
#[derive(Debug, Clone)]
pub struct TypedProducer<S> {
    producer: Producer,
    schema: S,
}

impl<S: Schema> TypedProducer<S> {
    /// As [`Producer::send`].
    ///
    /// # Errors
    /// Those of [`Producer::send`]; Invalid: the value cannot be encoded. Cancel-safe: dropped while it waits, nothing was queued.
    pub async fn send(&self, record: impl Into<TypedRecord<S::Value>>) -> Result<Ticket, Error> {
        let record = record.into().encode(&self.schema)?;
        self.producer.send(record).await
    }

    /// As [`Producer::try_send`].
    ///
    /// # Errors
    /// Those of [`Producer::try_send`]; Invalid: the value cannot be encoded.
    pub fn try_send(&self, record: impl Into<TypedRecord<S::Value>>) -> Result<Ticket, Error> {
        let record = record.into().encode(&self.schema)?;
        self.producer.try_send(record)
    }
}

impl<S> Deref for TypedProducer<S> {
    type Target = Producer;

    fn deref(&self) -> &Producer {
        &self.producer
    }
}

impl Producer {
    /// This producer, of values.
    pub fn typed<S: Schema>(self, schema: S) -> TypedProducer<S> {
        TypedProducer {
            producer: self,
            schema,
        }
    }
}
