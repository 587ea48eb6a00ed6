//! The door to an open partition. Cheap to clone; outlives the partition and then says why it ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};

use bookie_client::mailbox::{Inbox, Sender, mailbox};
use bytes::Bytes;
use hulse_proto::batch::{self, BatchHeader};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId, ProducerId};
use hulse_proto::time::TimestampMs;
use tokio::sync::{oneshot, watch};

use super::cursors::CursorCommand;
use super::replicating::Replication;
use super::retaining::RetainCommand;
use super::shown::Shown;
use super::task::{self, Task};
use super::trimming::TrimCommand;
use crate::IngressPermit;
use crate::backlogs::Refusal;
use crate::log::{LogReader, ReadChunk, TimeTurns};

/// Bytes of batches that may wait in one partition before more are refused with OVERLOADED.
const QUEUED_BYTES_MAX: usize = 128 << 20;

/// Where the log begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogOffsets {
    /// Offset of the oldest record kept.
    pub log_start: Offset,
    /// 1 + the last offset that is durable with everything before it.
    pub high_watermark: Offset,
    /// Payload bytes of the log, without what replication adds.
    pub stored_bytes: u64,
}

impl LogOffsets {
    /// Refuses an offset at which no read can begin. The high watermark itself is one: the next record will stand there.
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE with `log_start` and `high_watermark`.
    pub(crate) fn check(&self, start: Offset) -> Result<(), Fault> {
        let Self {
            log_start,
            high_watermark,
            ..
        } = *self;
        if (log_start..=high_watermark).contains(&start) {
            return Ok(());
        }
        let why = format!(
            "offset {start} is not in the log, which holds {log_start} to {high_watermark}; start at `start`, `end` or an offset between"
        );
        Err(Fault::new(Reason::OffsetOutOfRange, why)
            .with("log_start", log_start)
            .with("high_watermark", high_watermark))
    }
}

/// A stored batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Produced {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// The owner's clock when it was appended, ms since 1970.
    pub append_time: TimestampMs,
    /// It had been stored before; the rest is of the first copy.
    pub duplicate: bool,
}

/// The answer to [`PartitionHandle::produce`], later. Dropping it drops the answer, not the batch.
#[must_use = "a batch without a look at its answer may be lost without a word"]
pub struct ProduceFuture {
    answer: Result<oneshot::Receiver<Result<Produced, Fault>>, Option<Fault>>,
    shown: Arc<Shown>,
}

impl ProduceFuture {
    /// The fault of a batch that was refused on the spot and never reached the partition. Whoever keeps an order must look before
    /// the next call of `produce`, else a later batch may overtake the refused one.
    pub fn refused(&mut self) -> Option<Fault> {
        match &mut self.answer {
            Ok(_) => None,
            Err(fault) => Some(fault.take().unwrap_or_else(|| self.shown.fault())),
        }
    }
}

impl Future for ProduceFuture {
    type Output = Result<Produced, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &mut this.answer {
            Ok(answer) => match ready!(Pin::new(answer).poll(cx)) {
                Ok(result) => Poll::Ready(result),
                Err(_) => {
                    let mut fault = this.shown.fault();
                    fault.fate = hulse_proto::error::Fate::Unknown;
                    Poll::Ready(Err(fault))
                }
            },
            Err(fault) => Poll::Ready(Err(fault.take().unwrap_or_else(|| this.shown.fault()))),
        }
    }
}

/// What a handle may ask its task.
pub(crate) enum Command {
    /// Append a batch that passed the checks which need no state.
    Produce(ProduceCommand),
    /// What is durable of a producer.
    Producer {
        producer: ProducerId,
        answer: oneshot::Sender<Option<(i16, i32)>>,
    },
    /// Retention comes by.
    Retain(RetainCommand),
    /// Move the log start.
    Trim(TrimCommand),
    /// The topic says another number of copies.
    Replicate(Replication),
    /// Of subscriptions.
    Cursors(CursorCommand),
    /// End, with this word to everyone who waits.
    Stop {
        why: Fault,
        done: oneshot::Sender<()>,
    },
}

