//! Readers and consumers of values.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};

use super::codec::Schema;
use super::typed::TypedMessage;
use crate::consumer::{QueueConsumer, QueueMessage, ReceivedRecord, SubscriptionConsumer};
use crate::error::Error;
use crate::reader::{ReadRecord, Reader};

/// Reads values. It is the reader that it was made from, for everything else.
#[derive(Debug)]
pub struct TypedReader<S> {
    reader: Reader,
    schema: S,
}

impl<S: Schema> TypedReader<S> {
    /// As [`Reader::next`].
    ///
    /// # Errors
    /// Those of [`Reader::next`]. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<TypedMessage<ReadRecord, S>>, Error> {
        let next = self.reader.next().await?;
        Ok(next.map(|record| TypedMessage::new(record, self.schema.clone())))
    }

    /// As [`Reader::into_stream`].
    pub fn into_stream(
        self,
    ) -> impl Stream<Item = Result<TypedMessage<ReadRecord, S>, Error>> + Send {
        let schema = self.schema;
        let stream = self.reader.into_stream();
        stream.map(move |item| item.map(|record| TypedMessage::new(record, schema.clone())))
    }
}

impl<S> Deref for TypedReader<S> {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.reader
    }
}

impl<S> DerefMut for TypedReader<S> {
    fn deref_mut(&mut self) -> &mut Reader {
        &mut self.reader
    }
}

impl Reader {
    /// This reader, of values.
    pub fn typed<S: Schema>(self, schema: S) -> TypedReader<S> {
        TypedReader {
            reader: self,
            schema,
        }
    }
}

/// Consumes values by a subscription. It is the consumer that it was made from, for everything else. Cheap to clone; clones are one
/// consumer.
#[derive(Debug, Clone)]
pub struct TypedConsumer<S> {
    consumer: SubscriptionConsumer,
    schema: S,
}

impl<S: Schema> TypedConsumer<S> {
    /// As [`SubscriptionConsumer::receive`].
    ///
    /// # Errors
    /// Those of [`SubscriptionConsumer::receive`]. Cancel-safe.
    pub async fn receive(&self) -> Result<Option<TypedMessage<ReceivedRecord, S>>, Error> {
        let next = self.consumer.receive().await?;
        Ok(next.map(|record| TypedMessage::new(record, self.schema.clone())))
    }

    /// As [`SubscriptionConsumer::stream`].
    pub fn stream(
        &self,
    ) -> impl Stream<Item = Result<TypedMessage<ReceivedRecord, S>, Error>> + Send + 'static {
        let (schema, stream) = (self.schema.clone(), self.consumer.stream());
        stream.map(move |item| item.map(|record| TypedMessage::new(record, schema.clone())))
    }
}

impl<S> Deref for TypedConsumer<S> {
    type Target = SubscriptionConsumer;

    fn deref(&self) -> &SubscriptionConsumer {
        &self.consumer
    }
}

impl SubscriptionConsumer {
    /// This consumer, of values.
    pub fn typed<S: Schema>(self, schema: S) -> TypedConsumer<S> {
        TypedConsumer {
            consumer: self,
            schema,
        }
    }
}

/// Shares values with other consumers. It is the consumer that it was made from, for everything else. Cheap to clone; clones are one
/// consumer.
#[derive(Debug, Clone)]
pub struct TypedQueueConsumer<S> {
    consumer: QueueConsumer,
    schema: S,
}

impl<S: Schema> TypedQueueConsumer<S> {
    fn typed(&self, message: QueueMessage) -> TypedMessage<QueueMessage, S> {
        TypedMessage::new(message, self.schema.clone())
    }

    /// As [`QueueConsumer::next`].
    ///
    /// # Errors
    /// Those of [`QueueConsumer::next`]. Cancel-safe.
    pub async fn next(&self) -> Result<Option<TypedMessage<QueueMessage, S>>, Error> {
        let next = self.consumer.next().await?;
        Ok(next.map(|message| self.typed(message)))
    }

    /// As [`QueueConsumer::receive`].
    ///
    /// # Errors
    /// Those of [`QueueConsumer::receive`]. Cancel-safe.
    pub async fn receive(
        &self,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<TypedMessage<QueueMessage, S>>, Error> {
        let messages = self.consumer.receive(max, wait).await?.into_iter();
        Ok(messages.map(|message| self.typed(message)).collect())
    }

    /// As [`QueueConsumer::stream`].
    pub fn stream(
        &self,
    ) -> impl Stream<Item = Result<TypedMessage<QueueMessage, S>, Error>> + Send + 'static {
        let (schema, stream) = (self.schema.clone(), self.consumer.stream());
        stream.map(move |item| item.map(|message| TypedMessage::new(message, schema.clone())))
    }

    /// As [`QueueConsumer::handle`], with the value of each record. A payload that is no value is returned like a record that the handler
    /// refuses: it counts, and is a dead letter when it has failed often enough.
    ///
    /// # Errors
    /// Those of [`QueueConsumer::handle`].
    pub async fn handle<F, R, E>(&self, concurrency: usize, handler: F) -> Result<(), Error>
    where
        F: Fn(S::Value, Arc<QueueMessage>) -> R,
        R: Future<Output = Result<(), E>>,
        E: fmt::Display,
    {
        let (schema, handler) = (&self.schema, &handler);
        let typed = |message: Arc<QueueMessage>| async move {
            let value = TypedMessage::new(&*message, schema.clone()).value();
            let value = value.map_err(|poison| poison.to_string())?;
            let handled = handler(value, message).await;
            handled.map_err(|refusal| refusal.to_string())
        };
        self.consumer.handle(concurrency, typed).await
    }
}

impl<S> Deref for TypedQueueConsumer<S> {
    type Target = QueueConsumer;

    fn deref(&self) -> &QueueConsumer {
        &self.consumer
    }
}

impl QueueConsumer {
    /// This consumer, of values.
    pub fn typed<S: Schema>(self, schema: S) -> TypedQueueConsumer<S> {
        TypedQueueConsumer {
            consumer: self,
            schema,
        }
    }
}
