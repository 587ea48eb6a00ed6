//! What a producer is made from.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::batch::{BATCH_HEADER_BYTES, BatchBuilder, Compression};
use hulse_proto::limits::{BATCH_BYTES_MAX, RECORD_BYTES_MAX};

use super::delivery_mode::DeliveryMode;
use super::handle::{Producer, ProducerConfig};
use super::partitioner::Partitioner;
use super::queue::Batching;
use super::shared::{Acks, Delivery, ProducerIdentity, Shared};
use crate::client::{Core, Topic};
use crate::error::Error;
use crate::interceptor::Interceptor;

const BATCH_BYTES: usize = 1 << 20;
const LINGER_MAX: Duration = Duration::from_secs(60);
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(120);
const UNACKED_BYTES: usize = 64 << 20;
/// The smallest memory budget: one largest record and what it takes beside its bytes.
const UNACKED_BYTES_MIN: usize = RECORD_BYTES_MAX + (64 << 10);
/// What tokio's semaphore counts in one step.
const UNACKED_BYTES_MAX: usize = u32::MAX as usize;

/// Makes a [`Producer`].
#[must_use = "a builder does nothing until build()"]
pub struct ProducerBuilder {
    core: Arc<Core>,
    topic: String,
    batching: Batching,
    delivery: Delivery,
    unacked_bytes_max: usize,
    partitioner: Partitioner,
    auto_create: bool,
    resume: Option<ProducerIdentity>,
    interceptors: Vec<Arc<dyn Interceptor>>,
}

impl ProducerBuilder {
    pub(crate) fn new(core: Arc<Core>, topic: String) -> Self {
        Self {
            core,
            topic,
            batching: Batching {
                bytes_max: BATCH_BYTES,
                linger: Duration::ZERO,
                compression: Compression::None,
            },
            delivery: Delivery {
                acks: Acks::Quorum,
                idempotent: true,
                timeout: DELIVERY_TIMEOUT,
            },
            unacked_bytes_max: UNACKED_BYTES,
            partitioner: Partitioner::default(),
            auto_create: true,
            resume: None,
            interceptors: Vec::new(),
        }
    }

    /// Largest batch before compression. Default 1 MiB; at most 4 MiB. A single larger record gets a batch of its own.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.batching.bytes_max = max_bytes;
        self
    }

    /// How long a batch waits for more records. Default 0: it goes at once when nothing is under way to its partition, and grows
    /// while something is. At most 60 s.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.batching.linger = linger;
        self
    }

    /// How batches are compressed: none (default), lz4 or zstd.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.batching.compression = compression;
        self
    }

    /// When a record counts as sent. Default [`Acks::Quorum`]. [`Acks::None`] is delivery mode `at_most_once`: records are not
    /// numbered, never sent twice, and may be lost without a word.
    pub fn acks(mut self, acks: Acks) -> Self {
        self.delivery.acks = acks;
        self
    }

    /// The delivery mode by its name: [`DeliveryMode::AtMostOnce`] is acks none, [`DeliveryMode::AtLeastOnce`] (default) is acks
    /// quorum.
    pub fn delivery_mode(self, mode: DeliveryMode) -> Self {
        self.acks(match mode {
            DeliveryMode::AtMostOnce => Acks::None,
            DeliveryMode::AtLeastOnce => Acks::Quorum,
        })
    }

    /// Whether batches carry producer id and sequence, so that resends are recognised. Default true. Without it a broken link may
    /// store batches twice.
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.delivery.idempotent = idempotent;
        self
    }

    /// How long a record may take from `send` to its receipt. Default 2 min.
    pub fn delivery_timeout(mut self, timeout: Duration) -> Self {
        self.delivery.timeout = timeout;
        self
    }

    /// Most bytes of records that wait for their fate, over all partitions. Default 64 MiB. `send` waits beyond that.
    pub fn max_unacked_bytes(mut self, max_unacked_bytes: usize) -> Self {
        self.unacked_bytes_max = max_unacked_bytes;
        self
    }

    /// How records are spread over partitions. Default [`Partitioner::Keyed`].
    pub fn partitioner(mut self, partitioner: Partitioner) -> Self {
        self.partitioner = partitioner;
        self
    }

    /// Whether a missing topic is created. Default true, where the cluster allows it.
    pub fn auto_create(mut self, auto_create: bool) -> Self {
        self.auto_create = auto_create;
        self
    }

    /// Goes on as an earlier producer. Each partition goes on after the last sequence stored there in this epoch; an older
    /// epoch is refused as fenced. The earlier handle must not be used any more.
    pub fn resume(mut self, identity: ProducerIdentity) -> Self {
        self.resume = Some(identity);
        self
    }

    /// Adds an interceptor: it sees this producer's records, in the order of these calls and after the client's interceptors.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.push(Arc::new(interceptor));
        self
    }

    /// Resolves the topic; the producer. The number of partitions stays as it is now for the life of the producer.
    ///
    /// # Errors
    /// Invalid: an option out of its bounds. Otherwise why the topic could not be resolved within the client's request time-out.
    /// Cancel-safe.
    pub async fn build(mut self) -> Result<Producer, Error> {
        self.check()?;
        // Without answers there is nothing to recognise a resend by.
        self.delivery.idempotent &= self.delivery.acks == Acks::Quorum;
        let topic = Topic::open(Arc::clone(&self.core), &self.topic, self.auto_create).await?;
        let memory = self.unacked_bytes_max;
        let chain = self.core.interceptors.and(&self.interceptors);
        let shared = Shared::new(self.core, topic, self.delivery, memory, chain);
        if let Some(identity) = self.resume {
            let _ = shared.identity.set(identity);
        }
        Ok(Producer::new(
            shared,
            ProducerConfig {
                batching: self.batching,
                partitioner: self.partitioner,
            },
        ))
    }

    fn check(&self) -> Result<(), Error> {
        let within = |name: &str, found: usize, min: usize, max: usize| match found {
            _ if (min..=max).contains(&found) => Ok(()),
            _ => Err(Error::invalid(format!(
                "{name} is {found}; {min} to {max} are allowed"
            ))),
        };
        within(
            "max_bytes",
            self.batching.bytes_max,
            1 << 10,
            BATCH_BYTES_MAX - BATCH_HEADER_BYTES,
        )?;
        let unacked = self.unacked_bytes_max;
        within(
            "max_unacked_bytes",
            unacked,
            UNACKED_BYTES_MIN,
            UNACKED_BYTES_MAX,
        )?;
        if self.batching.linger > LINGER_MAX {
            return Err(Error::invalid(format!("linger is above {LINGER_MAX:?}")));
        }
        if self.delivery.timeout <= self.batching.linger {
            return Err(Error::invalid("delivery_timeout must be above linger"));
        }
        BatchBuilder::new(self.batching.compression)?;
        match self.resume {
            Some(identity) if identity.id.0 < 0 || identity.epoch < 0 => Err(Error::invalid(
                "resume() takes an id and an epoch that are not negative",
            )),
            Some(_) if !self.delivery.idempotent || self.delivery.acks == Acks::None => Err(
                Error::invalid("resume() needs acks quorum and an idempotent producer"),
            ),
            _ => Ok(()),
        }
    }
}
