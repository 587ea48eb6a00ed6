//! What an interceptor is told.

use hulse_proto::batch::Header;
use uuid::Uuid;

use crate::error::Error;
use crate::producer::{Receipt, Record};
use crate::reader::ReadRecord;

/// Key and value of a header that [`Interceptor::on_place`] adds, together.
pub const PLACED_HEADER_BYTES_MAX: usize = 128;

/// Why an interceptor refuses a record. It becomes the source of an [`Error`] of kind Invalid.
pub type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// Sees every record of a client, producer, reader or consumer. Every method has a default that does nothing.
///
/// The methods are called where the record passes and hold it up as long as they run: they must be quick and must not block. What
/// needs to wait belongs into a task of the user's own. They run on several threads at once.
pub trait Interceptor: Send + Sync + 'static {
    /// A record is about to be sent to `topic`: answers it, changed or not. Called by `send` and `try_send`, before the partition is
    /// chosen, so key and partition may be changed. A record that was answered may still not be queued (memory, a dropped `send`).
    ///
    /// # Errors
    /// The record is not sent; `send` answers an error of kind Invalid that has this one as its source.
    fn on_send(&self, topic: &str, record: Record) -> Result<Record, Refusal> {
        let _ = topic;
        Ok(record)
    }

    /// Partition and number of a record are decided: answers a header to be added, at most [`PLACED_HEADER_BYTES_MAX`]; a longer one
    /// refuses the record. Called in the order of the partition, under its lock: calling the producer here would wait for ever.
    fn on_place(&self, placed: &Placed<'_>) -> Option<Header> {
        let _ = placed;
        None
    }

    /// The fate of records of one partition is known: they were sent as one batch and have one fate. Called once per batch.
    fn on_ack(&self, produced: &Produced<'_>) {
        let _ = produced;
    }

    /// A record of `topic` is about to be handed to the application: answers it, changed or not. Not called for
    /// [`crate::Reader::next_batch`], which hands out stored bytes.
    ///
    /// # Errors
    /// The record is not handed out; the caller gets an error of kind Invalid that has this one as its source, and may go on. A
    /// subscription does not count the record as acknowledged.
    fn before_deliver(&self, topic: &str, record: ReadRecord) -> Result<ReadRecord, Refusal> {
        let _ = topic;
        Ok(record)
    }
}

/// Where a record was queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placed<'a> {
    /// Full name.
    pub topic: &'a str,
    /// Index of the partition.
    pub partition: u32,
    /// Drawn anew for each producer; clones are one producer.
    pub producer: Uuid,
    /// How many records this producer queued to this partition before: 0, 1, 2, … without a gap, whoever calls `send`.
    pub number: u64,
}

/// What became of the records of one batch.
#[derive(Debug)]
#[non_exhaustive]
pub struct Produced<'a> {
    /// Full name.
    pub topic: &'a str,
    /// Index of the partition.
    pub partition: u32,
    /// As [`Placed::producer`].
    pub producer: Uuid,
    /// The first record's [`Placed::number`]; the others follow.
    pub number: u64,
    /// How many.
    pub records: u32,
    /// Where the first one was stored (the others follow), or why none was.
    pub outcome: Result<Receipt, &'a Error>,
}
