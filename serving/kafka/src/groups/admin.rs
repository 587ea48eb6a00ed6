//! ListGroups, DeleteGroups and OffsetDelete.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, ListGroupsRequest, ListGroupsResponse,
    OffsetDeleteRequest, OffsetDeleteResponse,
};
use kafka_protocol::protocol::StrBytes;
use serving_groups::{Answer, GroupType, Listing, Request as Ask};

use super::answers::{ask, name, of_error, of_fault, of_result, partition, told, unexpected};
use super::described::{state_name, type_name};
use crate::error_code;
use crate::link::{Link, OPENING_MAX};
use crate::requests::{Outcome, Rows, once};
use crate::wire::{Broken, Request, text};

/// The groups that this broker coordinates; clients ask every broker.
pub(crate) async fn list(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: ListGroupsRequest = request.decode()?;
    let mut rows = Rows::new(link);
    let mut groups = Vec::new();
    let code = match link.front().list_groups().await {
        Ok(all) => match rows.add(all.len()).await {
            Ok(()) => {
                let wanted = all.iter().filter(|group| is_wanted(&message, group));
                groups = wanted.map(listed).collect();
                error_code::NONE
            }
            Err(fault) => error_code::of_request(fault.reason),
        },
        Err(fault) => {
            link.front().metrics().fault(fault.reason);
            of_fault(&fault)
        }
    };
    let response = ListGroupsResponse::default()
        .with_error_code(code)
        .with_groups(groups);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

fn is_wanted(message: &ListGroupsRequest, group: &Listing) -> bool {
    let named = |wanted: &[StrBytes], found: &str| {
        let mut wanted = wanted.iter();
        wanted.len() == 0 || wanted.any(|name| name.eq_ignore_ascii_case(found))
    };
    named(&message.states_filter, state_name(group.state))
        && named(&message.types_filter, type_name(group.kind))
}

fn listed(group: &Listing) -> ListedGroup {
    ListedGroup::default()
        .with_group_id(told(&group.group).into())
        .with_protocol_type(match group.kind {
            GroupType::Consumer => text("consumer"),
            GroupType::Classic => told(&group.protocol_type),
        })
        .with_group_state(text(state_name(group.state)))
        .with_group_type(text(type_name(group.kind)))
}

/// Deletes groups without members.
pub(crate) async fn delete_groups(
    link: &Arc<Link>,
    mut request: Request,
) -> Result<Outcome, Broken> {
    let message: DeleteGroupsRequest = request.decode()?;
    let mut results = Vec::with_capacity(message.groups_names.len());
    for group in once(message.groups_names, Clone::clone) {
        let delete = Ask::Delete {
            group: name(&group.0),
        };
        let code = match ask(link, delete).await {
            Ok(Answer::Deleted(result)) => of_result(&result),
            Ok(other) => unexpected(&other),
            Err(code) => code,
        };
        let result = DeletableGroupResult::default()
            .with_group_id(group)
            .with_error_code(code);
        results.push(result);
    }
    let code = error_code::first_error(results.iter().map(|row| row.error_code));
    let response = DeleteGroupsResponse::default().with_results(results);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

/// Removes offsets of topics that nobody in the group reads (serving.md D2.13).
pub(crate) async fn delete_offsets(
    link: &Arc<Link>,
    mut request: Request,
) -> Result<Outcome, Broken> {
    let message: OffsetDeleteRequest = request.decode()?;
    let until = request.began + OPENING_MAX;
    let mut found = BTreeMap::new();
    for topic in &message.topics {
        for wanted in &topic.partitions {
            let index = wanted.partition_index;
            let id = partition(link, &topic.name.0, index, until).await;
            found.insert((topic.name.clone(), index), id);
        }
    }
    let delete = Ask::DeleteOffsets {
        group: name(&message.group_id.0),
        partitions: found.values().filter_map(|id| id.ok()).collect(),
    };
    let (code, results) = match ask(link, delete).await {
        Ok(Answer::OffsetsDeleted(Ok(results))) => (error_code::NONE, results),
        Ok(Answer::OffsetsDeleted(Err(error))) => (of_error(&error), Vec::new()),
        Ok(other) => (unexpected(&other), Vec::new()),
        Err(code) => (code, Vec::new()),
    };
    let results: BTreeMap<_, _> = results.into_iter().collect();
    let topics = message.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|wanted| {
            let index = wanted.partition_index;
            let code = match found.get(&(topic.name.clone(), index)) {
                Some(Ok(id)) => results.get(id).map_or(code, of_result),
                Some(Err(code)) => *code,
                None => error_code::UNKNOWN_TOPIC_OR_PARTITION,
            };
            OffsetDeleteResponsePartition::default()
                .with_partition_index(index)
                .with_error_code(code)
        });
        let partitions = partitions.collect();
        OffsetDeleteResponseTopic::default()
            .with_name(topic.name)
            .with_partitions(partitions)
    });
    let topics = match code {
        error_code::NONE => topics.collect(),
        _ => Vec::new(),
    };
    let response = OffsetDeleteResponse::default()
        .with_error_code(code)
        .with_topics(topics);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}
