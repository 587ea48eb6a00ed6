//! Work that belongs to the owner of a partition, wherever it is asked for.
//!
//! A request about a whole topic or subscription may come to any broker. What it means for a partition is done by the partition's
//! owner: here, or by service Peers of another broker. A broker that is asked as a peer does the work or refuses it; it never hands it
//! on, so two brokers that disagree cannot send a request round in circles.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::id::{OwnerEpoch, PartitionId, TopicId};
use hulse_proto::limits::MESSAGE_BYTES_MAX;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::move_cursor_work::Goal;
use hulse_proto::wire::v1::partition_work::Work;
use hulse_proto::wire::v1::peers_client::PeersClient;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use super::effects::Rules;
use super::front::Front;
use super::wire::{invalid, partition};
use crate::authorise::{Action, Resource};
use crate::owners::{Place, owner_of};
use crate::subscriptions::{StartPoint, SubscriptionName};
use crate::{BrokerView, Topic};

/// How long a peer may take, opening the partition included.
const CALL_MAX: Duration = Duration::from_secs(20);
/// How long a peer may take to say what it has open: less than people's calls wait, who get the rest of the answer without it.
const DESCRIBE_MAX: Duration = Duration::from_secs(2);
/// Between two signs of life that are asked for on a connection, and how long one may take: a peer whose machine is gone closes nothing.
const ALIVE_EVERY: Duration = Duration::from_secs(5);
const ALIVE_MAX: Duration = Duration::from_secs(5);
/// How long a dial may take.
const DIAL_MAX: Duration = Duration::from_secs(3);
/// Times that a piece of work follows its partition.
const HOPS_MAX: u32 = 3;
/// Before each of them, times its number: the brokers hear of the same change.
const HOP_WAIT: Duration = Duration::from_millis(50);
/// Brokers whose connections are kept; the cluster has fewer.
const CHANNELS_MAX: usize = 1_000;

/// Connections to other brokers, each dialled at its first call.
#[derive(Default)]
pub(super) struct Peers {
    channels: Mutex<BTreeMap<String, Channel>>,
}

