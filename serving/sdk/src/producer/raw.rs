//! A hook for tests of the protocol: sends given bytes as a batch. Not public API.
#![doc(hidden)]

use bytes::Bytes;

use super::handle::Producer;
use super::ticket::Ticket;
use crate::error::Error;

/// Sends `batch` to `partition` as it is: its stamp, and whatever is wrong with it, stay. `records` only counts for statistics and
/// for the sequence that the producer would use next; the ticket is that of the first record.
///
/// # Errors
/// The partition does not exist or is closed; what the broker says comes by the ticket.
pub fn send(
    producer: &Producer,
    partition: u32,
    batch: Bytes,
    records: u32,
) -> Result<Ticket, Error> {
    producer
        .inner()
        .queue(partition)?
        .append_raw(batch, records)
}
