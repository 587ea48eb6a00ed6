//! What a producer's handles and lanes share.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hulse_proto::error::ErrorKind;
use hulse_proto::id::ProducerId;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::txn_client::TxnClient;
use rand::Rng;
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::losses::Losses;
use super::stats::{Counters, count};
use super::ticket::BatchFate;
use super::trouble::Trouble;
use crate::client::{Core, Repeat, Topic};
use crate::error::Error;
use crate::interceptor::{Chain, Placing, Produced};
use crate::lane::{Cause, Failure, Stored};

/// When a record counts as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acks {
    /// When it was handed to the link: at most once; it may be lost without a word.
    None,
    /// When it is durable on an ack quorum.
    #[default]
    Quorum,
}

/// Who an idempotent producer is (serving.md C1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdentity {
    /// Given by the cluster.
    pub id: ProducerId,
    /// Not negative.
    pub epoch: i16,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery {
    pub(crate) acks: Acks,
    pub(crate) idempotent: bool,
    pub(crate) timeout: Duration,
}

pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    pub(crate) topic: Topic,
    pub(crate) delivery: Delivery,
    /// Bytes of `max_unacked_bytes` that are free. First come, first served.
    pub(crate) memory: Semaphore,
    pub(crate) memory_max: usize,
    pub(crate) counters: Counters,
    pub(crate) losses: Arc<Losses>,
    pub(crate) trouble: Trouble,
    pub(crate) identity: OnceCell<ProducerIdentity>,
    /// Why the whole producer stopped.
    fatal: OnceLock<Error>,
    /// Ends every lane at once.
    pub(crate) stop: CancellationToken,
    pub(crate) lanes: TaskTracker,
    /// `None`: no interceptors.
    pub(crate) placing: Option<Arc<Placing>>,
}

impl Shared {
    pub(super) fn new(
        core: Arc<Core>,
        topic: Topic,
        delivery: Delivery,
        memory: usize,
        chain: Chain,
    ) -> Self {
        let placing = (!chain.is_empty()).then(|| {
            Arc::new(Placing {
                chain,
                topic: topic.name.to_string(),
                producer: Uuid::from_u128(core.child_rng().random()),
            })
        });
        Self {
            placing,
            core,
            topic,
            delivery,
            memory: Semaphore::new(memory),
            memory_max: memory,
            counters: Counters::default(),
            losses: Arc::default(),
            trouble: Trouble::default(),
            identity: OnceCell::new(),
            fatal: OnceLock::new(),
            stop: CancellationToken::new(),
            lanes: TaskTracker::new(),
        }
    }

    /// The producer's identity, asked for at first use. A repeated question only leaves a number unused.
    pub(crate) async fn identity(&self) -> Result<ProducerIdentity, Error> {
        let identity = self.identity.get_or_try_init(|| async {
            let answer = self
                .core
                .call(Repeat::Always, |channel| {
                    let client_id = self.core.client_id.clone();
                    async move {
                        let request = v1::InitProducerRequest { client_id };
                        TxnClient::new(channel).init_producer(request).await
                    }
                })
                .await?;
            match i16::try_from(answer.producer_epoch) {
                Ok(epoch) if epoch >= 0 && answer.producer_id >= 0 => Ok(ProducerIdentity {
                    id: ProducerId(answer.producer_id),
                    epoch,
                }),
                _ => Err(Error::local(
                    ErrorKind::Internal,
                    "the broker gave an impossible producer identity; report it",
                )),
            }
        });
        identity.await.copied()
    }

    /// Decides a batch's fate and frees its memory.
    pub(crate) fn settle(&self, fate: &BatchFate, result: Result<Stored, Failure>) {
        let weight = fate.weight();
        let records = u64::from(weight.records);
        let outcome = match result {
            Ok(stored) => {
                count(&self.counters.records_stored, records);
                count(&self.counters.batches_duplicate, stored.duplicate.into());
                Ok(stored)
            }
            Err(failure) => {
                count(&self.counters.records_failed, records);
                Err(self.error_of(&failure))
            }
        };
        if let Some(placing) = &self.placing {
            let outcome = match &outcome {
                Ok(stored) => Ok(fate.receipt(0, stored)),
                Err(error) => Err(error),
            };
            placing.chain.on_ack(&Produced {
                topic: &placing.topic,
                partition: fate.partition(),
                producer: placing.producer,
                number: fate.first(),
                records: weight.records,
                outcome,
            });
        }
        fate.settle(outcome);
        self.memory.add_permits(weight.cost);
    }

    /// Decides the fate of a batch that was never handed to a link.
    pub(crate) fn fail_unsent(&self, fate: &BatchFate, cause: Cause) {
        let possibly_written = false;
        self.settle(
            fate,
            Err(Failure {
                cause,
                possibly_written,
            }),
        );
    }

    /// The words of a failure.
    pub(crate) fn error_of(&self, failure: &Failure) -> Error {
        let error = match &failure.cause {
            Cause::Refused(fault) => fault.clone().into(),
            Cause::TimedOut => {
                let kind = match failure.possibly_written {
                    true => ErrorKind::OutcomeUnknown,
                    false => ErrorKind::Unavailable,
                };
                let last = self.trouble.last();
                let why = last.as_ref().map_or_else(
                    || format!("are the brokers of {} up and fast enough?", self.topic.name),
                    |error| format!("the last word was: {error}"),
                );
                let timeout = self.delivery.timeout;
                let words =
                    format!("not confirmed within the delivery time-out of {timeout:?}; {why}");
                let error = Error::local(kind, words);
                // The broker's own word is the cause, for those who want its code.
                match last.as_ref().and_then(Error::fault) {
                    Some(fault) => error.with_source(Arc::new(fault.clone())),
                    None => error,
                }
            }
            Cause::EpochsUsedUp => Error::local(
                ErrorKind::Fenced,
                "this producer gave up on too many batches; make a new one",
            ),
            Cause::Failed(error) => error.clone(),
        };
        error.with_possibly_written(failure.possibly_written)
    }

    /// Ends the whole producer.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.fatal.set(error);
        self.memory.close();
        self.stop.cancel();
    }

    /// Why records are no longer taken.
    pub(crate) fn closed_error(&self) -> Error {
        self.fatal.get().cloned().unwrap_or_else(|| {
            let words = format!(
                "the producer of {} is closed; make a new one",
                self.topic.name
            );
            Error::local(ErrorKind::Conflict, words)
        })
    }

    pub(crate) fn fatal(&self) -> Option<&Error> {
        self.fatal.get()
    }
}
