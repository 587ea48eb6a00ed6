//! AlterConfigs and IncrementalAlterConfigs: of topics, how long records stay, and how many copies are waited for. All else can be named
//! only with the value that holds.

use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse as Altered;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as Changed;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use serving_broker::{Action, Resource, RetentionPolicy, Topic, TopicRules};

use super::configs::{self, TOPIC};
use super::copies;
use super::retained::{Retained, retained};
use super::stage::Outcome;
use super::topics::{Refused, refused};
use crate::error_code;
use crate::link::Link;
use crate::names;
use crate::wire::{Broken, Request, text};

/// What is done with a value.
const SET: i8 = 0;
const DELETE: i8 = 1;

/// One config that is to be changed; no value: to what holds by itself.
struct Wanted {
    name: String,
    value: Option<String>,
}

/// Answers AlterConfigs: what a resource names holds, and what it does not name goes back to what holds by itself.
pub(super) async fn whole(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: AlterConfigsRequest = request.decode()?;
    let manner = Manner {
        whole: true,
        validate_only: message.validate_only,
    };
    let mut responses = Vec::with_capacity(message.resources.len());
    for resource in message.resources {
        let configs = resource.configs.iter().map(|config| Wanted {
            name: config.name.to_string(),
            value: config.value.as_ref().map(ToString::to_string),
        });
        let of = (resource.resource_type, resource.resource_name.as_str());
        let changed = alter(link, of, configs.collect(), manner);
        let response = Altered::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        responses.push(match changed.await {
            Ok(()) => response.with_error_message(None),
            Err((code, why)) => response
                .with_error_code(code)
                .with_error_message(Some(text(why))),
        });
    }
    let response = AlterConfigsResponse::default().with_responses(responses);
    Ok(Outcome::message(request.asked(), &response))
}

/// Answers IncrementalAlterConfigs: what is not named stays.
pub(super) async fn incremental(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: IncrementalAlterConfigsRequest = request.decode()?;
    let manner = Manner {
        whole: false,
        validate_only: message.validate_only,
    };
    let mut responses = Vec::with_capacity(message.resources.len());
    for resource in message.resources {
        let configs = resource.configs.iter().map(|config| {
            let value = config.value.as_ref().map(ToString::to_string);
            match config.config_operation {
                SET => Ok(Wanted {
                    name: config.name.to_string(),
                    value,
                }),
                DELETE => Ok(Wanted {
                    name: config.name.to_string(),
                    value: None,
                }),
                _ => {
                    let why = format!("{} is no list: set or delete it", config.name.as_str());
                    Err((error_code::INVALID_CONFIG, why))
                }
            }
        });
        let of = (resource.resource_type, resource.resource_name.as_str());
        let changed = match configs.collect::<Result<Vec<_>, Refused>>() {
            Ok(configs) => alter(link, of, configs, manner).await,
            Err(refused) => Err(refused),
        };
        let response = Changed::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        responses.push(match changed {
            Ok(()) => response.with_error_message(None),
            Err((code, why)) => response
                .with_error_code(code)
                .with_error_message(Some(text(why))),
        });
    }
    let response = IncrementalAlterConfigsResponse::default().with_responses(responses);
    Ok(Outcome::message(request.asked(), &response))
}

/// How a change is made.
#[derive(Clone, Copy)]
struct Manner {
    /// What is not named goes back to what holds by itself.
    whole: bool,
    validate_only: bool,
}

async fn alter(
    link: &Link,
    (kind, name): (i8, &str),
    configs: Vec<Wanted>,
    manner: Manner,
) -> Result<(), Refused> {
    let front = link.front();
    if kind != TOPIC {
        let why =
            "only topics can be changed here; a broker reads its configuration once, at its start";
        return Err((error_code::INVALID_REQUEST, why.to_owned()));
    }
    let name = names::parse(name).map_err(|fault| refused(link, fault))?;
    front
        .allow(Action::Alter, Resource::Topic(&name))
        .map_err(|fault| refused(link, fault))?;
    let topic = front.topics().resolve(&name, false).await;
    let topic = topic.map_err(|fault| refused(link, fault))?;
    let changes = changes(link, &topic, configs)?;
    let cell = front.cell_quorums();
    let change = |now: TopicRules| {
        Ok(TopicRules {
            retention: changes.retention(now.retention, manner.whole),
            quorums: match (changes.waited_for, manner.whole) {
                (None, false) => now.quorums,
                (waited_for, _) => copies::altered((now.quorums, cell), waited_for.flatten())?,
            },
            ..now
        })
    };
    let would_be = change(topic.rules());
    if manner.validate_only {
        return would_be.map(drop).map_err(|fault| not_changed(link, fault));
    }
    let changed = front.topics().set_rules(&name, change).await;
    let changed = changed.map_err(|fault| not_changed(link, fault))?;
    front.topic_changed(&changed);
    Ok(())
}

/// Copies that cannot be are a wrong config here.
fn not_changed(link: &Link, fault: Fault) -> Refused {
    let reason = fault.reason;
    let (code, why) = refused(link, fault);
    match reason {
        Reason::InvalidReplication => (error_code::INVALID_CONFIG, why),
        _ => (code, why),
    }
}

/// What is to be changed.
#[derive(Default)]
struct Changes {
    retained: Vec<Retained>,
    /// How many copies are waited for; inner `None`: what holds by itself.
    waited_for: Option<Option<u32>>,
}

impl Changes {
    fn retention(&self, now: RetentionPolicy, whole: bool) -> RetentionPolicy {
        let mut policy = if whole {
            RetentionPolicy::default()
        } else {
            now
        };
        for change in &self.retained {
            change.apply(&mut policy);
        }
        policy
    }
}

/// What a change says. A config that cannot be changed may be named with the value that it has.
///
/// # Errors
/// INVALID_CONFIG with what could be said instead.
fn changes(link: &Link, topic: &Topic, configs: Vec<Wanted>) -> Result<Changes, Refused> {
    let mut changes = Changes::default();
    for Wanted { name, value } in configs {
        if let Some(change) = retained(&name, value.as_deref())? {
            changes.retained.push(change);
            continue;
        }
        if let Some(copies) = copies::min_insync(&name, value.as_deref())? {
            changes.waited_for = Some(copies);
            continue;
        }
        let holds = configs::of_topic(link, topic.into());
        configs::check_fixed(&holds, &name, value.as_deref())?;
    }
    Ok(changes)
}
