//! CreatePartitions.

use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use serving_broker::{Action, Resource};

use super::rows::{once, twice};
use super::stage::Outcome;
use super::topics::{Refused, named_twice, refused};
use crate::error_code;
use crate::link::Link;
use crate::names;
use crate::wire::{Broken, Request, text};

/// Answers it: a row for each topic asked for, each once.
pub(super) async fn create_partitions(
    link: &Arc<Link>,
    mut request: Request,
) -> Result<Outcome, Broken> {
    let message: CreatePartitionsRequest = request.decode()?;
    let twice = twice(&message.topics, |topic| topic.name.clone());
    let topics = once(message.topics, |topic| topic.name.clone());
    let mut results = Vec::with_capacity(topics.len());
    for wanted in &topics {
        let grown = match twice.contains(&wanted.name) {
            true => Err(named_twice()),
            false => grow(link, wanted, message.validate_only).await,
        };
        let result = CreatePartitionsTopicResult::default().with_name(wanted.name.clone());
        results.push(match grown {
            Ok(()) => result,
            Err((code, why)) => result
                .with_error_code(code)
                .with_error_message(Some(text(why))),
        });
    }
    let code = error_code::first_error(results.iter().map(|row| row.error_code));
    let response = CreatePartitionsResponse::default().with_results(results);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

async fn grow(
    link: &Link,
    wanted: &CreatePartitionsTopic,
    validate_only: bool,
) -> Result<(), Refused> {
    let front = link.front();
    let name = names::parse(&wanted.name).map_err(|fault| refused(link, fault))?;
    front
        .allow(Action::Alter, Resource::Topic(&name))
        .map_err(|fault| refused(link, fault))?;
    let topic = front.topics().resolve(&name, false).await;
    let topic = topic.map_err(|fault| refused(link, fault))?;
    let max = hulse_proto::limits::TOPIC_PARTITIONS_MAX;
    // Unlike elsewhere, the number that there is already is an error here.
    let total = u32::try_from(wanted.count)
        .ok()
        .filter(|total| (topic.partitions + 1..=max).contains(total));
    let Some(total) = total else {
        let words = format!(
            "topic {} has {} partitions; more are made, up to {max}, and {} were asked for",
            topic.name, topic.partitions, wanted.count
        );
        let fault = Fault::new(Reason::PartitionsDecrease, words);
        return Err(refused(link, fault));
    };
    let more = (total - topic.partitions) as usize;
    if let Some(assigned) = &wanted.assignments
        && assigned.len() != more
    {
        let why = format!(
            "{} partitions are assigned and {more} are made",
            assigned.len()
        );
        return Err((error_code::INVALID_REPLICA_ASSIGNMENT, why));
    }
    if validate_only {
        return Ok(());
    }
    let grown = front.topics().add_partitions(&name, total).await;
    grown.map(drop).map_err(|fault| refused(link, fault))
}
