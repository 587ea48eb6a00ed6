//! CreateTopics and DeleteTopics. They answer when the change stands in metadata and this broker knows it (serving.md D2.11).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::TopicId;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
};
use kafka_protocol::protocol::StrBytes;
use serving_broker::{Action, NewTopic, Resource, Topic};

use super::rows::{Rows, once, twice};
use super::stage::Outcome;
use super::{configs, copies};
use crate::error_code::{self, Code};
use crate::link::Link;
use crate::names;
use crate::wire::{Broken, Request, text};

/// First version of CreateTopics whose answers describe what was made.
const DESCRIBED_FROM: i16 = 5;
/// First version of DeleteTopics whose answers say why. Of CreateTopics all do that are served.
const WORDS_FROM: i16 = 5;
/// First version that deletes by identity.
const TOPIC_IDS_FROM: i16 = 6;
/// A deletion is waited for at most this long, whatever the client says: it goes on by itself.
const DELETE_PATIENCE: Duration = Duration::from_secs(10);

/// A refusal: code and words.
pub(super) type Refused = (Code, String);

/// A fault as this family tells it.
pub(super) fn refused(link: &Link, fault: Fault) -> Refused {
    link.front().metrics().fault(fault.reason);
    (error_code::of_request(fault.reason), fault.message)
}

/// A fault of a creation. A name is taken until everything of its last topic is gone.
fn not_made(link: &Link, fault: Fault) -> Refused {
    let reason = fault.reason;
    let (code, why) = refused(link, fault);
    match reason {
        Reason::TopicDeleting => (error_code::TOPIC_ALREADY_EXISTS, why),
        _ => (code, why),
    }
}

/// What is said of a topic that a request names twice: it may want two things of it.
pub(super) fn named_twice() -> Refused {
    let why = "the request names this topic twice";
    (error_code::INVALID_REQUEST, why.to_owned())
}

