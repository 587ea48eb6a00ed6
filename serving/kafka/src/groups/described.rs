//! DescribeGroups and ConsumerGroupDescribe.

use std::sync::Arc;

use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup as NewerGroup, Member, TopicPartitions,
};
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DescribeGroupsRequest,
    DescribeGroupsResponse, GroupId,
};
use serving_groups::{
    Answer, Description, GroupError, GroupState, GroupType, MemberDescription, Partitions,
    Request as Ask,
};

use super::answers::{ask, name, of_error, told, unexpected};
use super::newer::by_topic;
use crate::error_code::{self, Code};
use crate::link::Link;
use crate::names;
use crate::requests::{NO_OPERATIONS, Outcome, Rows, once};
use crate::wire::{Broken, Request, text};

/// First version in which a group that is not there is an error; before it was called dead.
const NOT_FOUND_FROM: i16 = 6;
/// Kinds of members.
const CLASSIC: i8 = 0;
const NEWER: i8 = 1;

pub(super) fn state_name(state: GroupState) -> &'static str {
    match state {
        GroupState::Empty => "Empty",
        GroupState::PreparingRebalance => "PreparingRebalance",
        GroupState::CompletingRebalance => "CompletingRebalance",
        GroupState::Assigning => "Assigning",
        GroupState::Reconciling => "Reconciling",
        GroupState::Stable => "Stable",
    }
}

pub(super) fn type_name(kind: GroupType) -> &'static str {
    match kind {
        GroupType::Classic => "Classic",
        GroupType::Consumer => "Consumer",
    }
}

async fn look(link: &Link, group: &GroupId, rows: &mut Rows<'_>) -> Result<Description, Code> {
    let group = name(&group.0);
    let description = match ask(link, Ask::Describe { group }).await? {
        Answer::Described(found) => found.map_err(|error| of_error(&error))?,
        other => return Err(unexpected(&other)),
    };
    let counted = rows.add(1 + description.members.len()).await;
    counted.map_err(|fault| error_code::of_request(fault.reason))?;
    Ok(description)
}

/// Classic groups; one of the newer protocol is not among them.
pub(crate) async fn describe(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: DescribeGroupsRequest = request.decode()?;
    let missing = of_error(&GroupError::GroupNotFound);
    let mut rows = Rows::new(link);
    let mut groups = Vec::with_capacity(message.groups.len());
    for id in once(message.groups, Clone::clone) {
        let found = look(link, &id, &mut rows).await.and_then(|found| {
            let classic = found.listing.kind == GroupType::Classic;
            classic.then_some(found).ok_or(missing)
        });
        let row = DescribedGroup::default()
            .with_group_id(id)
            .with_authorized_operations(NO_OPERATIONS);
        groups.push(match found {
            Ok(found) => classic(row, found),
            Err(code) if code == missing && request.version < NOT_FOUND_FROM => {
                row.with_group_state(text("Dead"))
            }
            Err(code) => row.with_error_code(code).with_group_state(text("Dead")),
        });
    }
    let code = error_code::first_error(groups.iter().map(|row| row.error_code));
    let response = DescribeGroupsResponse::default().with_groups(groups);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

fn classic(row: DescribedGroup, found: Description) -> DescribedGroup {
    let members = found.members.into_iter().map(|member| {
        DescribedGroupMember::default()
            .with_member_id(told(&member.member))
            .with_group_instance_id(member.instance.as_ref().map(told))
            .with_client_id(told(&member.client.id))
            .with_client_host(text(format!("/{}", member.client.host)))
            .with_member_metadata(member.metadata)
            .with_member_assignment(member.assignment)
    });
    row.with_group_state(text(state_name(found.listing.state)))
        .with_protocol_type(told(&found.listing.protocol_type))
        .with_protocol_data(told(&found.protocol))
        .with_members(members.collect())
}

/// Groups of the newer protocol; a classic one is not among them.
pub(crate) async fn describe_newer(
    link: &Arc<Link>,
    mut request: Request,
) -> Result<Outcome, Broken> {
    let message: ConsumerGroupDescribeRequest = request.decode()?;
    let mut rows = Rows::new(link);
    let mut groups = Vec::with_capacity(message.group_ids.len());
    for id in once(message.group_ids, Clone::clone) {
        let found = look(link, &id, &mut rows).await.and_then(|found| {
            let newer = found.listing.kind == GroupType::Consumer;
            newer.then_some(found).ok_or(error_code::GROUP_ID_NOT_FOUND)
        });
        let row = NewerGroup::default()
            .with_group_id(id)
            .with_authorized_operations(NO_OPERATIONS);
        groups.push(match found {
            Ok(found) => newer(link, row, found).await,
            Err(code) => row.with_error_code(code).with_group_state(text("Dead")),
        });
    }
    let code = error_code::first_error(groups.iter().map(|row| row.error_code));
    let response = ConsumerGroupDescribeResponse::default().with_groups(groups);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

async fn newer(link: &Link, row: NewerGroup, found: Description) -> NewerGroup {
    let mut members = Vec::with_capacity(found.members.len());
    for member in found.members {
        members.push(newer_member(link, member).await);
    }
    row.with_group_state(text(state_name(found.listing.state)))
        .with_group_epoch(found.epoch)
        .with_assignment_epoch(found.target_epoch)
        .with_assignor_name(told(&found.protocol))
        .with_members(members)
}

async fn newer_member(link: &Link, member: MemberDescription) -> Member {
    let topics = member.topics.iter().map(|topic| told(topic).into());
    Member::default()
        .with_member_id(told(&member.member))
        .with_instance_id(member.instance.as_ref().map(told))
        .with_rack_id(member.rack.as_ref().map(told))
        .with_member_epoch(member.epoch)
        .with_client_id(told(&member.client.id))
        .with_client_host(text(format!("/{}", member.client.host)))
        .with_subscribed_topic_names(topics.collect())
        .with_subscribed_topic_regex(member.pattern.as_ref().map(told))
        .with_assignment(assignment(link, &member.assigned).await)
        .with_target_assignment(assignment(link, &member.target).await)
        .with_member_type(if member.classic { CLASSIC } else { NEWER })
}

async fn assignment(link: &Link, partitions: &Partitions) -> Assignment {
    let mut topics = Vec::new();
    for (id, indexes) in by_topic(partitions) {
        // One that is deleted is on its way out of the group.
        if let Ok(topic) = link.front().topics().find(id).await {
            let row = TopicPartitions::default()
                .with_topic_id(id.0)
                .with_topic_name(names::tell(&topic.name))
                .with_partitions(indexes);
            topics.push(row);
        }
    }
    Assignment::default().with_topic_partitions(topics)
}
