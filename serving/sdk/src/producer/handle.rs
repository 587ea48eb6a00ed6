//! The producer's handle.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hulse_proto::batch::RecordRef;
use tokio::runtime::Handle;
use tokio::sync::{TryAcquireError, oneshot};
use tracing::warn;

use super::partitioner::{Partitioner, Spreader};
use super::queue::{Batching, Queue, Request};
use super::record::Record;
use super::shared::{Acks, ProducerIdentity, Shared};
use super::stats::ProducerStats;
use super::ticket::Ticket;
use crate::error::Error;
use crate::lane::LaneTask;

/// How long `flush` waits for the broker to have worked off an acks-none lane; then it may be lost, as acks none says.
const BARRIER_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends records to one topic. Cheap to clone; clones are one producer. Dropping the last clone gives up on what is not sent yet
/// and warns: call [`Producer::close`].
#[derive(Clone)]
pub struct Producer {
    inner: Arc<Inner>,
}

pub(super) struct ProducerConfig {
    pub(super) batching: Batching,
    pub(super) partitioner: Partitioner,
}

pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    spreader: Spreader,
    batching: Batching,
    /// By partition; begun at first use.
    queues: Vec<OnceLock<Arc<Queue>>>,
    runtime: Handle,
}

impl Producer {
    pub(super) fn new(shared: Shared, config: ProducerConfig) -> Self {
        let partitions = shared.topic.partitions();
        let rng = shared.core.child_rng();
        Self {
            inner: Arc::new(Inner {
                shared: Arc::new(shared),
                spreader: Spreader::new(
                    config.partitioner,
                    partitions,
                    config.batching.bytes_max,
                    rng,
                ),
                batching: config.batching,
                queues: (0..partitions).map(|_| OnceLock::new()).collect(),
                runtime: Handle::current(),
            }),
        }
    }

    /// Queues a record. Waits only while `max_unacked_bytes` are taken (back-pressure, in order of arrival). The ticket tells
    /// when it is stored.
    ///
    /// # Errors
    /// The record was not queued: it is too large, its partition does not exist, or the producer is closed, fenced or its partition
    /// stopped, or an interceptor refuses it. Cancel-safe: dropped while it waits, nothing was queued.
    pub async fn send(&self, record: Record) -> Result<Ticket, Error> {
        let record = self.inner.intercept(record)?;
        let cost = self.inner.cost(&record);
        let memory = &self.inner.shared.memory;
        let steps = self.inner.memory_steps(cost);
        let permit = match memory.try_acquire_many(steps) {
            Ok(permit) => permit,
            Err(TryAcquireError::NoPermits) => match memory.acquire_many(steps).await {
                Ok(permit) => permit,
                Err(_) => return Err(self.inner.shared.closed_error()),
            },
            Err(TryAcquireError::Closed) => return Err(self.inner.shared.closed_error()),
        };
        permit.forget();
        self.inner.append(&record, steps as usize)
    }

    /// As [`Producer::send`] without waiting.
    ///
    /// # Errors
    /// Those of `send`, and Overloaded while `max_unacked_bytes` are taken.
    pub fn try_send(&self, record: Record) -> Result<Ticket, Error> {
        let record = self.inner.intercept(record)?;
        let steps = self.inner.memory_steps(self.inner.cost(&record));
        match self.inner.shared.memory.try_acquire_many(steps) {
            Ok(permit) => permit.forget(),
            Err(TryAcquireError::NoPermits) => {
                return Err(Error::local(
                    hulse_proto::error::ErrorKind::Overloaded,
                    "max_unacked_bytes are waiting to be stored; wait, or use send()",
                ));
            }
            Err(TryAcquireError::Closed) => return Err(self.inner.shared.closed_error()),
        }
        self.inner.append(&record, steps as usize)
    }

    /// Waits until everything that was queued before has its fate.
    ///
    /// # Errors
    /// What failed since the last `flush` of records whose tickets were dropped ([`Error::lost_tickets`]). Failures of awaited tickets are
    /// theirs. Cancel-safe.
    pub async fn flush(&self) -> Result<(), Error> {
        self.settle_queued().await;
        self.inner.shared.losses.take()
    }

    async fn settle_queued(&self) {
        let queues: Vec<_> = self.inner.queues.iter().filter_map(OnceLock::get).collect();
        let youngest: Vec<_> = queues.iter().filter_map(|queue| queue.flush()).collect();
        for ticket in youngest {
            // Batches of a partition are settled in order, so the youngest comes last.
            let _ = ticket.await;
        }
        if self.inner.shared.delivery.acks == Acks::None {
            let barriers = queues.iter().filter_map(|queue| {
                let (answer, passed) = oneshot::channel();
                queue.ask(Request::Barrier(answer)).ok().map(|()| passed)
            });
            let passed = futures::future::join_all(barriers);
            let _ = tokio::time::timeout(BARRIER_TIMEOUT, passed).await;
        }
    }

