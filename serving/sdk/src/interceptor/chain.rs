//! Calls interceptors in order.

use std::fmt;
use std::sync::Arc;

use hulse_proto::batch::Header;
use uuid::Uuid;

use super::hooks::{Interceptor, PLACED_HEADER_BYTES_MAX, Placed, Produced, Refusal};
use crate::error::Error;
use crate::producer::Record;
use crate::reader::ReadRecord;

/// What the lengths of a header take beside it.
const LENGTHS_BYTES: usize = 2;

/// Interceptors in the order in which they were given. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Chain(Arc<[Arc<dyn Interceptor>]>);

impl Chain {
    /// These, then `more`.
    pub(crate) fn and(&self, more: &[Arc<dyn Interceptor>]) -> Self {
        Self(self.0.iter().chain(more).cloned().collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Most that [`Placing::headers`] adds to a record.
    pub(crate) fn placed_bytes_max(&self) -> usize {
        self.0.len() * (PLACED_HEADER_BYTES_MAX + LENGTHS_BYTES)
    }

    pub(crate) fn on_send(&self, topic: &str, mut record: Record) -> Result<Record, Error> {
        for interceptor in self.0.iter() {
            record = interceptor.on_send(topic, record).map_err(refused)?;
        }
        Ok(record)
    }

    pub(crate) fn on_ack(&self, produced: &Produced<'_>) {
        for interceptor in self.0.iter().rev() {
            interceptor.on_ack(produced);
        }
    }

    pub(crate) fn before_deliver(
        &self,
        topic: &str,
        mut record: ReadRecord,
    ) -> Result<ReadRecord, Error> {
        for interceptor in self.0.iter().rev() {
            record = interceptor.before_deliver(topic, record).map_err(refused)?;
        }
        Ok(record)
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain({})", self.0.len())
    }
}

fn refused(refusal: Refusal) -> Error {
    Error::invalid(format!("an interceptor refused the record: {refusal}"))
        .with_source(Arc::from(refusal))
}

/// What the partitions of one producer say when a record is placed.
pub(crate) struct Placing {
    pub(crate) chain: Chain,
    /// Full name.
    pub(crate) topic: String,
    pub(crate) producer: Uuid,
}

impl Placing {
    /// The record's headers and those that are added.
    ///
    /// # Errors
    /// An interceptor adds more than it may.
    pub(crate) fn headers(
        &self,
        partition: u32,
        number: u64,
        own: &[Header],
    ) -> Result<Vec<Header>, Error> {
        let placed = Placed {
            topic: &self.topic,
            partition,
            producer: self.producer,
            number,
        };
        let mut headers = Vec::with_capacity(own.len() + self.chain.0.len());
        headers.extend_from_slice(own);
        for header in self.chain.0.iter().filter_map(|one| one.on_place(&placed)) {
            let bytes = header.key.len() + header.value.as_ref().map_or(0, |value| value.len());
            if bytes > PLACED_HEADER_BYTES_MAX {
                return Err(Error::invalid(format!(
                    "an interceptor adds a header of {bytes} bytes; at most {PLACED_HEADER_BYTES_MAX} are allowed"
                )));
            }
            headers.push(header);
        }
        Ok(headers)
    }
}
