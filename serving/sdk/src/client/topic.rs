//! Where a topic's partitions live: the last answer of a look-up, asked again after a failure.

use std::sync::{Arc, Mutex, PoisonError};

use hulse_proto::error::{ErrorKind, Fault, Reason};
use hulse_proto::id::{TopicId, TopicName};
use hulse_proto::limits::TOPIC_PARTITIONS_MAX;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::lookup_client::LookupClient;
use tokio::time::Instant;

use super::{Core, Repeat};
use crate::backoff::Backoff;
use crate::connect::Broker;
use crate::error::Error;

impl Core {
    /// Resolves names; one answer each, in order. A name's own fault is in its answer.
    pub(crate) async fn resolve(
        &self,
        topics: Vec<String>,
        auto_create: bool,
    ) -> Result<Vec<v1::ResolvedTopic>, Error> {
        let asked = topics.len();
        let answer = self
            .call(Repeat::Always, |channel| {
                let topics = topics.clone();
                async move {
                    let request = v1::ResolveRequest {
                        topics,
                        auto_create,
                    };
                    LookupClient::new(channel).resolve(request).await
                }
            })
            .await
            .map_err(|error| {
                let possibly_written = error.possibly_written() && auto_create;
                error.with_possibly_written(possibly_written)
            })?;
        if answer.topics.len() != asked {
            let found = answer.topics.len();
            let words = format!("the look-up of {asked} topics answered {found}; report it");
            return Err(Error::local(ErrorKind::Internal, words));
        }
        Ok(answer.topics)
    }

    /// Resolves one name, trying again while its fault is retriable, at most for the request time-out.
    async fn resolve_one(&self, name: &TopicName, auto_create: bool) -> Result<Resolved, Error> {
        let deadline = Instant::now() + self.request_timeout;
        let mut rng = self.child_rng();
        let mut backoff = Backoff::new();
        loop {
            let mut answers = self.resolve(vec![name.to_string()], auto_create).await?;
            let answer = answers.pop().expect("resolve answers one per name");
            let Some(fault) = answer.fault else {
                return self.read_answer(answer);
            };
            let error = Error::from_wire(fault);
            let wait = backoff.next(&mut rng, error.retry_after());
            if !error.is_retryable() || Instant::now() + wait >= deadline {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn read_answer(&self, answer: v1::ResolvedTopic) -> Result<Resolved, Error> {
        let wrong = |what: &str| {
            let words = format!("the look-up of {} answered {what}; report it", answer.name);
            Error::local(ErrorKind::Internal, words)
        };
        let id = TopicId::from_slice(&answer.topic_uuid).ok_or_else(|| wrong("no topic id"))?;
        let count = answer.partitions.len();
        if count == 0 || count > TOPIC_PARTITIONS_MAX as usize {
            return Err(wrong("an impossible number of partitions"));
        }
        let mut owners = vec![None; count];
        for owner in &answer.partitions {
            let slot = owners.get_mut(owner.index as usize);
            let slot = slot.ok_or_else(|| wrong("a partition outside the topic"))?;
            // Without an owner any broker may be asked; it answers with the way or opens the partition itself.
            *slot = Some(match owner.endpoint.as_str() {
                "" => self.brokers[0].clone(),
                endpoint => Broker::parse(endpoint)?,
            });
        }
        let owners: Option<Vec<_>> = owners.into_iter().collect();
        let owners = owners.ok_or_else(|| wrong("the same partition twice"))?;
        let mut leader_epochs = vec![0; count];
        for owner in &answer.partitions {
            leader_epochs[owner.index as usize] = owner.leader_epoch;
        }
        Ok(Resolved {
            id,
            owners,
            leader_epochs,
        })
    }
}

#[derive(Clone)]
struct Resolved {
    id: TopicId,
    /// By partition index.
    owners: Vec<Broker>,
    /// Leader epochs as the answering broker knows them; 0: not opened yet.
    leader_epochs: Vec<u32>,
}

/// A topic as last resolved.
pub(crate) struct Topic {
    core: Arc<Core>,
    pub(crate) name: TopicName,
    resolved: Mutex<Resolved>,
}

impl Topic {
    /// Resolves `name` for the first time.
    pub(crate) async fn open(
        core: Arc<Core>,
        name: &str,
        auto_create: bool,
    ) -> Result<Self, Error> {
        let name: TopicName = name.parse()?;
        let resolved = core.resolve_one(&name, auto_create).await?;
        Ok(Self {
            core,
            name,
            resolved: Mutex::new(resolved),
        })
    }

    pub(crate) fn partitions(&self) -> u32 {
        self.lock().owners.len() as u32
    }

    /// Identity of the topic and owner of the partition, as last resolved.
    pub(crate) fn owner(&self, partition: u32) -> Result<(TopicId, Broker), Error> {
        let resolved = self.lock();
        match resolved.owners.get(partition as usize) {
            Some(owner) => Ok((resolved.id, owner.clone())),
            None => Err(Fault::new(
                Reason::PartitionNotFound,
                format!(
                    "topic {} has {} partitions, no partition {partition}",
                    self.name,
                    resolved.owners.len()
                ),
            )
            .into()),
        }
    }

    /// Leader epoch of each partition, as last resolved; 0: not known.
    pub(crate) fn leader_epochs(&self) -> Vec<u32> {
        self.lock().leader_epochs.clone()
    }

    /// Takes a server's word for where the partition is now.
    pub(crate) fn moved(&self, partition: u32, owner: Broker) {
        if let Some(slot) = self.lock().owners.get_mut(partition as usize) {
            *slot = owner;
        }
    }

    /// Asks again. Never creates: a producer that lives on must not bring a deleted topic back.
    pub(crate) async fn refresh(&self) -> Result<(), Error> {
        let resolved = self.core.resolve_one(&self.name, false).await?;
        *self.lock() = resolved;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Resolved> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