impl Peers {
    fn client(&self, endpoint: &str) -> Result<PeersClient<Channel>, Fault> {
        let mut channels = self
            .channels
            .lock()
            .expect("no code panics while it holds this lock");
        let channel = match channels.get(endpoint) {
            Some(channel) => channel.clone(),
            None => {
                let parsed = Endpoint::from_shared(format!("http://{endpoint}"));
                let channel = parsed
                    .map_err(|error| unreachable_peer(endpoint, &error))?
                    .connect_timeout(DIAL_MAX)
                    .http2_keep_alive_interval(ALIVE_EVERY)
                    .keep_alive_timeout(ALIVE_MAX)
                    .connect_lazy();
                if channels.len() < CHANNELS_MAX {
                    channels.insert(endpoint.to_owned(), channel.clone());
                }
                channel
            }
        };
        Ok(PeersClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX))
    }

    pub(super) async fn ask<T>(
        &self,
        endpoint: &str,
        patience: Duration,
        call: impl AsyncFnOnce(PeersClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<T, Fault> {
        let client = self.client(endpoint)?;
        match timeout(patience, call(client)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => {
                Err(
                    Fault::from_status(&status).unwrap_or_else(|| match never_connected(&status) {
                        true => unreachable_peer(endpoint, &status.message()),
                        false => silent_peer(endpoint, status.message()),
                    }),
                )
            }
            Err(_) => Err(silent_peer(endpoint, "it did not answer in time")),
        }
    }
}

fn unreachable_peer(endpoint: &str, why: &dyn std::fmt::Display) -> Fault {
    let words = format!("broker at {endpoint}, which this is for, cannot be asked: {why}; retry");
    Fault::new(Reason::PartitionLoading, words)
}

/// It may have done it.
fn silent_peer(endpoint: &str, why: &str) -> Fault {
    let words = format!(
        "broker at {endpoint}, which this is for, did not say whether it did what was asked: {why}; look, and retry"
    );
    Fault::new(Reason::StorageTimeout, words)
}

/// A refused dial stands in the chain of causes: nothing was sent.
fn never_connected(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A piece of work on a partition that is about no subscription.
pub(in crate::listener) fn work_on(id: PartitionId, work: Work) -> v1::PartitionWork {
    v1::PartitionWork {
        partition: Some(v1::Partition {
            topic_uuid: id.topic.to_bytes(),
            index: id.index,
        }),
        work: Some(work),
        ..Default::default()
    }
}

impl Front {
    /// Where else a partition is owned; `None`: here, as far as is known.
    pub(in crate::listener) fn elsewhere(&self, id: PartitionId) -> Option<Arc<str>> {
        let owners = &self.partitions.with.owners;
        if owners.alone() || self.partitions.opened(id).is_some() {
            return None;
        }
        match owners.place(id) {
            Place::Here => None,
            Place::There { endpoint, .. } => Some(endpoint),
        }
    }

    /// Has work done by the owner, following the partition where it moves meanwhile.
    ///
    /// # Errors
    /// Those of the work; `PARTITION_LOADING`: the owner cannot be asked.
    pub(in crate::listener) async fn anywhere(
        &self,
        work: v1::PartitionWork,
    ) -> Result<v1::PartitionDone, Fault> {
        let id = partition(work.partition.as_ref())?;
        let mut there = self.elsewhere(id);
        let mut hops = 0;
        loop {
            let asked = work.clone();
            let done = match &there {
                None => Box::pin(self.work_here(id, asked)).await,
                Some(endpoint) => self.ask_peer(endpoint, asked).await,
            };
            let fault = match done {
                Err(fault) if may_follow(&fault, &work) && hops < HOPS_MAX => fault,
                done => return done,
            };
            hops += 1;
            sleep(HOP_WAIT * hops).await;
            there = match owner_of(&fault) {
                Some(owner) if owner.endpoint == self.config.advertised => None,
                Some(owner) => Some(owner.endpoint.into()),
                None => self.elsewhere(id),
            };
        }
    }

    /// Asks one broker, once.
    pub(in crate::listener) async fn ask_peer(
        &self,
        endpoint: &str,
        work: v1::PartitionWork,
    ) -> Result<v1::PartitionDone, Fault> {
        let call = async |mut peer: PeersClient<Channel>| peer.r#do(work).await;
        self.peers.ask(endpoint, CALL_MAX, call).await
    }

    /// As [`Front::ask_peer`], and no longer than it lives: one that is frozen answers nothing, and its lease ends.
    pub(in crate::listener) async fn ask_living(
        &self,
        broker: &BrokerView,
        work: v1::PartitionWork,
    ) -> Result<v1::PartitionDone, Fault> {
        tokio::select! {
            biased;
            done = self.ask_peer(&broker.endpoint, work) => done,
            () = self.partitions.with.owners.is_over(broker) => {
                Err(silent_peer(&broker.endpoint, "it does not live any more"))
            }
        }
    }

    async fn work_here(
        &self,
        id: PartitionId,
        work: v1::PartitionWork,
    ) -> Result<v1::PartitionDone, Fault> {
        match work.work.clone() {
            None => Err(unnamed()),
            Some(Work::CheckOffset(offset)) => {
                let open = self.open(id).await?;
                open.check_offset(hulse_proto::id::Offset(offset)).await?;
                Ok(v1::PartitionDone::default())
            }
            Some(Work::Resolve(place)) => {
                let open = self.open(id).await?;
                let place = StartPoint::from_wire(Some(&place))?;
                let offset = self.resolve(&open, place).await?.0;
                Ok(v1::PartitionDone {
                    offset,
                    ..Default::default()
                })
            }
            Some(Work::Trim(point)) => {
                let log_start = self.trim_here(id, point.to).await?.0;
                Ok(v1::PartitionDone {
                    log_start,
                    ..Default::default()
                })
            }
            Some(Work::Effect(rules)) => {
                let effect = Some(self.effect_here(id, Rules::from_wire(&rules)).await?);
                Ok(v1::PartitionDone {
                    effect,
                    ..Default::default()
                })
            }
            Some(Work::Reopen(_)) => {
                let why = "a loss was accepted, the partition is opened again; retry";
                let reopened = Fault::new(Reason::PartitionLoading, why);
                self.partitions.close(id, reopened).await;
                Ok(v1::PartitionDone::default())
            }
            Some(Work::Letter(batch)) => {
                let open = self.open(id).await?;
                open.produce(batch).await?;
                Ok(v1::PartitionDone::default())
            }
            Some(Work::Prepare(_)) => {
                self.prepare(id).await?;
                Ok(v1::PartitionDone::default())
            }
            Some(Work::Take(epoch)) => served(self.take(id, OwnerEpoch(epoch)).await?),
            Some(Work::MoveTo(to)) => served(self.move_to(id, &to).await?),
            Some(_) => self.cursor_work(id, work).await,
        }
    }

    /// What the other brokers know of the partitions of a topic that they have open. Those that do not answer are left out.
    pub(in crate::listener) async fn described_elsewhere(
        &self,
        topic: &Topic,
    ) -> Vec<v1::PartitionDescription> {
        if self.partitions.with.owners.alone() {
            return Vec::new();
        }
        let mut endpoints = self.endpoints();
        endpoints.retain(|endpoint| *endpoint != self.config.advertised);
        let asked = endpoints.iter().map(|endpoint| {
            let request = v1::DescribeOpenRequest {
                topic_uuid: topic.id.to_bytes(),
            };
            let call = async |mut peer: PeersClient<Channel>| peer.describe_open(request).await;
            self.peers.ask(endpoint, DESCRIBE_MAX, call)
        });
        let answers = join_all(asked).await.into_iter();
        answers
            .flatten()
            .flat_map(|answer| answer.partition)
            .collect()
    }
}

/// The partition moved, and it does no harm to do the work where it is now: it was not done, or is the same when it is done again. What
/// was skipped twice would pass records over.
fn may_follow(fault: &Fault, work: &v1::PartitionWork) -> bool {
    let skips = matches!(
        &work.work,
        Some(Work::MoveCursor(moved)) if matches!(moved.goal, Some(Goal::Skip(_)))
    );
    fault.reason == Reason::PartitionMoved && (fault.fate == Fate::NotApplied || !skips)
}

fn served(epoch: OwnerEpoch) -> Result<v1::PartitionDone, Fault> {
    Ok(v1::PartitionDone {
        leader_epoch: epoch.0,
        ..Default::default()
    })
}

/// What somebody must be allowed for a piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Need {
    /// This on the topic.
    Topic(Action),
    /// This on the subscription.
    Subscription(Action, SubscriptionName),
}

impl Need {
    fn ask(&self, front: &Front, id: PartitionId) -> Result<(), Fault> {
        match self {
            Self::Topic(action) => front.allow(*action, Resource::TopicId(id.topic)),
            Self::Subscription(action, name) => front.allow(*action, Resource::Subscription(name)),
        }
    }
}

/// The same as the request needs from which the work follows at another broker, so that nobody gains by asking for the work itself.
/// What only brokers ask each other for is an operator's.
///
/// # Errors
/// `INVALID_REQUEST`: the work is not known here, or is about a cursor of no subscription.
fn needs(work: &v1::PartitionWork) -> Result<Vec<Need>, Fault> {
    let of_cursor = |action| {
        let full = SubscriptionName::parse(&work.subscription, "")?;
        Ok::<_, Fault>(Need::Subscription(action, full))
    };
    Ok(match &work.work {
        None => return Err(unnamed()),
        // Of a subscription that is there: whoever attaches has it made where it is missing.
        Some(Work::MakeCursor(_)) => {
            vec![of_cursor(Action::Consume)?, Need::Topic(Action::Consume)]
        }
        Some(Work::DescribeCursor(_)) => vec![of_cursor(Action::Describe)?],
        Some(Work::HoldCursor(_) | Work::MoveCursor(_) | Work::PauseCursor(_)) => {
            vec![of_cursor(Action::Alter)?]
        }
        Some(Work::RemoveCursor(_)) => vec![of_cursor(Action::Delete)?],
        Some(Work::CheckOffset(_) | Work::Resolve(_)) => vec![Need::Topic(Action::Consume)],
        Some(Work::Letter(_)) => vec![Need::Topic(Action::Produce)],
        Some(Work::Trim(_)) => vec![Need::Topic(Action::Delete)],
        Some(Work::Effect(_)) => vec![Need::Topic(Action::Alter)],
        Some(Work::Reopen(_) | Work::Prepare(_) | Work::Take(_) | Work::MoveTo(_)) => {
            vec![Need::Topic(Action::Operate)]
        }
    })
}

fn unnamed() -> Fault {
    invalid("the work is not named; is the other broker newer?")
}

/// Service Peers.
pub(super) struct PeersService(pub(super) Arc<Front>);

#[tonic::async_trait]
impl v1::peers_server::Peers for PeersService {
    async fn r#do(
        &self,
        request: Request<v1::PartitionWork>,
    ) -> Result<Response<v1::PartitionDone>, Status> {
        let work = request.into_inner();
        let done = async {
            let id = partition(work.partition.as_ref())?;
            for need in needs(&work)? {
                need.ask(&self.0, id)?;
            }
            // Boxed: a hand-over is many waits.
            Box::pin(self.0.work_here(id, work)).await
        };
        self.0.answer("Peers.Do", done).await
    }

    async fn drain(
        &self,
        request: Request<v1::DrainBrokerRequest>,
    ) -> Result<Response<v1::DrainBrokerResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            self.0.allow(Action::Operate, Resource::Cell)?;
            self.0.order_here(&request)
        };
        self.0.answer("Peers.Drain", work).await
    }

    async fn describe_open(
        &self,
        request: Request<v1::DescribeOpenRequest>,
    ) -> Result<Response<v1::DescribeOpenResponse>, Status> {
        let request = request.into_inner();
        let work = async {
            let id = TopicId::from_slice(&request.topic_uuid);
            let id = id.ok_or_else(|| invalid("topic_uuid is not 16 bytes"))?;
            self.0.allow(Action::Describe, Resource::TopicId(id))?;
            let topic = match self.0.topics.hint_of(id) {
                Some(topic) => topic,
                None => self.0.topics.find(id).await?,
            };
            let open = topic.partition_ids();
            let open = open.filter(|id| self.0.partitions.opened(*id).is_some());
            let partition = self.0.describe_partitions(open).await;
            Ok(v1::DescribeOpenResponse { partition })
        };
        self.0.answer("Peers.DescribeOpen", work).await
    }

    async fn describe_load(
        &self,
        request: Request<v1::DescribeLoadRequest>,
    ) -> Result<Response<v1::DescribeLoadResponse>, Status> {
        let each = request.into_inner().partitions;
        let work = async {
            self.0.allow(Action::Describe, Resource::Cell)?;
            Ok(self.0.load_told(each))
        };
        self.0.answer("Peers.DescribeLoad", work).await
    }

    async fn balance(
        &self,
        request: Request<v1::BalanceBrokersRequest>,
    ) -> Result<Response<v1::BalanceBrokersResponse>, Status> {
        let dry_run = request.into_inner().dry_run;
        let work = async {
            self.0.allow(Action::Operate, Resource::Cell)?;
            let report = Some(self.0.balance_here(dry_run).await?);
            Ok(v1::BalanceBrokersResponse { report })
        };
        self.0.answer("Peers.Balance", work).await
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::TopicId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn work_needs_what_the_request_needs_that_it_follows_from() {
        let id = PartitionId {
            topic: TopicId(Uuid::from_u128(7)),
            index: 0,
        };
        let name = SubscriptionName::parse("a/b/s", "").unwrap();
        let on = |action| Need::Subscription(action, name.clone());
        let of = |work, subscription: &str| {
            let subscription = subscription.to_owned();
            needs(&v1::PartitionWork {
                subscription,
                ..work_on(id, work)
            })
        };
        let moves = || Work::MoveCursor(v1::MoveCursorWork::default());
        for (work, needed) in [
            (
                Work::MakeCursor(true),
                vec![on(Action::Consume), Need::Topic(Action::Consume)],
            ),
            (Work::DescribeCursor(true), vec![on(Action::Describe)]),
            (Work::HoldCursor(true), vec![on(Action::Alter)]),
            (moves(), vec![on(Action::Alter)]),
            (Work::RemoveCursor(true), vec![on(Action::Delete)]),
        ] {
            assert_eq!(of(work.clone(), "a/b/s").unwrap(), needed);
            // A cursor of nobody is nobody's to touch.
            assert_eq!(of(work, "").unwrap_err().reason, Reason::InvalidName);
        }
        for (work, action) in [
            (Work::CheckOffset(3), Action::Consume),
            (Work::Resolve(v1::StartAt::default()), Action::Consume),
            (Work::Trim(v1::TrimPoint::default()), Action::Delete),
            (Work::Effect(v1::RulesWork::default()), Action::Alter),
            (Work::Reopen(true), Action::Operate),
            (Work::Prepare(true), Action::Operate),
            (Work::Take(1), Action::Operate),
            (Work::MoveTo("b".to_owned()), Action::Operate),
        ] {
            assert_eq!(of(work, "").unwrap(), [Need::Topic(action)]);
        }
    }

    #[test]
    fn skip_that_may_have_been_done_is_not_done_again_where_the_partition_went() {
        let id = PartitionId {
            topic: TopicId(Uuid::from_u128(7)),
            index: 0,
        };
        let moves = |goal| {
            let moved = v1::MoveCursorWork {
                goal: Some(goal),
                dry_run: false,
            };
            work_on(id, Work::MoveCursor(moved))
        };
        let refused = Fault::new(Reason::PartitionMoved, "moved");
        let mut unknown = refused.clone();
        unknown.fate = Fate::Unknown;
        assert!(may_follow(&refused, &moves(Goal::Skip(3))));
        assert!(!may_follow(&unknown, &moves(Goal::Skip(3))));
        assert!(may_follow(&unknown, &moves(Goal::Clear(true))));
        let other = Fault::new(Reason::StorageTimeout, "silent");
        assert!(!may_follow(&other, &moves(Goal::Clear(true))));
    }
}