    /// Sends what is queued, refuses further records and waits for every fate, at most for the delivery time-out. Every clone is
    /// closed. May be called again.
    ///
    /// # Errors
    /// Why the producer had stopped, or what failed of records whose tickets were dropped since the last `flush`. Cancel-safe:
    /// called again it goes on waiting.
    pub async fn close(&self) -> Result<(), Error> {
        let shared = &self.inner.shared;
        // While the lanes still take questions; what comes meanwhile is settled below.
        self.settle_queued().await;
        let error = shared.closed_error();
        for slot in &self.inner.queues {
            // Begun here when it was not, so that no record slips in later.
            self.inner.queue_in(slot, 0, false).close(error.clone());
        }
        shared.lanes.close();
        shared.lanes.wait().await;
        shared.memory.close();
        let lost = shared.losses.take();
        match shared.fatal() {
            Some(error) => Err(error.clone()),
            None => lost,
        }
    }

    /// Id and epoch of this producer, asked for when it has none yet; `None` without idempotence. Partitions that gave up on a batch
    /// are in higher epochs of the same id.
    ///
    /// # Errors
    /// Why no id could be had. Cancel-safe.
    pub async fn identity(&self) -> Result<Option<ProducerIdentity>, Error> {
        match self.inner.shared.delivery.idempotent {
            true => self.inner.shared.identity().await.map(Some),
            false => Ok(None),
        }
    }

    /// The sequence of the last record of this producer in a partition: what is stored there when it was opened, and what was sent
    /// since. −1: none. Opens the partition if need be.
    ///
    /// # Errors
    /// Why the partition cannot be opened. Cancel-safe.
    pub async fn last_sequence(&self, partition: u32) -> Result<i32, Error> {
        let (answer, asked) = oneshot::channel();
        self.inner
            .queue(partition)?
            .ask(Request::LastSequence(answer))?;
        match asked.await {
            Ok(answer) => answer,
            Err(_) => Err(self.inner.shared.closed_error()),
        }
    }

    /// How many partitions records are spread over.
    pub fn partitions(&self) -> u32 {
        self.inner.queues.len() as u32
    }

    /// Full name of the topic.
    pub fn topic(&self) -> &str {
        self.inner.shared.topic.name.as_str()
    }

    /// What was done so far.
    pub fn stats(&self) -> ProducerStats {
        let shared = &self.inner.shared;
        let free = shared.memory.available_permits();
        ProducerStats {
            tickets_lost: shared.losses.total(),
            unacked_bytes: shared.memory_max.saturating_sub(free) as u64,
            ..shared.counters.snapshot()
        }
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    fn intercept(&self, record: Record) -> Result<Record, Error> {
        match &self.shared.placing {
            None => Ok(record),
            Some(placing) => placing.chain.on_send(&placing.topic, record),
        }
    }

    /// What a record takes of the memory budget, with what interceptors may add.
    fn cost(&self, record: &Record) -> usize {
        let placing = self.shared.placing.as_ref();
        record.cost() + placing.map_or(0, |placing| placing.chain.placed_bytes_max())
    }

    /// What a record takes of the memory semaphore; never more than there is, so that every record can be sent.
    fn memory_steps(&self, cost: usize) -> u32 {
        cost.min(self.shared.memory_max) as u32
    }

    fn append(&self, record: &Record, cost: usize) -> Result<Ticket, Error> {
        let appended = self.append_taken(record, cost);
        if appended.is_err() {
            self.shared.memory.add_permits(cost);
        }
        appended
    }

    fn append_taken(&self, record: &Record, cost: usize) -> Result<Ticket, Error> {
        let partition = self.spreader.pick(record, cost)?;
        let clock = &self.shared.core.clock;
        let view = RecordRef {
            timestamp: record.timestamp.unwrap_or_else(|| clock.now_ms()),
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &record.headers,
        };
        self.queue(partition)?.append(&view, cost)
    }

    pub(super) fn queue(&self, partition: u32) -> Result<&Arc<Queue>, Error> {
        match self.queues.get(partition as usize) {
            Some(slot) => Ok(self.queue_in(slot, partition, true)),
            None => Err(Error::invalid(format!(
                "partition {partition} does not exist; the topic has {}",
                self.queues.len()
            ))),
        }
    }

    /// The queue of a partition; its lane's task begins with it when `lane`.
    fn queue_in<'a>(
        &self,
        slot: &'a OnceLock<Arc<Queue>>,
        partition: u32,
        lane: bool,
    ) -> &'a Arc<Queue> {
        slot.get_or_init(|| {
            let losses = Arc::clone(&self.shared.losses);
            let placing = self.shared.placing.clone();
            let queue = Arc::new(Queue::new(partition, self.batching, losses, placing));
            if lane {
                let shared = Arc::clone(&self.shared);
                let task = LaneTask::new(shared, partition, Arc::clone(&queue));
                self.shared.lanes.spawn_on(task.run(), &self.runtime);
            }
            queue
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let free = self.shared.memory.available_permits();
        let unacked_bytes = self.shared.memory_max.saturating_sub(free);
        if unacked_bytes > 0 && self.shared.fatal().is_none() {
            warn!(
                topic = %self.shared.topic.name,
                unacked_bytes,
                "producer was dropped with records that were not confirmed; call close()"
            );
        }
        self.shared.stop.cancel();
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("topic", &self.topic())
            .field("partitions", &self.partitions())
            .finish_non_exhaustive()
    }
}
