//! The two calls of service Log, and the task behind a read.
//!
//! A read is one task that reads ahead of its connection: bytes that were read and not yet handed to HTTP/2 are bounded by
//! permits, of the read and of the broker, and each message stays small, so a slow client costs what it asked for and no more.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::{FutureExt, Stream, StreamExt};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::Offset;
use hulse_proto::wire::v1;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::message;
use super::room::Room;
use crate::PartitionHandle;
use crate::authorise::{Action, Resource};
use crate::listener::front::{Front, shutting_down};
use crate::listener::wire::{invalid, partition};
use crate::metrics::Metrics;

/// Read and not yet taken by the connection: when the client names no number, and at most.
const IN_FLIGHT_BYTES: (u32, u32) = (4 << 20, 32 << 20);
/// Bytes asked of the log at a time.
const CHUNK_BYTES: u32 = 1 << 20;
/// The same while the broker has no room: nothing else of the read is in memory then.
const LEAN_CHUNK_BYTES: u32 = 64 << 10;
/// Messages that wait for the connection.
const MESSAGES_MAX: usize = 64;
/// Ended partitions are noticed at least this often by a read that waits for more.
const ENDED_CHECK: std::time::Duration = std::time::Duration::from_secs(1);

/// Service Log.
pub(crate) struct LogService(pub(crate) Arc<Front>);

type Responses = std::pin::Pin<Box<dyn Stream<Item = Result<v1::ReadResponse, Status>> + Send>>;

/// An item and the room it takes until the connection has it.
type Sent = (Result<v1::ReadResponse, Status>, Option<Room>);

#[tonic::async_trait]
impl v1::log_server::Log for LogService {
    type ReadStream = Responses;

    async fn read(&self, request: Request<v1::ReadRequest>) -> Result<Response<Responses>, Status> {
        let front = &self.0;
        let request = request.into_inner();
        let begun = front
            .answer("Log.Read", begin(front, &request))
            .await?
            .into_inner();
        let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
        let metrics = front.metrics.clone();
        front.tasks.spawn(async move {
            let outcome = AssertUnwindSafe(begun.run(&sender)).catch_unwind().await;
            let fault = match outcome {
                Ok(Ok(())) => return,
                Ok(Err(fault)) => fault,
                Err(_) => {
                    metrics.panicked();
                    Fault::new(Reason::Internal, "this read met a bug; begin another one")
                }
            };
            metrics.fault(fault.reason);
            // An error means that the client is gone.
            let _ = sender.send((Err(fault.to_status()), None)).await;
        });
        let responses = ReceiverStream::new(receiver).map(|(item, _room)| item);
        Ok(Response::new(Box::pin(responses)))
    }

    async fn offsets(
        &self,
        request: Request<v1::OffsetsRequest>,
    ) -> Result<Response<v1::OffsetsResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let id = partition(request.partition.as_ref())?;
            self.0.allow(Action::Consume, Resource::TopicId(id.topic))?;
            let open = match self.0.open(id).await {
                Err(fault) if fault.reason == Reason::DataDamaged && request.start_only => {
                    let start = self.0.partitions.log_start(id).await?.0;
                    return Ok(v1::OffsetsResponse {
                        log_start: start,
                        high_watermark: start,
                        ..Default::default()
                    });
                }
                open => open?,
            };
            // A topic that was not heard of before is known now.
            self.0.allow(Action::Consume, Resource::TopicId(id.topic))?;
            let found = match request.at_time {
                Some(time) => open.offset_at_time(time).await?,
                None => None,
            };
            // After the look: that there is nothing so late is said of where the log ends.
            let offsets = open.told_offsets().await?;
            Ok(v1::OffsetsResponse {
                log_start: offsets.log_start.0,
                high_watermark: offsets.high_watermark.0,
                leader_epoch: open.leader_epoch().0,
                offset_at_time: found.map(|(offset, _)| offset.0),
                timestamp_at_time: found.map(|(_, time)| time),
            })
        };
        self.0.answer("Log.Offsets", Box::pin(work)).await
    }
}

/// One read under way.
struct Read {
    front: Arc<Front>,
    open: PartitionHandle,
    next: Offset,
    follow: bool,
    room: Arc<Semaphore>,
    in_flight: u32,
    chunk_bytes: u32,
}

async fn begin(front: &Arc<Front>, request: &v1::ReadRequest) -> Result<Read, Fault> {
    let id = partition(request.partition.as_ref())?;
    front.allow(Action::Consume, Resource::TopicId(id.topic))?;
    let in_flight = match request.max_bytes_in_flight {
        0 => IN_FLIGHT_BYTES.0,
        bytes if bytes <= IN_FLIGHT_BYTES.1 => bytes,
        bytes => {
            let max = IN_FLIGHT_BYTES.1;
            return Err(invalid(format!(
                "max_bytes_in_flight is {bytes}, at most {max} are given"
            )));
        }
    };
    let open = front.open_to_read(id).await?;
    // A topic that was not heard of before is known now.
    front.allow(Action::Consume, Resource::TopicId(id.topic))?;
    let next = Offset(request.start);
    open.check_offset(next).await?;
    Ok(Read {
        front: front.clone(),
        open,
        next,
        follow: request.follow,
        room: Arc::new(Semaphore::new(in_flight as usize)),
        in_flight,
        chunk_bytes: CHUNK_BYTES.min(in_flight),
    })
}

