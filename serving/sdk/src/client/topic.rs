//! Where a topic's partitions live: the last answer of a look-up, asked again after a failure.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

/// Look-ups that say nothing new for so long, though what they say fails, are asked of another broker: longer than it takes until a
/// broker that died has a successor.
const VAIN_MAX: Duration = Duration::from_secs(6);
/// Failures that are further apart have nothing to do with each other.
const VAIN_GAP: Duration = Duration::from_secs(10);

impl Core {
    /// Resolves names; one answer each, in order, and who answered. A name's own fault is in its answer.
    pub(crate) async fn resolve(
        &self,
        topics: Vec<String>,
        auto_create: bool,
    ) -> Result<(Vec<v1::ResolvedTopic>, Broker), Error> {
        let asked = topics.len();
        let (answer, from) = self
            .call_any(Repeat::Always, |channel| {
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
        self.learn_brokers(&answer.brokers);
        Ok((answer.topics, from))
    }

    /// Resolves one name, trying again while its fault is retriable, at most for the request time-out.
    async fn resolve_one(
        &self,
        name: &TopicName,
        auto_create: bool,
    ) -> Result<(Resolved, Broker), Error> {
        let deadline = Instant::now() + self.request_timeout;
        let mut rng = self.child_rng();
        let mut backoff = Backoff::new();
        loop {
            let names = vec![name.to_string()];
            let (mut answers, from) = self.resolve(names, auto_create).await?;
            let answer = answers.pop().expect("resolve answers one per name");
            let Some(fault) = answer.fault else {
                return Ok((self.read_answer(answer)?, from));
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
            let broker = match owner.endpoint.as_str() {
                "" => self.brokers[0].clone(),
                endpoint => Broker::parse(endpoint)?,
            };
            *slot = Some(Redirect {
                broker,
                leader_epoch: owner.leader_epoch,
                revision: owner.revision,
            });
        }
        let owners: Option<Vec<_>> = owners.into_iter().collect();
        let owners = owners.ok_or_else(|| wrong("the same partition twice"))?;
        Ok(Resolved { id, owners })
    }
}

/// Where a broker says that a partition is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redirect {
    broker: Broker,
    /// As the answering broker knows it; 0: nobody serves it yet.
    leader_epoch: u32,
    /// Of metadata; 0: not said.
    revision: u64,
}

impl Redirect {
    /// `None` where no broker is named.
    pub(crate) fn from_wire(owner: &v1::PartitionOwner) -> Option<Self> {
        Some(Self {
            broker: Broker::parse(&owner.endpoint).ok()?,
            leader_epoch: owner.leader_epoch,
            revision: owner.revision,
        })
    }

    /// As a refusal names it.
    pub(crate) fn from_fault(fault: &Fault) -> Option<Self> {
        let detail = |name| fault.details.get(name);
        Some(Self {
            broker: Broker::parse(detail("endpoint")?).ok()?,
            leader_epoch: detail("leader_epoch")?.parse().ok()?,
            revision: detail("revision")?.parse().ok()?,
        })
    }

    /// The word of a broker that knows less than is known here: of an epoch that is over, or, where nobody serves the partition as far
    /// as it knows, of an earlier moment.
    fn is_older_than(&self, known: &Self) -> bool {
        match self.leader_epoch {
            0 => self.revision < known.revision,
            epoch => epoch < known.leader_epoch,
        }
    }

    /// It says something new.
    fn is_news_to(&self, known: &Self) -> bool {
        let newer = match self.leader_epoch {
            0 => self.revision > known.revision,
            epoch => (epoch, self.revision) > (known.leader_epoch, known.revision),
        };
        newer && self.broker != known.broker
    }
}

#[derive(Clone)]
struct Resolved {
    id: TopicId,
    /// By partition index.
    owners: Vec<Redirect>,
}

impl Resolved {
    /// Takes a newer look-up, but for words that are older than what is known. False: it says what was known.
    fn learn(&mut self, mut newer: Self) -> bool {
        if newer.id == self.id {
            for (said, known) in newer.owners.iter_mut().zip(&self.owners) {
                if said.is_older_than(known) {
                    said.clone_from(known);
                }
            }
        }
        let place = |of: &Redirect| (of.broker.clone(), of.leader_epoch);
        let (before, now) = (self.owners.iter(), newer.owners.iter());
        let news = newer.id != self.id || !before.map(place).eq(now.map(place));
        *self = newer;
        news
    }
}

/// Look-ups that were asked after failures, one after the other, and said nothing new: the first and the last of them.
#[derive(Debug, Default)]
struct Vain(Option<(Instant, Instant)>);

impl Vain {
    /// One more was asked. True: another broker is to be asked next.
    fn ask_another(&mut self, news: bool, now: Instant) -> bool {
        let earlier = self.0.filter(|(_, last)| now - *last < VAIN_GAP);
        let began = earlier.map_or(now, |(began, _)| began);
        let over = !news && now - began >= VAIN_MAX;
        self.0 = (!news && !over).then_some((began, now));
        over
    }
}

/// A topic as last resolved.
pub(crate) struct Topic {
    core: Arc<Core>,
    pub(crate) name: TopicName,
    resolved: Mutex<Resolved>,
    vain: Mutex<Vain>,
}

impl Topic {
    /// Resolves `name` for the first time.
    pub(crate) async fn open(
        core: Arc<Core>,
        name: &str,
        auto_create: bool,
    ) -> Result<Self, Error> {
        let name: TopicName = name.parse()?;
        let (resolved, _) = core.resolve_one(&name, auto_create).await?;
        Ok(Self {
            core,
            name,
            resolved: Mutex::new(resolved),
            vain: Mutex::default(),
        })
    }

    pub(crate) fn partitions(&self) -> u32 {
        self.lock().owners.len() as u32
    }

    /// Identity of the topic and owner of the partition, as last resolved.
    pub(crate) fn owner(&self, partition: u32) -> Result<(TopicId, Broker), Error> {
        let resolved = self.lock();
        match resolved.owners.get(partition as usize) {
            Some(owner) => Ok((resolved.id, owner.broker.clone())),
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
        let resolved = self.lock();
        resolved.owners.iter().map(|of| of.leader_epoch).collect()
    }

    /// Takes a server's word for where the partition is now. False: it says nothing new, so that the look-up is to be asked.
    pub(crate) fn moved(&self, partition: u32, to: Redirect) -> bool {
        let mut resolved = self.lock();
        let slot = resolved.owners.get_mut(partition as usize);
        let newer = slot.filter(|known| to.is_news_to(known));
        newer.map(|known| *known = to).is_some()
    }

    /// Asks again. Never creates: a producer that lives on must not bring a deleted topic back.
    ///
    /// A broker that is cut from metadata names itself for ever, so what it says in vain is asked of another one.
    pub(crate) async fn refresh(&self) -> Result<(), Error> {
        let (resolved, from) = self.core.resolve_one(&self.name, false).await?;
        let news = self.lock().learn(resolved);
        let mut vain = self.vain.lock().unwrap_or_else(PoisonError::into_inner);
        if vain.ask_another(news, Instant::now()) {
            self.core.prefer_another(&from);
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Resolved> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16, leader_epoch: u32, revision: u64) -> Redirect {
        Redirect {
            broker: Broker::parse(&format!("h:{port}")).unwrap(),
            leader_epoch,
            revision,
        }
    }

    #[test]
    fn redirect_is_followed_only_where_it_knows_more() {
        let known = at(1, 3, 100);
        for newer in [at(2, 4, 90), at(2, 3, 101), at(2, 0, 101)] {
            assert!(newer.is_news_to(&known) && !newer.is_older_than(&known));
        }
        for old in [at(2, 2, 200), at(2, 0, 99)] {
            assert!(!old.is_news_to(&known) && old.is_older_than(&known));
        }
        // The same again, and the broker that was just asked: no reason to hurry.
        for same in [at(2, 3, 100), at(1, 4, 200), at(2, 0, 100)] {
            assert!(!same.is_news_to(&known));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn look_ups_in_vain_are_asked_of_another_broker_once_a_successor_would_be_known() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut vain = Vain::default();
        let asked = |vain: &mut Vain, news, ms| vain.ask_another(news, at(ms));
        assert!(!asked(&mut vain, false, 0) && !asked(&mut vain, false, 5_900));
        assert!(asked(&mut vain, false, 6_000));
        // The next one has as long.
        assert!(!asked(&mut vain, false, 6_100) && !asked(&mut vain, false, 12_000));
        // News, or a long time without a failure, begin anew.
        assert!(!asked(&mut vain, true, 12_050) && !asked(&mut vain, false, 13_000));
        assert!(!asked(&mut vain, false, 23_000) && !asked(&mut vain, false, 28_900));
        assert!(asked(&mut vain, false, 29_000));
    }

    #[test]
    fn look_up_of_a_broker_that_lags_changes_nothing_of_what_is_known() {
        let id = TopicId(uuid::Uuid::from_u128(1));
        let owners = |owners| Resolved { id, owners };
        let mut resolved = owners(vec![at(1, 3, 100), at(1, 3, 100)]);
        resolved.learn(owners(vec![at(2, 2, 90), at(2, 4, 120), at(2, 0, 90)]));
        assert_eq!(
            resolved.owners,
            [at(1, 3, 100), at(2, 4, 120), at(2, 0, 90)]
        );
        let other = Resolved {
            id: TopicId(uuid::Uuid::from_u128(2)),
            owners: vec![at(2, 1, 1)],
        };
        resolved.learn(other);
        assert_eq!(resolved.owners, [at(2, 1, 1)], "another topic of the name");
    }
}
