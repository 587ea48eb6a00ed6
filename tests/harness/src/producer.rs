//! A producer as the SDK is one: five batches in flight, resent in order with the same sequences until their fate is known.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use hulse_proto::batch::{BatchBuilder, Compression, ProducerStamp, RecordRef};
use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::id::{OwnerEpoch, ProducerId};
use hulse_proto::limits::BATCHES_IN_FLIGHT_MAX;
use hulse_proto::time::WallClock;
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use serving_broker::{PartitionHandle, Produced};
use tokio::time::{sleep, timeout};

use crate::broker::{Cluster, SimBroker};
use crate::trace;
use crate::truth::{Outcome, RecordId};

/// Without an answer for this long a session is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Tries in a row without any progress, in a healed world, before a producer counts as stuck.
const FRUITLESS_MAX: u32 = 200;

/// How a producer behaves.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Its number; also its producer id when it is idempotent.
    pub number: u32,
    /// It has a producer id and resends.
    pub idempotent: bool,
    /// Batches it sends.
    pub batches: u32,
    /// Longest pause between two, ms.
    pub pause_ms: u64,
    /// It sometimes gives up on what is in flight and goes on under a new epoch.
    pub gives_up: bool,
    /// Some of its batches arrive a second time, much later.
    pub echoes: bool,
    /// It sometimes turns to the wrong broker.
    pub strays: bool,
}

#[derive(Debug, Clone)]
struct Batch {
    first: u64,
    count: u32,
    last_sequence: i32,
    bytes: Bytes,
}

/// A producer.
pub struct Producer {
    cluster: Arc<Cluster>,
    manner: Manner,
    rng: ChaCha12Rng,
    epoch: i16,
    sequence: i32,
    next: u64,
    made: u32,
    unacked: VecDeque<Batch>,
    /// Highest leader epoch seen: an owner of a lower one does not know yet that it is none (serving.md B11).
    seen: OwnerEpoch,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Everything is sent and answered.
    Done,
    /// Try again elsewhere.
    Broken,
    /// A promise was broken; a violation says which.
    Fatal,
}

impl Producer {
    /// One that has sent nothing.
    pub fn new(cluster: &Arc<Cluster>, manner: Manner) -> Self {
        let rng = cluster
            .world
            .seeds
            .stream(&format!("producer {}", manner.number));
        Self {
            cluster: cluster.clone(),
            manner,
            rng,
            epoch: 0,
            sequence: 0,
            next: 0,
            made: 0,
            unacked: VecDeque::new(),
            seen: OwnerEpoch(0),
        }
    }

    fn done(&self) -> bool {
        self.made == self.manner.batches && self.unacked.is_empty()
    }

    /// Sends everything; ends early when the topic is deleted.
    pub async fn run(mut self) {
        let mut fruitless = 0;
        while !self.done() && !self.cluster.is_deleting() {
            let before = (self.made, self.unacked.len());
            let stale = self.manner.strays && self.rng.random_bool(0.05);
            if let Some((broker, handle)) = self.cluster.route(stale).await
                && self.is_new_enough(&handle)
            {
                let end = match self.manner.idempotent {
                    true => self.session(&broker, &handle).await,
                    false => self.plain(&broker, &handle).await,
                };
                if end != End::Broken {
                    return;
                }
                self.after_break();
            }
            let progress = before != (self.made, self.unacked.len());
            fruitless = match progress || !self.cluster.world.is_healed() {
                true => 0,
                false => fruitless + 1,
            };
            if fruitless > FRUITLESS_MAX {
                let words = format!(
                    "STUCK producer {} at record {}",
                    self.manner.number, self.next
                );
                return self.cluster.world.violations.add(words);
            }
            sleep(Duration::from_millis(self.rng.random_range(10..250))).await;
        }
    }

    fn is_new_enough(&mut self, handle: &PartitionHandle) -> bool {
        let epoch = handle.leader_epoch();
        if epoch < self.seen {
            self.cluster.prefer_other();
            return false;
        }
        self.seen = epoch;
        true
    }