impl Read {
    /// Reads until the end (or for ever when following), the partition's end, or the client's.
    async fn run(mut self, sender: &mpsc::Sender<Sent>) -> Result<(), Fault> {
        let front = self.front.clone();
        let reading = async {
            loop {
                if self.next < self.open.offsets().high_watermark {
                    if !self.send_chunk(sender).await? {
                        return Ok(());
                    }
                    continue;
                }
                if let Some(doubt) = self.open.beyond() {
                    return Err(doubt);
                }
                if self.next < self.open.told_offsets().await?.high_watermark {
                    continue;
                }
                let item = v1::EndOfLog {
                    offset: self.next.0,
                };
                let item = v1::read_response::Item::EndOfLog(item);
                let response = v1::ReadResponse { item: Some(item) };
                if sender.send((Ok(response), None)).await.is_err() || !self.follow {
                    return Ok(());
                }
                self.wait_for_more().await?;
            }
        };
        tokio::select! {
            biased;
            () = sender.closed() => Ok(()),
            () = front.drain.cancelled() => Err(shutting_down()),
            result = reading => result,
        }
    }

    /// Sends one chunk as one or more messages; false: the client is gone.
    async fn send_chunk(&mut self, sender: &mpsc::Sender<Sent>) -> Result<bool, Fault> {
        let (mut room, bytes) = self.room().await;
        let chunk = self.open.read(self.next, bytes as usize).await?;
        if chunk.end <= self.next {
            let words = format!("a read at offset {} did not get on", self.next);
            return Err(Fault::new(Reason::Internal, words));
        }
        self.next = chunk.end;
        let messages = message::split(chunk, self.open.leader_epoch());
        let total = messages.len();
        for (index, message) in messages.into_iter().enumerate() {
            count(&self.front.metrics, &message);
            let bytes = message.batches.iter().map(bytes::Bytes::len).sum();
            let part = room.part(bytes, index + 1 == total);
            let item = Some(v1::read_response::Item::Batches(message));
            if sender
                .send((Ok(v1::ReadResponse { item }), Some(part)))
                .await
                .is_err()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Room for the next chunk and its bytes. When the broker has none to give, this read waits until its connection took all that
    /// it has read: readers that do not listen then cost a small chunk each, and those that do go on.
    async fn room(&self) -> (Room, u32) {
        let bytes = self.chunk_bytes;
        let own = take(&self.room, bytes).await;
        if let Ok(shared) = self.front.read_ahead.clone().try_acquire_many_owned(bytes) {
            return (Room::new(own, Some(shared)), bytes);
        }
        drop(own);
        drop(take(&self.room, self.in_flight).await);
        let own = take(&self.room, bytes).await;
        match self.front.read_ahead.clone().try_acquire_many_owned(bytes) {
            Ok(shared) => (Room::new(own, Some(shared)), bytes),
            Err(_) => (Room::new(own, None), bytes.min(LEAN_CHUNK_BYTES)),
        }
    }

    async fn wait_for_more(&self) -> Result<(), Fault> {
        let mut changes = self.open.watch();
        let lost = self.open.lost();
        tokio::pin!(lost);
        loop {
            if let Some(fault) = self.open.ended() {
                return Err(fault);
            }
            if changes.borrow_and_update().high_watermark > self.next {
                return Ok(());
            }
            let changed = tokio::select! {
                biased;
                changed = tokio::time::timeout(ENDED_CHECK, changes.changed()) => changed,
                fault = &mut lost => return Err(fault),
            };
            if matches!(changed, Ok(Err(_))) && self.open.ended().is_none() {
                let words = "partition stopped here without a word; look it up again";
                return Err(Fault::new(Reason::PartitionMoved, words));
            }
        }
    }
}

async fn take(room: &Arc<Semaphore>, bytes: u32) -> OwnedSemaphorePermit {
    let taken = room.clone().acquire_many_owned(bytes).await;
    taken.expect("this semaphore is never closed")
}

fn count(metrics: &Metrics, message: &v1::ReadBatches) {
    let bytes: usize = message.batches.iter().map(bytes::Bytes::len).sum();
    let records: u64 = message
        .batches
        .iter()
        .map(|batch| message::records(batch))
        .sum();
    metrics.sent(message.batches.len() as u64, records, bytes as u64);
}
