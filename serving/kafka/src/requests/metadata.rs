//! Metadata and DescribeTopicPartitions: which topics there are, and who serves their partitions.
//!
//! Every partition has a leader, this broker or another one, be it one that has yet to open it (serving.md D2.6): clients take a missing leader for an error. Only
//! while metadata do not answer a closed partition has none, as nobody can open it then.

use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, OwnerEpoch};
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, MetadataRequest,
    MetadataResponse, TopicName,
};
use serving_broker::{Action, Resource, Topic};
use uuid::Uuid;

use super::about::NO_OPERATIONS;
use super::all_topics::{active_topics, all_topics};
use super::rows::{Rows, once};
use super::stage::Outcome;
use crate::brokers::Nodes;
use crate::error_code;
use crate::link::Link;
use crate::names;
use crate::wire::{Asked, Broken, Request, text};

/// First version in which a name may be null, and the first with an error of the whole.
const NULL_NAMES_FROM: i16 = 12;
pub(super) const ERROR_FROM: i16 = 13;
/// Topics of one request that are made where they are missing; the others wait for the next one.
const CREATED_MAX: usize = 1000;
/// Partitions described in one answer at most; a cursor leads on.
const DESCRIBED_MAX: usize = 2000;

/// Answers Metadata: a row for each topic asked for, each once.
pub(super) async fn metadata(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: MetadataRequest = request.decode()?;
    let version = request.version;
    let (all, named) = match message.topics {
        None => (true, Vec::new()),
        Some(none) if none.is_empty() && version == 0 => (true, none),
        Some(named) => (false, named),
    };
    if all {
        return Ok(all_of_them(link, request.asked()).await);
    }
    let nodes = link.nodes().await;
    let mut rows = Rows::new(link);
    let named = once(named, |topic| (topic.name.clone(), topic.topic_id));
    let mut topics = Vec::with_capacity(named.len());
    for (number, wanted) in named.into_iter().enumerate() {
        let create = message.allow_auto_topic_creation && number < CREATED_MAX;
        topics.push(one((link, &nodes), version, (wanted, create), &mut rows).await);
    }
    let code = error_code::first_error(topics.iter().map(|row| row.error_code));
    let response = without_topics(link, &nodes).with_topics(topics);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

/// The answer for all topics; one that cannot be given whole is not given in part.
async fn all_of_them(link: &Arc<Link>, asked: Asked) -> Outcome {
    let nodes = link.nodes().await;
    let fault = match all_topics(link, &nodes, asked.version).await {
        Ok(topics) => {
            let answer = topics.answer(asked, &without_topics(link, &nodes));
            let unsaid = || Outcome::Close("metadata cannot be said in this version".to_owned());
            return answer.map_or_else(unsaid, Outcome::Answer);
        }
        Err(fault) => fault,
    };
    link.front().metrics().fault(fault.reason);
    if asked.version < ERROR_FROM {
        return Outcome::Close(fault.to_string());
    }
    let code = error_code::of_request(fault.reason);
    let response = without_topics(link, &nodes).with_error_code(code);
    Outcome::message(asked, &response).with_code(code)
}

/// What stands around the topics.
fn without_topics(link: &Link, nodes: &Nodes) -> MetadataResponse {
    let brokers = nodes.all().map(|node| {
        MetadataResponseBroker::default()
            .with_node_id(node.id.into())
            .with_host(text(node.host.clone()))
            .with_port(i32::from(node.port))
    });
    MetadataResponse::default()
        .with_brokers(brokers.collect())
        .with_cluster_id(Some(text(link.served.cluster_id.clone())))
        .with_controller_id(link.served.node_id.into())
        .with_cluster_authorized_operations(NO_OPERATIONS)
}

/// One topic, as it was asked for.
async fn one(
    (link, nodes): (&Link, &Nodes),
    version: i16,
    (wanted, create): (MetadataRequestTopic, bool),
    rows: &mut Rows<'_>,
) -> MetadataResponseTopic {
    let id = wanted.topic_id;
    let found = match find(link, wanted.name.as_ref(), id, create).await {
        Ok(topic) => {
            let counted = rows.add(1 + topic.partitions as usize).await;
            counted.map(|()| topic)
        }
        Err(fault) => Err(fault),
    };
    match found {
        Ok(topic) => {
            let name = wanted.name.filter(|_| id.is_nil());
            served_topic((link, nodes), &topic, name).await
        }
        Err(fault) => {
            link.front().metrics().fault(fault.reason);
            let code = error_code::of_request(fault.reason);
            let code = error_code::by_id(id, fault.reason, code);
            let name = wanted
                .name
                .or_else(|| (version < NULL_NAMES_FROM).then(TopicName::default));
            MetadataResponseTopic::default()
                .with_error_code(code)
                .with_name(name)
                .with_topic_id(id)
                .with_topic_authorized_operations(NO_OPERATIONS)
        }
    }
}

async fn find(
    link: &Link,
    name: Option<&TopicName>,
    id: Uuid,
    create: bool,
) -> Result<Topic, Fault> {
    let front = link.front();
    let Some(name) = name.filter(|_| id.is_nil()) else {
        let id = hulse_proto::id::TopicId(id);
        front.allow(Action::Describe, Resource::TopicId(id))?;
        return front.topics().find(id).await;
    };
    let name = names::parse(name)?;
    let action = match create {
        true => Action::Create,
        false => Action::Describe,
    };
    front.allow(action, Resource::Topic(&name))?;
    front.topics().resolve(&name, create).await
}

/// The owner and the epoch of each partition; `None`: it is closed and metadata, without which it cannot open, do not answer.
async fn owners(link: &Link, topic: &Topic) -> Vec<Option<(Option<NodeName>, OwnerEpoch)>> {
    let partitions = link.front().partitions();
    match partitions.owners_of(topic).await {
        Ok(owners) => owners.into_iter().map(Some).collect(),
        Err(_) => topic
            .partition_ids()
            .map(|id| Some((None, partitions.opened(id)?.leader_epoch())))
            .collect(),
    }
}

/// Who leads a partition, as the wire has it.
struct Leader {
    code: i16,
    id: i32,
    epoch: i32,
}

impl Leader {
    fn of(nodes: &Nodes, owner: Option<(Option<NodeName>, OwnerEpoch)>) -> Self {
        let found = owner.and_then(|(owner, epoch)| Some((nodes.id_of(owner.as_ref())?, epoch)));
        match found {
            Some((id, epoch)) => Self {
                code: error_code::NONE,
                id,
                epoch: epoch_number(epoch),
            },
            None => Self {
                code: error_code::of_request(Reason::PartitionLoading),
                id: -1,
                epoch: -1,
            },
        }
    }

    /// Clients want replicas, of which they read nothing else; without a leader it is this broker.
    fn replicas(&self, link: &Link) -> Vec<BrokerId> {
        let id = if self.id < 0 {
            link.served.node_id
        } else {
            self.id
        };
        vec![id.into()]
    }
}

/// An epoch as the wire has it.
pub(crate) fn epoch_number(epoch: OwnerEpoch) -> i32 {
    i32::try_from(epoch.0).unwrap_or(i32::MAX)
}

/// A topic as it is served. It is called as the client called it, which finds it by that; else by its short name.
pub(super) async fn served_topic(
    (link, nodes): (&Link, &Nodes),
    topic: &Topic,
    asked: Option<TopicName>,
) -> MetadataResponseTopic {
    let owners = owners(link, topic).await;
    let partitions = owners.into_iter().enumerate().map(|(index, owner)| {
        let leader = Leader::of(nodes, owner);
        MetadataResponsePartition::default()
            .with_error_code(leader.code)
            .with_partition_index(index as i32)
            .with_leader_id(leader.id.into())
            .with_leader_epoch(leader.epoch)
            .with_replica_nodes(leader.replicas(link))
            .with_isr_nodes(leader.replicas(link))
    });
    MetadataResponseTopic::default()
        .with_name(asked.or_else(|| Some(names::tell(&topic.name))))
        .with_topic_id(topic.id.0)
        .with_partitions(partitions.collect())
        .with_topic_authorized_operations(NO_OPERATIONS)
}

/// Answers DescribeTopicPartitions: the same in pages.
pub(super) async fn topic_partitions(
    link: &Arc<Link>,
    mut request: Request,
) -> Result<Outcome, Broken> {
    let message: DescribeTopicPartitionsRequest = request.decode()?;
    let mut names: Vec<TopicName> = message.topics.into_iter().map(|topic| topic.name).collect();
    let mut rows = Rows::new(link);
    if names.is_empty() {
        match active_topics(link, &mut rows).await {
            Ok(topics) => names.extend(topics.iter().map(|topic| names::tell(&topic.name))),
            Err(fault) => return Ok(Outcome::Close(fault.to_string())),
        }
    }
    names.sort();
    names.dedup();
    let mut room = usize::try_from(message.response_partition_limit)
        .unwrap_or(0)
        .clamp(1, DESCRIBED_MAX);
    let mut begin = 0;
    if let Some(cursor) = message.cursor {
        names.retain(|name| *name >= cursor.topic_name);
        if names.first() == Some(&cursor.topic_name) {
            begin = usize::try_from(cursor.partition_index).unwrap_or(0);
        }
    }
    let nodes = link.nodes().await;
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names {
        if room == 0 {
            response.next_cursor = Some(Cursor::default().with_topic_name(name));
            break;
        }
        let (topic, next) = described((link, &nodes), &name, begin, &mut room, &mut rows).await;
        response.topics.push(topic);
        begin = 0;
        if let Some(next) = next {
            let cursor = Cursor::default().with_topic_name(name);
            response.next_cursor = Some(cursor.with_partition_index(next as i32));
            break;
        }
    }
    let code = error_code::first_error(response.topics.iter().map(|row| row.error_code));
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

/// A topic from partition `begin` on, as far as there is room, and the partition where it goes on.
async fn described(
    (link, nodes): (&Link, &Nodes),
    name: &TopicName,
    begin: usize,
    room: &mut usize,
    rows: &mut Rows<'_>,
) -> (DescribeTopicPartitionsResponseTopic, Option<usize>) {
    let response = DescribeTopicPartitionsResponseTopic::default()
        .with_topic_authorized_operations(NO_OPERATIONS);
    let found = match find(link, Some(name), Uuid::nil(), false).await {
        Ok(topic) => {
            let counted = rows.add((topic.partitions as usize).min(*room)).await;
            counted.map(|()| topic)
        }
        Err(fault) => Err(fault),
    };
    let topic = match found {
        Ok(topic) => topic,
        Err(fault) => {
            link.front().metrics().fault(fault.reason);
            let code = error_code::of_request(fault.reason);
            let response = response.with_error_code(code).with_name(Some(name.clone()));
            return (response, None);
        }
    };
    let owners = owners(link, &topic).await;
    let count = owners.len();
    let end = count.min(begin.saturating_add(*room));
    let partitions = owners.into_iter().enumerate().take(end).skip(begin);
    let partitions = partitions.map(|(index, owner)| {
        let leader = Leader::of(nodes, owner);
        DescribeTopicPartitionsResponsePartition::default()
            .with_error_code(leader.code)
            .with_partition_index(index as i32)
            .with_leader_id(leader.id.into())
            .with_leader_epoch(leader.epoch)
            .with_replica_nodes(leader.replicas(link))
            .with_isr_nodes(leader.replicas(link))
            // The schema allows null; the Java client does not.
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
    });
    let response = response
        .with_name(Some(name.clone()))
        .with_topic_id(topic.id.0)
        .with_partitions(partitions.collect());
    *room -= response.partitions.len();
    (response, (end < count).then_some(end))
}
