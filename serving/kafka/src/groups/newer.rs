//! ConsumerGroupHeartbeat (KIP-848).

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::id::{PartitionId, TopicId};
use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use serving_groups::{Answer, MemberBeat, Partitions, Request as Ask};

use super::answers::{ask, client, name, of_error, optional, told, unexpected};
use crate::error_code;
use crate::link::Link;
use crate::requests::Outcome;
use crate::wire::{Broken, Request, text};

/// A heartbeat of a member that the coordinator gives partitions to.
pub(crate) async fn member_beat(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: ConsumerGroupHeartbeatRequest = request.decode()?;
    let topics = message.subscribed_topic_names.as_ref();
    let owned = message.topic_partitions.as_ref().map(|topics| {
        let partitions = topics.iter().flat_map(|topic| {
            let id = TopicId(topic.topic_id);
            topic.partitions.iter().filter_map(move |index| {
                let index = u32::try_from(*index).ok()?;
                Some(PartitionId { topic: id, index })
            })
        });
        partitions.collect::<Partitions>()
    });
    let beat = MemberBeat {
        group: name(&message.group_id.0),
        member: name(&message.member_id),
        epoch: message.member_epoch,
        instance: optional(message.instance_id.as_ref()),
        rack: optional(message.rack_id.as_ref()),
        client: client(link, request.client()),
        rebalance_ms: u32::try_from(message.rebalance_timeout_ms).ok(),
        topics: topics.map(|topics| topics.iter().map(|topic| name(&topic.0)).collect()),
        pattern: optional(message.subscribed_topic_regex.as_ref()),
        assignor: optional(message.server_assignor.as_ref()),
        owned,
    };
    let response =
        ConsumerGroupHeartbeatResponse::default().with_member_id(Some(message.member_id));
    let (code, why, response) = match ask(link, Ask::Member(Box::new(beat))).await {
        Ok(Answer::Member(Ok(answer))) => {
            let response = response
                .with_member_id(Some(told(&answer.member)))
                .with_member_epoch(answer.epoch)
                .with_heartbeat_interval_ms(i32::try_from(answer.heartbeat_ms).unwrap_or(i32::MAX))
                .with_assignment(answer.assigned.as_ref().map(assignment));
            (error_code::NONE, None, response)
        }
        Ok(Answer::Member(Err(error))) => {
            let why = text(error.to_string());
            (of_error(&error), Some(why), response)
        }
        Ok(other) => (unexpected(&other), None, response),
        Err(code) => (code, None, response),
    };
    let response = response.with_error_code(code).with_error_message(why);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

fn assignment(partitions: &Partitions) -> Assignment {
    let topics = by_topic(partitions).into_iter().map(|(topic, indexes)| {
        TopicPartitions::default()
            .with_topic_id(topic.0)
            .with_partitions(indexes)
    });
    Assignment::default().with_topic_partitions(topics.collect())
}

/// Partitions by their topics, in order.
pub(super) fn by_topic(partitions: &Partitions) -> BTreeMap<TopicId, Vec<i32>> {
    let mut topics: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        let index = i32::try_from(partition.index).unwrap_or(i32::MAX);
        topics.entry(partition.topic).or_default().push(index);
    }
    topics
}