/// The way to a partition's task, which may rest meanwhile.
#[derive(Clone)]
pub(crate) struct Commands(Sender<Command, Box<Task>>);

/// The other end of [`Commands`].
pub(super) type CommandInbox = Inbox<Command, Box<Task>>;

/// The task has ended, and takes no commands.
#[derive(Debug)]
pub(crate) struct TaskEnded;

impl Commands {
    pub(super) fn channel() -> (Self, CommandInbox) {
        // Unbounded as a type; what batches may wait is bounded by bytes, the rest by who waits for an answer.
        let (sender, inbox) = mailbox(task::start);
        (Self(sender), inbox)
    }

    /// Puts one behind those that wait.
    ///
    /// # Errors
    /// The task has ended.
    pub(super) fn send(&self, command: Command) -> Result<(), TaskEnded> {
        self.0.send(command).map_err(|_| TaskEnded)
    }
}

/// A batch on its way into the log.
pub(crate) struct ProduceCommand {
    pub(crate) header: BatchHeader,
    pub(crate) batch: Bytes,
    /// Held until it is answered, whoever waits for that.
    pub(crate) room: Option<IngressPermit>,
    pub(crate) answer: oneshot::Sender<Result<Produced, Fault>>,
}

pub(crate) struct Shared {
    pub(crate) id: PartitionId,
    pub(crate) epoch: OwnerEpoch,
    pub(crate) commands: Commands,
    pub(crate) shown: Arc<Shown>,
    pub(crate) log: LogReader,
    pub(crate) time_turns: TimeTurns,
    pub(crate) max_batch_bytes: usize,
    pub(crate) log_append_time: bool,
    /// What the topic said last of copies.
    pub(crate) replication: Mutex<Replication>,
    /// Why no batches are taken, because of a backlog.
    pub(crate) refusal: Refusal,
}

/// An open partition.
#[derive(Clone)]
pub struct PartitionHandle(pub(crate) Arc<Shared>);

impl PartitionHandle {
    /// Which.
    pub fn id(&self) -> PartitionId {
        self.0.id
    }

    /// The epoch under which this broker owns it.
    pub fn leader_epoch(&self) -> OwnerEpoch {
        self.0.epoch
    }

    /// Whether its records have the time of their append, which is that of [`Produced`], and not the producer's.
    pub fn is_log_append_time(&self) -> bool {
        self.0.log_append_time
    }

    /// As [`PartitionHandle::produce_in`], of a batch that took no room.
    ///
    /// # Errors
    /// As there.
    pub fn produce(&self, batch: Bytes) -> ProduceFuture {
        self.produce_in(None, batch)
    }

    /// Checks and enqueues one batch. Batches are judged and appended in the order of the calls; the answer comes after
    /// durability. `room` is held as long as the batch waits or is on its way, also when the answer is not waited for.
    ///
    /// # Errors
    /// BATCH_CORRUPT, BATCH_TOO_LARGE, INVALID_REQUEST (serving.md C2.2); FENCED_EPOCH, OUT_OF_ORDER_SEQUENCE,
    /// SEQUENCE_OVERLAP (C2.3–C2.6); OVERLOADED, BACKLOG_EXCEEDED; and with fate unknown STORAGE_UNKNOWN.
    pub fn produce_in(&self, room: Option<IngressPermit>, batch: Bytes) -> ProduceFuture {
        ProduceFuture {
            answer: self.enqueue(room, batch),
            shown: self.0.shown.clone(),
        }
    }

    fn enqueue(
        &self,
        room: Option<IngressPermit>,
        batch: Bytes,
    ) -> Result<oneshot::Receiver<Result<Produced, Fault>>, Option<Fault>> {
        let header = batch::verify_produced(&batch, self.0.max_batch_bytes)
            .map_err(|error| Some(Fault::new(error.reason(), error.to_string())))?;
        if header.is_transactional() {
            let why = "batch is transactional, and this broker has no transactions yet; send it without a transaction";
            return Err(Some(Fault::new(Reason::InvalidRequest, why)));
        }
        if let Some(fault) = self.0.refusal.get() {
            return Err(Some(fault));
        }
        let waiting = &self.0.shown.queued_bytes;
        let queued = waiting.fetch_add(batch.len(), Ordering::Relaxed);
        if queued > QUEUED_BYTES_MAX {
            waiting.fetch_sub(batch.len(), Ordering::Relaxed);
            let why = format!(
                "{queued} bytes wait in partition {}; send slower",
                self.0.id
            );
            return Err(Some(Fault::new(Reason::Overloaded, why)));
        }
        let (answer, receiver) = oneshot::channel();
        let command = Command::Produce(ProduceCommand {
            header,
            batch,
            room,
            answer,
        });
        self.0.commands.send(command).map_err(|_| None)?;
        Ok(receiver)
    }