    /// The fate of what is in flight stays unknown for ever; a new epoch keeps it from landing behind what comes.
    fn after_break(&mut self) {
        if self.manner.gives_up && !self.unacked.is_empty() && self.rng.random_bool(0.2) {
            trace!(
                self.cluster.world.trace,
                "producer {} gives up", self.manner.number
            );
            self.unacked.clear();
            self.epoch += 1;
            self.sequence = 0;
        }
    }

    fn make(&mut self) -> Batch {
        let count = self.rng.random_range(1..4_u32);
        let mut builder =
            BatchBuilder::new(Compression::None).expect("no compression is supported");
        let timestamp = self.cluster.world.clock.now_ms();
        let padding = match self.rng.random_bool(0.1) {
            true => self.rng.random_range(0..3_000),
            false => self.rng.random_range(0..60),
        };
        let key = vec![b'k'; padding];
        let mut truth = self.cluster.truth();
        for number in self.next..self.next + u64::from(count) {
            let id = RecordId {
                producer: self.manner.number,
                number,
            };
            truth.send(id);
            let value = id.payload();
            let record = RecordRef {
                timestamp,
                key: Some(&key),
                value: Some(value.as_bytes()),
                headers: &[],
            };
            builder.push(&record).expect("a small record fits");
        }
        drop(truth);
        let stamp = ProducerStamp {
            id: ProducerId(i64::from(self.manner.number)),
            epoch: self.epoch,
            base_sequence: self.sequence,
        };
        let batch = Batch {
            first: self.next,
            count,
            last_sequence: self.sequence + count as i32 - 1,
            bytes: builder.build(self.manner.idempotent.then_some(stamp)),
        };
        self.next += u64::from(count);
        self.sequence += count as i32;
        self.made += 1;
        batch
    }

    fn tell(&self, batch: &Batch, outcome: impl Fn(u64) -> Outcome) {
        let mut truth = self.cluster.truth();
        for index in 0..u64::from(batch.count) {
            let id = RecordId {
                producer: self.manner.number,
                number: batch.first + index,
            };
            truth.answer(id, outcome(index));
        }
    }

    fn stored(&self, batch: &Batch, produced: Produced) {
        let (world, base) = (&self.cluster.world, produced.base_offset.0);
        let number = self.manner.number;
        trace!(
            world.trace,
            "producer {number} has {} at {base}", batch.first
        );
        self.tell(batch, |index| Outcome::Ok(Some(base + index)));
    }

    /// What the SDK does when it opens a lane: asks what is durable, and drops what is.
    async fn resume(&mut self, broker: &SimBroker, handle: &PartitionHandle) -> bool {
        let id = ProducerId(i64::from(self.manner.number));
        let asked = broker.process.heard(handle.producer(id));
        let Ok(Some(Ok(known))) = timeout(ANSWER_TIMEOUT, asked).await else {
            return false;
        };
        let Some((epoch, last)) = known else {
            return true;
        };
        while let Some(batch) = self.unacked.front().filter(|_| epoch == self.epoch) {
            if batch.last_sequence > last {
                break;
            }
            let batch = batch.clone();
            self.unacked.pop_front();
            self.tell(&batch, |_| Outcome::Ok(None));
        }
        true
    }

    async fn session(&mut self, broker: &Arc<SimBroker>, handle: &PartitionHandle) -> End {
        if self.rng.random_bool(0.5) && !self.resume(broker, handle).await {
            return End::Broken;
        }
        let mut answers = FuturesOrdered::new();
        for batch in &self.unacked {
            answers.push_back(heard(&self.cluster, broker, handle, &batch.bytes));
        }
        loop {
            while answers.len() < BATCHES_IN_FLIGHT_MAX && self.made < self.manner.batches {
                let batch = self.make();
                answers.push_back(heard(&self.cluster, broker, handle, &batch.bytes));
                self.echo(handle, &batch);
                self.unacked.push_back(batch);
                let pause = self.rng.random_range(0..=self.manner.pause_ms);
                if pause > 0 && self.rng.random_bool(0.5) {
                    sleep(Duration::from_millis(pause)).await;
                }
            }
            if answers.is_empty() {
                return End::Done;
            }
            match timeout(ANSWER_TIMEOUT, answers.next()).await {
                Ok(Some(Some(Ok(produced)))) => {
                    self.cluster.see(handle);
                    let batch = self.unacked.pop_front().expect("an answer is to a batch");
                    self.stored(&batch, produced);
                }
                Ok(Some(Some(Err(fault)))) => return self.refused(&fault),
                Ok(_) | Err(_) => return End::Broken,
            }
        }
    }