/// Answers CreateTopics: a row for each topic asked for, each once.
pub(super) async fn create(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: CreateTopicsRequest = request.decode()?;
    let twice = twice(&message.topics, |topic| topic.name.clone());
    let topics = once(message.topics, |topic| topic.name.clone());
    let mut made = Vec::with_capacity(topics.len());
    for wanted in &topics {
        made.push(match twice.contains(&wanted.name) {
            true => Err(named_twice()),
            false => create_one(link, wanted, message.validate_only).await,
        });
    }
    // All at once and behind the work: a large answer is one of few, which must not wait for metadata.
    let mut rows = Rows::new(link);
    let mut results = Vec::with_capacity(topics.len());
    for (wanted, made) in topics.into_iter().zip(made) {
        let result = CreatableTopicResult::default()
            .with_name(wanted.name)
            .with_error_message(None);
        results.push(match made {
            Ok(made) => described(link, request.version, result, &made, &mut rows).await,
            Err((code, why)) => result
                .with_error_code(code)
                .with_error_message(Some(text(why)))
                .with_num_partitions(-1)
                .with_replication_factor(-1),
        });
    }
    let code = error_code::first_error(results.iter().map(|row| row.error_code));
    let response = CreateTopicsResponse::default().with_topics(results);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

/// What was made, or would be.
struct Made {
    topic: Option<Topic>,
    partitions: u32,
    new: NewTopic,
}

async fn create_one(
    link: &Link,
    wanted: &CreatableTopic,
    validate_only: bool,
) -> Result<Made, Refused> {
    let front = link.front();
    let name = names::parse(&wanted.name).map_err(|fault| refused(link, fault))?;
    front
        .allow(Action::Create, Resource::Topic(&name))
        .map_err(|fault| refused(link, fault))?;
    let partitions = partitions(link, wanted)?;
    let (new, waited_for) = configs::of_new_topic(link, &wanted.configs)?;
    let factor = match wanted.assignments.first() {
        Some(assigned) if !assigned.broker_ids.is_empty() => {
            i16::try_from(assigned.broker_ids.len()).unwrap_or(i16::MAX)
        }
        _ => wanted.replication_factor,
    };
    let new = NewTopic {
        partitions,
        quorums: copies::quorums_of_new(link, factor, waited_for).await?,
        ..new
    };
    if validate_only {
        return match front.topics().get(&name).await {
            Ok(topic) => {
                let words = format!("topic {} exists", topic.name);
                Err(refused(link, Fault::new(Reason::TopicExists, words)))
            }
            Err(fault) if fault.reason == Reason::TopicNotFound => Ok(Made {
                topic: None,
                partitions,
                new,
            }),
            Err(fault) => Err(not_made(link, fault)),
        };
    }
    let topic = front.topics().create_with(&name, new).await;
    let topic = topic.map_err(|fault| not_made(link, fault))?;
    Ok(Made {
        partitions: topic.partitions,
        topic: Some(topic),
        new,
    })
}

/// How many partitions are wanted. Who holds the copies is storage's affair: of brokers that are assigned only their number counts.
fn partitions(link: &Link, wanted: &CreatableTopic) -> Result<u32, Refused> {
    let assigned = &wanted.assignments;
    if !assigned.is_empty() {
        let indexes: BTreeSet<i32> = assigned.iter().map(|one| one.partition_index).collect();
        let dense = indexes.iter().copied().eq(0..assigned.len() as i32);
        if !dense || wanted.num_partitions != -1 {
            let why = "assigned partitions are numbered from 0 without a gap, and not counted beside that";
            return Err((error_code::INVALID_REPLICA_ASSIGNMENT, why.to_owned()));
        }
        return Ok(assigned.len() as u32);
    }
    match wanted.num_partitions {
        -1 => Ok(link.front().config().default_partitions),
        count => match u32::try_from(count) {
            Ok(count) if (1..=hulse_proto::limits::TOPIC_PARTITIONS_MAX).contains(&count) => {
                Ok(count)
            }
            _ => {
                let max = hulse_proto::limits::TOPIC_PARTITIONS_MAX;
                let why = format!("a topic has 1 to {max} partitions, {count} were asked for");
                Err((error_code::INVALID_PARTITIONS, why))
            }
        },
    }
}

async fn described(
    link: &Link,
    version: i16,
    result: CreatableTopicResult,
    made: &Made,
    rows: &mut Rows<'_>,
) -> CreatableTopicResult {
    let id = made.topic.as_ref().map(|topic| topic.id.0);
    let result = result
        .with_topic_id(id.unwrap_or_default())
        .with_num_partitions(made.partitions as i32)
        .with_replication_factor(copies::count(link, made.new.quorums));
    if version < DESCRIBED_FROM {
        return result;
    }
    let configs = configs::of_topic(link, made.new.into());
    if rows.add(configs.len()).await.is_err() {
        return result
            .with_configs(None)
            .with_topic_config_error_code(error_code::INVALID_REQUEST);
    }
    let configs = configs.into_iter().map(|config| {
        CreatableTopicConfigs::default()
            .with_name(StrBytes::from_static_str(config.name))
            .with_value(Some(text(config.value)))
            .with_config_source(config.source)
            .with_read_only(config.read_only)
    });
    result.with_configs(Some(configs.collect()))
}

/// Answers DeleteTopics.
pub(super) async fn delete(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: DeleteTopicsRequest = request.decode()?;
    let wanted = match request.version {
        TOPIC_IDS_FROM.. => message.topics,
        _ => {
            let named = message.topic_names.into_iter();
            named
                .map(|name| DeleteTopicState::default().with_name(Some(name)))
                .collect()
        }
    };
    let patience = u64::try_from(message.timeout_ms).unwrap_or(0);
    let patience = Duration::from_millis(patience).min(DELETE_PATIENCE);
    let wanted = once(wanted, |topic| (topic.name.clone(), topic.topic_id));
    let mut responses = Vec::with_capacity(wanted.len());
    for topic in wanted {
        let mut response = DeletableTopicResult::default()
            .with_name(topic.name.clone())
            .with_topic_id(topic.topic_id);
        match delete_one(link, &topic, patience).await {
            Ok(gone) => {
                // As it was asked for, by which clients find it again.
                response.name = topic.name.or_else(|| Some(names::tell(&gone.name)));
                if request.version >= TOPIC_IDS_FROM {
                    response.topic_id = gone.id.0;
                }
            }
            Err((code, why)) => {
                response.error_code = match code {
                    error_code::UNKNOWN_TOPIC_OR_PARTITION if topic.name.is_none() => {
                        error_code::UNKNOWN_TOPIC_ID
                    }
                    // Who may not delete may not do it to this topic.
                    error_code::CLUSTER_AUTHORIZATION_FAILED => {
                        error_code::TOPIC_AUTHORIZATION_FAILED
                    }
                    code => code,
                };
                response.error_message = (request.version >= WORDS_FROM).then(|| text(why));
            }
        }
        responses.push(response);
    }
    let code = error_code::first_error(responses.iter().map(|row| row.error_code));
    let response = DeleteTopicsResponse::default().with_responses(responses);
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

/// Answers when the deletion cannot be undone any more, and most often when it is done.
async fn delete_one(
    link: &Link,
    wanted: &DeleteTopicState,
    patience: Duration,
) -> Result<Topic, Refused> {
    let front = link.front();
    let found = match &wanted.name {
        Some(name) => match names::parse(name) {
            Ok(name) => front.topics().get(&name).await,
            Err(fault) => Err(fault),
        },
        None => front.topics().find(TopicId(wanted.topic_id)).await,
    };
    let topic = found.map_err(|fault| refused(link, fault))?;
    front
        .allow(Action::Delete, Resource::Topic(&topic.name))
        .map_err(|fault| refused(link, fault))?;
    let deleted = front.delete_topic(&topic.name, patience).await;
    deleted.map_err(|fault| refused(link, fault))?;
    Ok(topic)
}
