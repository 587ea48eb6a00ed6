//! A batch on its way through a partition.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hulse_proto::batch::BatchHeader;
use hulse_proto::error::Fault;
use tokio::time::Instant;

use super::room::Room;
use crate::{PartitionHandle, ProduceFuture, Produced};

/// A batch that was read, with the room that it takes.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) batch: Bytes,
    pub(super) at: Instant,
    pub(super) room: Room,
}

/// Which batch of which lane. `opening` tells apart lanes that had the same number one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) lane: u32,
    pub(super) opening: u64,
    pub(super) number: u64,
}

/// Resolves to [`Done`] when the partition answered. Dropping it drops the answer, not the batch.
pub(super) struct Pending {
    ticket: Ticket,
    answer: ProduceFuture,
    bytes: usize,
    records: u64,
    at: Instant,
    room: Option<Room>,
}

/// A partition's answer; its room is free again.
pub(super) struct Done {
    pub(super) ticket: Ticket,
    pub(super) outcome: Result<Produced, Fault>,
    pub(super) bytes: usize,
    pub(super) records: u64,
    pub(super) took: Duration,
}

impl Pending {
    /// Hands a batch to the partition, now: the order of these calls is the order of the log.
    ///
    /// # Errors
    /// The batch was refused on the spot: nothing behind it may be handed over before the client resumed.
    pub(super) fn produce(
        handle: &PartitionHandle,
        ticket: Ticket,
        received: Received,
    ) -> Result<Self, Fault> {
        let Received { batch, at, room } = received;
        let records = BatchHeader::view(&batch).map_or(0, |header| u64::from(header.count));
        let bytes = batch.len();
        let mut answer = handle.produce_in(Some(room.in_broker()), batch);
        if let Some(fault) = answer.refused() {
            return Err(fault);
        }
        Ok(Self {
            ticket,
            answer,
            bytes,
            records,
            at,
            room: Some(room),
        })
    }
}

impl Future for Pending {
    type Output = Done;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Done> {
        let outcome = ready!(Pin::new(&mut self.answer).poll(cx));
        self.room = None;
        Poll::Ready(Done {
            ticket: self.ticket,
            outcome,
            bytes: self.bytes,
            records: self.records,
            took: self.at.elapsed(),
        })
    }
}