    fn refused(&self, fault: &Fault) -> End {
        let world = &self.cluster.world;
        trace!(world.trace, "producer {}: {fault}", self.manner.number);
        if fault.reason == Reason::StorageFull {
            world.counts.add("sessions told that storage is full");
        }
        let fatal = matches!(
            fault.reason,
            Reason::SequenceOverlap
                | Reason::OutOfOrderSequence
                | Reason::FencedEpoch
                | Reason::BatchCorrupt
                | Reason::InvalidRequest
                | Reason::Internal
        );
        if !fatal {
            return End::Broken;
        }
        world.violations.add(format!(
            "producer {} was refused: {fault}",
            self.manner.number
        ));
        End::Fatal
    }

    /// The same batch, once more, much later, from a packet that was stuck somewhere.
    fn echo(&mut self, handle: &PartitionHandle, batch: &Batch) {
        if !self.manner.echoes || !self.rng.random_bool(0.1) {
            return;
        }
        let late = Duration::from_millis(self.rng.random_range(0..4_000));
        let (handle, bytes) = (handle.clone(), batch.bytes.clone());
        tokio::spawn(async move {
            sleep(late).await;
            // Nobody waits for this answer.
            let _ = handle.produce(bytes).await;
        });
    }

    /// Without a producer id: each batch is sent once, and its fate is what the answer says.
    async fn plain(&mut self, broker: &Arc<SimBroker>, handle: &PartitionHandle) -> End {
        let mut answers = FuturesOrdered::new();
        let mut sent = VecDeque::new();
        loop {
            while answers.len() < BATCHES_IN_FLIGHT_MAX && self.made < self.manner.batches {
                let batch = self.make();
                answers.push_back(heard(&self.cluster, broker, handle, &batch.bytes));
                sent.push_back(batch);
                sleep(Duration::from_millis(
                    self.rng.random_range(0..=self.manner.pause_ms),
                ))
                .await;
            }
            let Some(batch) = sent.pop_front() else {
                return End::Done;
            };
            match timeout(ANSWER_TIMEOUT, answers.next()).await {
                Ok(Some(Some(Ok(produced)))) => self.stored(&batch, produced),
                Ok(Some(Some(Err(fault)))) if fault.fate == Fate::NotApplied => {
                    trace!(
                        self.cluster.world.trace,
                        "plain {}: {fault}", self.manner.number
                    );
                    self.tell(&batch, |_| Outcome::Failed);
                    if handle.ended().is_some() && sent.is_empty() {
                        return End::Broken;
                    }
                }
                Ok(Some(Some(Err(_)))) => {}
                // What else is in flight stays unknown.
                Ok(_) | Err(_) => return End::Broken,
            }
        }
    }
}

/// A batch sent to a broker; `None` when the broker died before it answered. The answer is taken when it comes, and not when
/// the producer looks at it.
fn heard(
    cluster: &Arc<Cluster>,
    broker: &Arc<SimBroker>,
    handle: &PartitionHandle,
    bytes: &Bytes,
) -> BoxFuture<'static, Option<Result<Produced, Fault>>> {
    let answer = handle.produce(bytes.clone());
    let (broker, cluster) = (broker.clone(), cluster.clone());
    let task = tokio::spawn(async move {
        let answer = broker.process.heard(answer).await;
        if let Some(Ok(produced)) = &answer {
            let late = cluster.is_deleted() && !produced.duplicate;
            cluster.world.violations.check(!late, || {
                format!(
                    "offset {} was stored in a deleted topic",
                    produced.base_offset
                )
            });
        }
        answer
    });
    Box::pin(async move { task.await.ok().flatten() })
}
