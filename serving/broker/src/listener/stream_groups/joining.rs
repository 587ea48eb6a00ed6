//! The first item of a stream: who joins which group, and whether it may.

use std::collections::BTreeSet;
use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::TopicName;
use hulse_proto::wire::v1::{self, group_down, group_up};
use serving_groups::{Answer, Client, GroupError, MemberAnswer, MemberBeat, Request, limits};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::placing::Placing;
use super::session::{Member, Session};
use super::words::{fault_of, optional, partitions};
use crate::authorise::{Action, Resource};
use crate::groups::{called, group_of};
use crate::listener::front::Front;
use crate::listener::wire::{check_hello, first_item, invalid, topic_name};
use crate::subscriptions::{StartPoint, SubscriptionName, namespace_of};

/// Where a group of a short name is that names no topic.
const DEFAULT_NAMESPACE: &str = "public/default";

/// A stream that has said nothing yet.
pub(super) struct Joining {
    pub(super) front: Arc<Front>,
    /// From where it comes.
    pub(super) host: Arc<str>,
    pub(super) up: Streaming<v1::GroupUp>,
    pub(super) down: mpsc::Sender<Result<v1::GroupDown, Status>>,
}

/// What a member said of itself, in the coordinator's words.
struct Said {
    name: SubscriptionName,
    beat: MemberBeat,
    start: StartPoint,
}

impl Joining {
    /// Until the member leaves, is fenced, or its stream ends.
    ///
    /// # Errors
    /// The fault that the stream is to end with.
    pub(super) async fn run(mut self) -> Result<(), Fault> {
        let first = first_item(&mut self.up, &self.front.drain).await?;
        let join = match first {
            None => return Ok(()),
            Some(v1::GroupUp {
                item: Some(group_up::Item::Join(join)),
            }) => join,
            Some(_) => return Err(invalid("the first item of a member must be JoinGroup")),
        };
        let said = self.read(join)?;
        // Before the first heartbeat, so that no change is missed.
        let (group, member) = (said.beat.group.clone(), said.beat.member.clone());
        let watch = self.front.watch_group(&group, &member).await?;
        let comes_back = said.beat.epoch != 0;
        let owned = said.beat.owned.clone().unwrap_or_default();
        let answer = self.ask(said.beat.clone()).await?;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if comes_back && is_out(&error) => return self.fenced(&error).await,
            Err(error) => return Err(fault_of(&error)),
        };
        let placing = Placing {
            front: self.front.clone(),
            group,
            member,
            start: said.start,
            name: said.name,
        };
        let member = Member {
            // Later heartbeats say only what changed.
            beat: MemberBeat {
                topics: None,
                pattern: None,
                assignor: None,
                rebalance_ms: None,
                owned: None,
                ..said.beat
            },
            placing,
            owned,
            watch,
        };
        self.joined(&answer).await;
        let streams = (self.up, self.down);
        Session::new(self.front, streams, member, answer)
            .run()
            .await
    }

    async fn ask(&mut self, beat: MemberBeat) -> Result<Result<MemberAnswer, GroupError>, Fault> {
        match self
            .front
            .ask_group(Request::Member(Box::new(beat)))
            .await?
        {
            Answer::Member(answer) => Ok(answer),
            _ => Err(Fault::new(
                Reason::Internal,
                "the coordinator answered something else",
            )),
        }
    }

    async fn joined(&mut self, answer: &MemberAnswer) {
        let config = &self.front.config;
        let joined = v1::GroupJoined {
            protocol_version: hulse_proto::limits::PROTOCOL_VERSION,
            broker: config.name.as_str().to_owned(),
            member_id: answer.member.to_string(),
            epoch: answer.epoch,
            heartbeat_ms: answer.heartbeat_ms,
            session_ms: config.groups.consumer_session_ms,
        };
        self.tell(group_down::Item::Joined(joined)).await;
    }

    async fn fenced(&mut self, error: &GroupError) -> Result<(), Fault> {
        let fault = fault_of(error);
        self.front.metrics.fault(fault.reason);
        let fenced = v1::GroupFenced {
            fault: Some(fault.to_wire()),
        };
        self.tell(group_down::Item::Fenced(fenced)).await;
        Ok(())
    }

    async fn tell(&mut self, item: group_down::Item) {
        // The queue is empty; a client that is gone hears nothing.
        let _ = self.down.send(Ok(v1::GroupDown { item: Some(item) })).await;
    }

    fn read(&self, join: v1::JoinGroup) -> Result<Said, Fault> {
        check_hello(&join.client_id, join.protocol_version)?;
        if join.epoch < 0 {
            return Err(invalid("a member that joins has epoch 0, or its last one"));
        }
        if join.member_id.is_empty() {
            return Err(invalid("member_id is empty; choose a UUID and keep it"));
        }
        if join.topics.len() > limits::SUBSCRIBED_TOPICS_MAX {
            let max = limits::SUBSCRIBED_TOPICS_MAX;
            return Err(invalid(format!("more than {max} topics")));
        }
        let topics: Vec<TopicName> = join
            .topics
            .iter()
            .map(|name| topic_name(name))
            .collect::<Result<_, _>>()?;
        if topics.is_empty() && join.pattern.is_empty() {
            return Err(invalid("the member names neither topics nor a pattern"));
        }
        let namespace = topics.first().map_or(DEFAULT_NAMESPACE, namespace_of);
        let name = SubscriptionName::parse(&join.group, namespace)?;
        for topic in &topics {
            self.front.allow(Action::Consume, Resource::Topic(topic))?;
        }
        self.front
            .allow(Action::Consume, Resource::Subscription(&name))?;
        let owned = partitions(&join.owned)?;
        let topics: BTreeSet<Arc<str>> = topics.iter().map(called).collect();
        let beat = MemberBeat {
            group: group_of(&name),
            member: join.member_id.into(),
            epoch: join.epoch,
            instance: optional(join.instance_id),
            rack: None,
            client: Client {
                id: join.client_id.into(),
                host: self.host.clone(),
            },
            rebalance_ms: Some(join.rebalance_ms),
            topics: Some(topics),
            pattern: optional(join.pattern),
            assignor: optional(join.assignor),
            owned: Some(owned),
        };
        Ok(Said {
            name,
            beat,
            start: StartPoint::from_wire(join.start.as_ref())?,
        })
    }
}

/// It is no member any more.
pub(super) fn is_out(error: &GroupError) -> bool {
    matches!(
        error,
        GroupError::UnknownMember | GroupError::FencedMemberEpoch | GroupError::FencedInstance
    )
}