    /// What is durable of a producer: its epoch and last sequence.
    ///
    /// # Errors
    /// The fault that ended the partition.
    pub async fn producer(&self, producer: ProducerId) -> Result<Option<(i16, i32)>, Fault> {
        let (answer, receiver) = oneshot::channel();
        let sent = self.0.commands.send(Command::Producer { producer, answer });
        if sent.is_err() {
            return Err(self.0.shown.fault());
        }
        receiver.await.map_err(|_| self.0.shown.fault())
    }

    /// Whether it has cursors of subscriptions.
    pub(crate) fn is_consumed(&self) -> bool {
        self.0.shown.is_consumed()
    }

    /// Where the log begins and ends, now.
    pub fn offsets(&self) -> LogOffsets {
        self.0.shown.offsets()
    }

    /// Changes whenever the high watermark moves; closes when the partition stops here.
    pub fn watch(&self) -> watch::Receiver<LogOffsets> {
        self.0.shown.watch()
    }

    /// Why it no longer serves.
    pub fn ended(&self) -> Option<Fault> {
        self.0.shown.ended()
    }

    /// Why it ended, or that it did.
    pub(super) fn end(&self) -> Fault {
        self.0.shown.fault()
    }

    /// Stops it; everyone who waits gets `why`. Answers when its task is gone.
    pub(crate) async fn stop(&self, why: Fault) {
        let (done, stopped) = oneshot::channel();
        if self.0.commands.send(Command::Stop { why, done }).is_ok() {
            // An error means that the task ended by itself meanwhile, which is what we want.
            let _ = stopped.await;
        }
    }

    /// Whole batches from the one that holds `start`, up to about `max_bytes` (at least one), below the high watermark. Empty
    /// when `start` is the high watermark. Cancel-safe.
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE with `log_start` and `high_watermark`; DATA_DAMAGED; STORAGE_UNAVAILABLE.
    pub async fn read(&self, start: Offset, max_bytes: usize) -> Result<ReadChunk, Fault> {
        self.0.log.read(start, max_bytes).await
    }

    /// The first record whose timestamp is at least `timestamp`: its offset and timestamp. Cancel-safe: a batch that is being opened
    /// is opened to its end, for nobody.
    ///
    /// # Errors
    /// As [`PartitionHandle::read`].
    pub async fn offset_at_time(
        &self,
        timestamp: TimestampMs,
    ) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        let shared = &self.0;
        shared
            .log
            .offset_at_time(timestamp, &shared.time_turns)
            .await
    }

    /// The first record with the highest timestamp of the log: its offset and timestamp. Cancel-safe as
    /// [`PartitionHandle::offset_at_time`].
    ///
    /// # Errors
    /// As [`PartitionHandle::read`].
    pub async fn offset_of_max_time(&self) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        let shared = &self.0;
        shared.log.offset_of_max_time(&shared.time_turns).await
    }

    /// The highest epoch up to `epoch` under which records stand, and the end of its records. An epoch above the owner's own is
    /// not known: `None`.
    pub fn end_of_epoch(&self, epoch: OwnerEpoch) -> Option<(OwnerEpoch, Offset)> {
        match epoch.cmp(&self.0.epoch) {
            std::cmp::Ordering::Greater => None,
            std::cmp::Ordering::Equal => Some((epoch, self.offsets().high_watermark)),
            std::cmp::Ordering::Less => Some(self.0.log.with_view(|view| view.end_of_epoch(epoch))),
        }
    }
}
